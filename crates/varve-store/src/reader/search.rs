//! The state of one search for blocks. The attempts say where to look, and it remembers what was
//! found there.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, GetError, LogAddress, PlacedName, Score};
use varve_log::{ArenaId, FramePlace, ReadLogError};

use super::frames::OpenedFrame;
use crate::vault::Namer;

/// Places to be read, each with the numbers of the requested blocks that may be there.
pub(super) type ExpectedBlocks = BTreeMap<LogAddress, Vec<usize>>;

/// A requested block, and the outcome of the search so far.
struct RequestedBlock {
    name: BlockName,
    found: Option<Bytes>,
    /// The score of the block that it is stored as a delta of.
    base: Option<Score>,
    damage: Option<Arc<ReadLogError>>,
    /// True if the index may know more places.
    may_be_further: bool,
    /// True if the drafts say where the block is. No page and no index names it yet.
    waits_for_page: bool,
}

/// The answer of memory for a requested block.
pub(super) enum KnownInMemory {
    /// It is here; `None` if its draft does not have it.
    Here(Option<Bytes>),
    /// It is at this place, and no page and no index names it yet.
    WaitsForPage(LogAddress),
    /// It may be at these places.
    MayBeAt {
        places: Vec<LogAddress>,
        /// True if the index may know more places.
        may_be_further: bool,
        /// The reason why a directory could not be asked.
        damage: Option<Arc<ReadLogError>>,
    },
}

/// The forms in which a search accepts blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptedForms {
    /// Whole blocks, and deltas of whole blocks.
    All,
    /// Whole blocks only. So the search for the base of a delta reads no other delta.
    Whole,
}

/// Decides if a search records the blocks that it finds damaged as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossNotes {
    /// No: the caller looks again, after it has followed other writers.
    LookAgain,
    Final,
}

/// Blocks that are searched together.
pub(super) struct BlockSearch {
    requested: Vec<RequestedBlock>,
    accepted: AcceptedForms,
    notes: LossNotes,
    /// The places that were read.
    read: ExpectedBlocks,
}

impl BlockSearch {
    pub(super) fn new(names: &[BlockName], accepted: AcceptedForms, notes: LossNotes) -> Self {
        let requested = |name: &BlockName| RequestedBlock {
            name: *name,
            found: None,
            base: None,
            damage: None,
            may_be_further: false,
            waits_for_page: false,
        };
        Self { requested: names.iter().map(requested).collect(), accepted, notes, read: BTreeMap::new() }
    }

    /// Returns true if all blocks were found.
    pub(super) fn is_over(&self) -> bool {
        self.requested.iter().all(|requested| requested.found.is_some())
    }

    /// Returns true if deltas are accepted, and not only whole blocks.
    pub(super) fn accepts_deltas(&self) -> bool {
        self.accepted == AcceptedForms::All
    }

    /// Returns whether blocks that are found damaged are recorded as lost.
    pub(super) fn notes(&self) -> LossNotes {
        self.notes
    }

    pub(super) fn name(&self, number: usize) -> &BlockName {
        &self.requested[number].name
    }

    pub(super) fn is_found(&self, number: usize) -> bool {
        self.requested[number].found.is_some()
    }

    /// Returns true if another read may still find the block undamaged. A bad sector was read twice
    /// already, and shows no change.
    pub(super) fn is_worth_another_read(&self, number: usize) -> bool {
        let requested = &self.requested[number];
        requested.is_lost() && !requested.damage.as_ref().is_some_and(|error| error.is_unreadable())
    }

    /// Returns the blocks that were found damaged, and nowhere else.
    pub(super) fn lost(&self) -> impl Iterator<Item = BlockName> + '_ {
        self.requested.iter().filter(|requested| requested.is_lost()).map(|requested| requested.name)
    }

    /// Asks memory for each block. Takes the blocks that are there, and returns the places of the
    /// others.
    pub(super) fn ask_memory(&mut self, mut ask: impl FnMut(&BlockName) -> KnownInMemory) -> ExpectedBlocks {
        let mut expected = ExpectedBlocks::new();
        for (number, requested) in self.requested.iter_mut().enumerate() {
            for place in requested.take_known(ask(&requested.name)) {
                expected.entry(place).or_default().push(number);
            }
        }
        expected
    }

    /// Returns the places that `propose` has for blocks that were not found and may be further,
    /// except places that were read already.
    pub(super) fn further(&mut self, propose: impl Fn(&BlockName) -> Vec<LogAddress>) -> ExpectedBlocks {
        let mut further = ExpectedBlocks::new();
        for (number, requested) in self.requested.iter_mut().enumerate() {
            if requested.found.is_none() && requested.may_be_further {
                requested.may_be_further = false;
                for address in propose(&requested.name) {
                    if !self.read.get(&address).is_some_and(|numbers| numbers.contains(&number)) {
                        further.entry(address).or_default().push(number);
                    }
                }
            }
        }
        further
    }

    /// Adds the places that `propose` has for blocks that were not found.
    pub(super) fn add_places(
        &self,
        places: &mut ExpectedBlocks,
        propose: impl Fn(&BlockName) -> Vec<LogAddress>,
    ) {
        for (number, requested) in self.requested.iter().enumerate() {
            if requested.found.is_none() {
                for address in propose(&requested.name) {
                    places.entry(address).or_default().push(number);
                }
            }
        }
    }

    /// Takes a block from a frame, if it was not found before and is at this place.
    pub(super) fn take_from(&mut self, number: usize, frame: &OpenedFrame, place: FramePlace, namer: &Namer) {
        self.requested[number].take_from(frame, place, namer);
    }

    /// Records damage where these blocks may be.
    pub(super) fn note_damage<'a>(&mut self, numbers: impl Iterator<Item = &'a usize>, error: ReadLogError) {
        let error = Arc::new(error);
        for number in numbers {
            self.requested[*number].damage = Some(Arc::clone(&error));
        }
    }

    pub(super) fn note_read(&mut self, places: ExpectedBlocks) {
        if self.read.is_empty() {
            self.read = places;
            return;
        }
        for (address, numbers) in places {
            self.read.entry(address).or_default().extend(numbers);
        }
    }

    /// Returns the places that were read for a block that was not found.
    pub(super) fn missed_places(&self) -> impl Iterator<Item = LogAddress> + '_ {
        let is_missed =
            |numbers: &[usize]| numbers.iter().any(|number| self.requested[*number].found.is_none());
        self.read.iter().filter(move |(_, numbers)| is_missed(numbers)).map(|(address, _)| *address)
    }

    /// Returns the arenas in the names of blocks that were not found, in a by-value store.
    pub(super) fn missed_homes(&self) -> impl Iterator<Item = ArenaId> + '_ {
        let missed = self.requested.iter().filter(|requested| requested.found.is_none());
        missed
            .filter_map(|requested| Some(ArenaId(PlacedName::of(&requested.name.score)?.clump.arena.into())))
    }

    /// Forgets the damage of blocks at places that are all outdated. A block that waits for its
    /// page keeps it: no page names such a block, and damage may have taken the page.
    pub(super) fn forget_outdated_damage(&mut self, is_outdated: impl Fn(LogAddress, &BlockName) -> bool) {
        for (number, requested) in self.requested.iter_mut().enumerate().filter(|(_, one)| one.is_lost()) {
            let mut places = self.read.iter().filter(|(_, numbers)| numbers.contains(&number));
            let is_current = places.any(|(address, _)| !is_outdated(*address, &requested.name));
            if !is_current && !requested.waits_for_page {
                requested.damage = None;
            }
        }
    }

    /// Forgets that places were read for blocks that were not found, where `is_void` says that they
    /// are places of before. Damage that was found only there is forgotten as well. The index may
    /// know other places of these blocks.
    pub(super) fn forget_places(&mut self, is_void: impl Fn(LogAddress) -> bool) {
        let Self { requested, read, .. } = self;
        let mut read_elsewhere = vec![false; requested.len()];
        read.retain(|address, numbers| {
            if is_void(*address) {
                return false;
            }
            numbers.iter().for_each(|number| read_elsewhere[*number] = true);
            true
        });
        for (requested, read_elsewhere) in requested.iter_mut().zip(read_elsewhere) {
            if requested.found.is_none() && !read_elsewhere && !requested.waits_for_page {
                requested.damage = None;
            }
            requested.may_be_further = true;
        }
    }

    /// Removes and returns the places that hold another block than the expected one, and no damage.
    pub(super) fn take_wrong_places(&mut self) -> ExpectedBlocks {
        let is_wrong = |number: &usize| {
            let requested = &self.requested[*number];
            requested.found.is_none() && requested.damage.is_none()
        };
        let mut wrong = BTreeMap::new();
        self.read.retain(|address, numbers| {
            let (wrong_here, others): (Vec<_>, Vec<_>) = numbers.iter().copied().partition(is_wrong);
            if !wrong_here.is_empty() {
                wrong.insert(*address, wrong_here);
            }
            *numbers = others;
            !numbers.is_empty()
        });
        wrong
    }

    /// Returns the result for each block.
    pub(super) fn into_results(self) -> impl Iterator<Item = Result<Bytes, GetError>> {
        self.requested.into_iter().map(RequestedBlock::into_result)
    }

    /// Returns each block that was found where a page names it, with the score of the block that it
    /// is stored as a delta of.
    pub(super) fn into_named_blocks(self) -> impl Iterator<Item = Option<(Bytes, Option<Score>)>> {
        self.requested.into_iter().map(|requested| {
            let found = requested.found.filter(|_| !requested.waits_for_page)?;
            Some((found, requested.base))
        })
    }
}

impl RequestedBlock {
    /// Takes the block if memory has it, or returns its possible places.
    fn take_known(&mut self, known: KnownInMemory) -> Vec<LogAddress> {
        match known {
            KnownInMemory::Here(found) => {
                self.found = found;
                Vec::new()
            }
            KnownInMemory::WaitsForPage(address) => {
                self.waits_for_page = true;
                vec![address]
            }
            KnownInMemory::MayBeAt { places, may_be_further, damage } => {
                self.may_be_further = may_be_further;
                self.damage = damage;
                places
            }
        }
    }

    fn take_from(&mut self, frame: &OpenedFrame, place: FramePlace, namer: &Namer) {
        if self.found.is_none() {
            self.found = frame.block(&self.name, place, namer);
            self.base = self.found.as_ref().and_then(|_| frame.base());
        }
    }

    fn is_lost(&self) -> bool {
        self.found.is_none() && self.damage.as_ref().is_some_and(|error| error.is_damage())
    }

    fn into_result(self) -> Result<Bytes, GetError> {
        let name = self.name;
        match (self.found, self.damage) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(error)) if error.is_damage() => Err(GetError::Damaged { name, source: error.into() }),
            (None, Some(error)) => Err(GetError::Failed { name, source: error.into() }),
            (None, None) => Err(GetError::NotFound { name }),
        }
    }
}

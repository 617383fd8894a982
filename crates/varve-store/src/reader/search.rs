//! The state of one search for blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, GetError, LogAddress, PlacedName, Score};
use varve_log::{ArenaId, FramePlace, ReadLogError};

use super::frames::OpenedFrame;
use crate::vault::Namer;

/// A requested block, and the outcome of the search so far.
pub(super) struct RequestedBlock {
    pub(super) name: BlockName,
    pub(super) found: Option<Bytes>,
    /// The score of the block that it is stored as a delta of.
    pub(super) base: Option<Score>,
    pub(super) damage: Option<Arc<ReadLogError>>,
    /// True if the index may know more places.
    pub(super) may_be_further: bool,
    /// True if the drafts say where the block is. No page and no index names it yet.
    pub(super) waits_for_page: bool,
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
    pub(super) requested: Vec<RequestedBlock>,
    pub(super) accepted: AcceptedForms,
    pub(super) notes: LossNotes,
    /// The places that were read, each with the numbers of the blocks that were expected there.
    pub(super) read: BTreeMap<LogAddress, Vec<usize>>,
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

    pub(super) fn note_read(&mut self, places: BTreeMap<LogAddress, Vec<usize>>) {
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

    /// Forgets that places were read for blocks that were not found, where `is_void` says that they
    /// are places of before. Damage that was found only there is forgotten as well.
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
        }
    }

    /// Removes and returns the places that hold another block than the expected one, and no damage.
    pub(super) fn take_wrong_places(&mut self) -> BTreeMap<LogAddress, Vec<usize>> {
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
}

impl RequestedBlock {
    /// Takes the block from a frame, if it was not found before and is at this place.
    pub(super) fn take_from(&mut self, frame: &OpenedFrame, place: FramePlace, namer: &Namer) {
        if self.found.is_none() {
            self.found = frame.block(&self.name, place, namer);
            self.base = self.found.as_ref().and_then(|_| frame.base());
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.found.is_none() && self.damage.as_ref().is_some_and(|error| error.is_damage())
    }

    pub(super) fn into_result(self) -> Result<Bytes, GetError> {
        let name = self.name;
        match (self.found, self.damage) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(error)) if error.is_damage() => Err(GetError::Damaged { name, source: error.into() }),
            (None, Some(error)) => Err(GetError::Failed { name, source: error.into() }),
            (None, None) => Err(GetError::NotFound { name }),
        }
    }
}

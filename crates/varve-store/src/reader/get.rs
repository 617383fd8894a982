//! Getting: candidates are read in the log's order, and only a block whose bytes have the right score leaves. In a by-value store the score says
//! where the block is; the index is asked only if it is not there.
//!
//! The map of a clump tells in which of its frames a block can be, so that no other is read. Neighbouring frames, and neighbouring
//! clumps, are read in one go.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, BlockType, GetError, LogAddress};
use varve_log::{ArenaMap, ClumpMap, FramePlace, GRANULE_BYTES, ReadLogError, Window};

use super::Reader;
use crate::drafts::Waiting;
use crate::role::Permission;

/// What lies closer than this is read in one go.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// What is read for a clump whose length is not known yet, if much of it is wanted.
const GUESS_BYTES: u64 = 128 << 10;
/// The same if one block of it is wanted: enough for a header and the table of most clumps.
const MAP_GUESS_BYTES: u64 = 4 << 10;
/// The most that is read in one go.
const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// A block that is looked for, and what has been met on the way.
struct Wanted {
    name: BlockName,
    found: Option<Bytes>,
    damage: Option<Arc<ReadLogError>>,
    /// Whether the index may know of more places.
    may_be_further: bool,
}

impl Reader {
    pub(crate) fn get_blocks(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        // Not even what still waits in memory.
        if let Err(refused) = self.vault.role().require(Permission::Read) {
            let refuse = |name: &BlockName| Err(GetError::Failed { name: *name, source: refused.into() });
            return names.iter().map(refuse).collect();
        }
        let mut wanted: Vec<_> = names.iter().map(|name| Wanted::new(*name)).collect();
        for wanted in wanted.iter_mut().filter(|wanted| self.vault.namer().is_everywhere(&wanted.name.score))
        {
            wanted.found = Some(Bytes::new());
        }
        let mut places: BTreeMap<LogAddress, Vec<usize>> = BTreeMap::new();
        for (number, wanted) in wanted.iter_mut().enumerate() {
            for address in self.places(wanted) {
                places.entry(address).or_default().push(number);
            }
        }
        self.read_places(&places, &mut wanted);
        self.look_further_for(&mut places, &mut wanted);
        self.look_into_others(&mut places, &mut wanted);
        // A place that was proposed and does not hold the block: seldom another block with its fingerprint, else a disk that has returned
        // what was there before. That was good once, so nothing in it tells; it is not kept, and read again.
        places.retain(|address, numbers| {
            numbers.retain(|number| wanted[*number].found.is_none() && wanted[*number].damage.is_none());
            if !numbers.is_empty() {
                self.frames.remove(*address);
            }
            !numbers.is_empty()
        });
        self.read_places(&places, &mut wanted);
        for lost in wanted.iter().filter(|wanted| wanted.is_lost()) {
            self.lost.add(lost.name);
        }
        wanted.into_iter().map(Wanted::into_result).collect()
    }

    /// Has in memory what tells where in their clumps these blocks are, so that each will cost one read of the disk and not two, the
    /// second of which waits for the first. Looks no further for them than memory says.
    pub(crate) fn expect_blocks(&self, names: &[BlockName]) {
        if self.vault.role().require(Permission::Read).is_err() {
            return;
        }
        let map = self.vault.map();
        let places = self.finder.places_in_memory(names);
        for of_arena in places.chunk_by(|one, next| map.locate(*one).0 == map.locate(*next).0) {
            let Ok(arena) = self.vault.directory().arena(map.locate(of_arena[0]).0) else { continue };
            let mut window = self.vault.log().window(&arena, ahead_bytes(MAP_GUESS_BYTES));
            for address in of_arena {
                // Damage is for whoever asks for a block there.
                drop(self.frames.map(*address, || window.map(map.locate(*address).1)));
            }
        }
    }

    /// What was not found where memory says that it may be is looked for in all of the index.
    fn look_further_for(&self, places: &mut BTreeMap<LogAddress, Vec<usize>>, wanted: &mut [Wanted]) {
        let mut further: BTreeMap<LogAddress, Vec<usize>> = BTreeMap::new();
        for (number, wanted) in wanted.iter_mut().enumerate() {
            if wanted.found.is_none() && wanted.may_be_further {
                wanted.may_be_further = false;
                for address in self.finder.look_further(&wanted.name) {
                    if !places.get(&address).is_some_and(|numbers| numbers.contains(&number)) {
                        further.entry(address).or_default().push(number);
                    }
                }
            }
        }
        self.read_places(&further, wanted);
        for (address, numbers) in further {
            places.entry(address).or_default().extend(numbers);
        }
    }

    /// What is at none of its places is looked for once more, if one of them is in an arena that is another one than the index knows.
    fn look_into_others(&self, places: &mut BTreeMap<LogAddress, Vec<usize>>, wanted: &mut [Wanted]) {
        let is_missed = |numbers: &[usize]| numbers.iter().any(|number| wanted[*number].found.is_none());
        let missed = places.iter().filter(|(_, numbers)| is_missed(numbers));
        let arenas = missed.map(|(address, _)| self.vault.map().locate(*address).0).collect();
        if self.finder.take_in_changed(&arenas) {
            wanted.iter_mut().for_each(|wanted| wanted.may_be_further = true);
            self.look_further_for(places, wanted);
        }
    }

    fn read_places(&self, places: &BTreeMap<LogAddress, Vec<usize>>, wanted: &mut [Wanted]) {
        for run in runs(self.vault.map(), places) {
            self.read_run(&run, places, wanted);
        }
    }

    /// Where a block may be; none if it still waits in a draft, from which it is taken at once.
    fn places(&self, wanted: &mut Wanted) -> Vec<LogAddress> {
        if wanted.found.is_some() {
            return Vec::new();
        }
        match self.drafts.waiting(&wanted.name) {
            Some(Waiting::At(address)) => return vec![address],
            Some(Waiting::Here(bytes)) => {
                wanted.found = bytes;
                return Vec::new();
            }
            None => {}
        }
        match self.vault.directory().places_of(&wanted.name.score) {
            Ok(places) if !places.is_empty() => {
                wanted.may_be_further = true;
                return places;
            }
            Ok(_) => {}
            Err(error) => wanted.damage = Some(Arc::new(error)),
        }
        let (near, is_all) = self.finder.look_near(&wanted.name);
        if near.is_empty() && !is_all {
            return self.finder.look_further(&wanted.name);
        }
        wanted.may_be_further = !is_all;
        near
    }

    /// Reads neighbouring clumps of one arena; a second time, if what was known of the arena was wrong.
    fn read_run(&self, run: &[LogAddress], places: &BTreeMap<LogAddress, Vec<usize>>, wanted: &mut [Wanted]) {
        self.read_run_once(run, places, wanted);
        let mut numbers = run.iter().flat_map(|address| &places[address]);
        let has_failed =
            numbers.any(|number| wanted[*number].found.is_none() && wanted[*number].damage.is_some());
        let arena = run.first().map(|address| self.vault.map().locate(*address).0);
        if has_failed && arena.is_some_and(|arena| self.vault.directory().has_other_header(arena)) {
            self.read_run_once(run, places, wanted);
        }
    }

    /// Reads neighbouring clumps of one arena through one window.
    fn read_run_once(
        &self,
        run: &[LogAddress],
        places: &BTreeMap<LogAddress, Vec<usize>>,
        wanted: &mut [Wanted],
    ) {
        let map = self.vault.map();
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let arena = match self.vault.directory().arena(map.locate(*first).0) {
            Ok(arena) => arena,
            Err(error) => return note_damage(wanted, run.iter().flat_map(|address| &places[address]), error),
        };
        let mut window = self.vault.log().window(&arena, 0);
        for address in run {
            let mut numbers = places[address].clone();
            numbers.retain(|number| wanted[*number].found.is_none());
            if numbers.is_empty() {
                continue;
            }
            let to_last = (last.granule() - address.granule()) * GRANULE_BYTES;
            let is_one_leaf = to_last == 0
                && matches!(numbers[..], [number] if wanted[number].name.block_type == BlockType::DATA);
            let guess = if is_one_leaf { MAP_GUESS_BYTES } else { GUESS_BYTES };
            let read = self.frames.map(*address, || {
                window.set_ahead_bytes(ahead_bytes(to_last + guess));
                window.map(map.locate(*address).1)
            });
            match read {
                Ok(clump) => self.read_frames(&mut window, *address, &clump, &numbers, wanted),
                Err(error) => note_damage(wanted, numbers.iter(), error),
            }
        }
    }

    /// Reads those frames of a clump in which blocks with these numbers may be.
    fn read_frames(
        &self,
        window: &mut Window<'_>,
        address: LogAddress,
        clump: &ClumpMap,
        numbers: &[usize],
        wanted: &mut [Wanted],
    ) {
        let mut frames: BTreeMap<usize, Vec<(usize, FramePlace)>> = BTreeMap::new();
        for number in numbers {
            for place in clump.places_of(&wanted[*number].name.score) {
                match self.frames.known(address, clump, place.frame) {
                    Some(known) => {
                        let wanted = &mut wanted[*number];
                        wanted.found = wanted
                            .found
                            .take()
                            .or_else(|| known.block(&wanted.name, place, self.vault.namer()));
                    }
                    None => frames.entry(place.frame).or_default().push((*number, place)),
                }
            }
        }
        let mut read_to = 0;
        let spans: Vec<_> = frames.keys().map(|frame| clump.place(*frame)).collect();
        for (at, (frame, wants)) in frames.iter().enumerate() {
            if wants.iter().all(|(number, _)| wanted[*number].found.is_some()) {
                continue;
            }
            if at >= read_to {
                let near =
                    spans[at..].windows(2).take_while(|pair| pair[1].start <= pair[0].end + GAP_BYTES_MAX);
                read_to = at + 1 + near.count();
                window.set_ahead_bytes(ahead_bytes(spans[read_to - 1].end - spans[at].start));
            }
            match self.frames.frame(address, clump, *frame, || window.frame(clump, *frame)) {
                Ok(opened) => {
                    for (number, place) in wants {
                        let wanted = &mut wanted[*number];
                        wanted.found = wanted
                            .found
                            .take()
                            .or_else(|| opened.block(&wanted.name, *place, self.vault.namer()));
                    }
                }
                Err(error) => {
                    // What told where its frames are may have been read as it was before.
                    self.frames.remove(address);
                    note_damage(wanted, wants.iter().map(|(number, _)| number), error);
                }
            }
        }
    }
}

fn note_damage<'a>(wanted: &mut [Wanted], numbers: impl Iterator<Item = &'a usize>, error: ReadLogError) {
    let error = Arc::new(error);
    for number in numbers {
        wanted[*number].damage = Some(Arc::clone(&error));
    }
}

impl Wanted {
    fn new(name: BlockName) -> Self {
        Self { name, found: None, damage: None, may_be_further: false }
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

fn ahead_bytes(span: u64) -> usize {
    usize::try_from(span.min(AHEAD_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// Addresses that lie close together in one arena, run by run.
fn runs<T>(map: ArenaMap, places: &BTreeMap<LogAddress, T>) -> Vec<Vec<LogAddress>> {
    let is_close = |one: LogAddress, next: LogAddress| {
        let same_arena = map.locate(one).0 == map.locate(next).0;
        same_arena && (next.granule() - one.granule()) * GRANULE_BYTES <= GAP_BYTES_MAX + GUESS_BYTES
    };
    let mut runs: Vec<Vec<LogAddress>> = Vec::new();
    for address in places.keys() {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| is_close(*last, *address)) => run.push(*address),
            _ => runs.push(vec![*address]),
        }
    }
    runs
}

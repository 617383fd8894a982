//! Reads clumps: the frames that may hold a requested block, neighbouring ones in one read, in the
//! log's order.
//!
//! The map of a clump shows which of its frames can hold a block, so no other frame is read.

use std::collections::BTreeMap;

use varve_block::{BlockName, BlockType, LogAddress, to_usize};
use varve_log::{ArenaMap, ArenaWindow, ClumpMap, FramePlace, GRANULE_BYTES};

use super::Reader;
use super::search::{BlockSearch, ExpectedBlocks};
use super::whole_blocks::WholeBlocks;
use crate::role::Permission;

/// Places closer than this are read in one go.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// The bytes that are read for a clump of unknown length, if much of it is requested.
const GUESS_BYTES: u64 = 128 << 10;
/// The same if one block of it is requested: enough for a header and the table of most clumps.
const MAP_GUESS_BYTES: u64 = 4 << 10;
/// The most bytes that are read in one go.
const AHEAD_BYTES_MAX: u64 = 4 << 20;

impl Reader {
    /// Loads the maps of the clumps that may hold these blocks. Getting a block then costs one read
    /// of the disk, and not two of which the second waits for the first. Uses only the places that
    /// memory knows.
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
                // Damage is reported to the caller that requests a block there.
                drop(self.frames.map(*address, || window.map(map.locate(*address).1)));
            }
        }
    }

    /// Reads blocks at these places. Each place has the numbers of the blocks that may be there.
    pub(super) fn read_places(&self, places: &ExpectedBlocks, search: &mut BlockSearch) {
        for run in runs(self.vault.map(), places) {
            self.read_run(&run, places, search);
        }
    }

    /// Reads neighbouring clumps of one arena. If something seems damaged, reads it a second time,
    /// with nothing from the caches: the arena may have been replaced since they were filled, or a
    /// read may have returned an earlier state of the disk.
    fn read_run(&self, run: &[LogAddress], places: &ExpectedBlocks, search: &mut BlockSearch) {
        self.read_run_once(run, places, search);
        let has_failed =
            |address: &LogAddress| places[address].iter().any(|number| search.is_worth_another_read(*number));
        let failed: Vec<_> = run.iter().copied().filter(has_failed).collect();
        let Some(first) = failed.first() else { return };
        self.vault.directory().has_other_header(self.vault.map().locate(*first).0);
        failed.iter().for_each(|address| self.frames.remove(*address));
        self.read_run_once(&failed, places, search);
    }

    /// Reads neighbouring clumps of one arena through one window.
    fn read_run_once(&self, run: &[LogAddress], places: &ExpectedBlocks, search: &mut BlockSearch) {
        let map = self.vault.map();
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let arena = match self.vault.directory().arena(map.locate(*first).0) {
            Ok(arena) => arena,
            Err(error) => {
                let numbers = run.iter().flat_map(|address| &places[address]);
                return search.note_damage(numbers, error);
            }
        };
        let bases = WholeBlocks(self, search.notes());
        let window = self.vault.log().window(&arena, 0);
        let mut window = if search.accepts_deltas() { window.with_bases(&bases) } else { window };
        for address in run {
            let mut numbers = places[address].clone();
            numbers.retain(|number| !search.is_found(*number));
            if numbers.is_empty() {
                continue;
            }
            let to_last = (last.granule() - address.granule()) * GRANULE_BYTES;
            let is_leaf = |number: usize| search.name(number).block_type == BlockType::DATA;
            let is_one_leaf = to_last == 0 && matches!(numbers[..], [number] if is_leaf(number));
            let guess = if is_one_leaf { MAP_GUESS_BYTES } else { GUESS_BYTES };
            let read = self.frames.map(*address, || {
                window.set_ahead_bytes(ahead_bytes(to_last + guess));
                window.map(map.locate(*address).1)
            });
            match read {
                Ok(clump) => self.read_frames(&mut window, *address, &clump, &numbers, search),
                Err(error) => search.note_damage(numbers.iter(), error),
            }
        }
    }

    /// Reads the frames of a clump that may hold the blocks with these numbers.
    fn read_frames(
        &self,
        window: &mut ArenaWindow<'_>,
        address: LogAddress,
        clump: &ClumpMap,
        numbers: &[usize],
        search: &mut BlockSearch,
    ) {
        let accepts_deltas = search.accepts_deltas();
        let is_accepted = |frame| accepts_deltas || !clump.is_delta(frame);
        let namer = self.vault.namer();
        let mut frames: BTreeMap<usize, Vec<(usize, FramePlace)>> = BTreeMap::new();
        for number in numbers {
            let places = clump.places_of(&search.name(*number).score);
            for place in places.into_iter().filter(|place| is_accepted(place.frame)) {
                match self.frames.known(address, clump, place.frame) {
                    Some(known) => search.take_from(*number, &known, place, namer),
                    None => frames.entry(place.frame).or_default().push((*number, place)),
                }
            }
        }
        let mut read_to = 0;
        let spans: Vec<_> = frames.keys().map(|frame| clump.place(*frame)).collect();
        for (at, (frame, wants)) in frames.iter().enumerate() {
            if wants.iter().all(|(number, _)| search.is_found(*number)) {
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
                        search.take_from(*number, &opened, *place, namer);
                    }
                }
                Err(error) => {
                    // The clump's map may have been read from an earlier state of the disk.
                    self.frames.remove(address);
                    search.note_damage(wants.iter().map(|(number, _)| number), error);
                }
            }
        }
    }
}

fn ahead_bytes(span: u64) -> usize {
    to_usize(span.min(AHEAD_BYTES_MAX))
}

/// Groups addresses that lie close together in one arena.
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

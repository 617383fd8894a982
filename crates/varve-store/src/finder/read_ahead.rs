//! Read-ahead of look-ups on disk: the number of a block's neighbours that are worth prefetching
//! into the index's cache.

use parking_lot::{Mutex, MutexGuard};
use varve_block::LogAddress;
use varve_log::{ArenaId, GRANULE_BYTES};

use crate::config::Prefetch;

/// Upper bound on the blocks that one look-up on disk prefetches: a whole arena, if its blocks are
/// not very small.
pub(super) const BESIDE_MAX: u64 = 1 << 16;
/// The blocks that the second look-up of a sequence prefetches: as many as a directory page names.
const BESIDE_FIRST: u64 = 1 << 12;
/// Read-ahead grows by this factor with each look-up of a sequence.
const BESIDE_GROWTH: u64 = 4;
/// Two look-ups belong to one sequence if they are no farther apart in the log than this. Mostly
/// that is one clump.
const NEAR_GRANULES: u64 = (256 << 10) / GRANULE_BYTES;
/// The same distance from the end of the prefetched range, whose last clump may be this long.
const NEXT_GRANULES: u64 = (1 << 20) / GRANULE_BYTES;
/// The most sequences that are tracked at the same time.
const SEQUENCES_MAX: usize = 4;
/// Venti prefetches after this many sequential look-ups on disk in one arena.
const ROW_LENGTH: u32 = 4;

/// The order of recent look-ups on disk.
#[derive(Debug, Default)]
pub(super) struct LookupReadAhead {
    row: Mutex<LookupRow>,
    sequences: Mutex<LookupSequences>,
}

impl LookupReadAhead {
    /// Records a look-up on disk that led to `place` in `arena`. Returns the number of blocks
    /// beside it to prefetch.
    pub(super) fn note(&self, prefetch: Prefetch, arena: ArenaId, place: LogAddress) -> u64 {
        match prefetch {
            Prefetch::Arena => self.sequences().note(place),
            Prefetch::None => 0,
            Prefetch::Four => {
                let mut row = self.row.lock();
                let leads_on = row.arena == Some(arena) && row.last.is_some_and(|last| last <= place);
                let length = if leads_on { row.length + 1 } else { 1 };
                *row = LookupRow { arena: Some(arena), last: Some(place), length };
                if length >= ROW_LENGTH { BESIDE_MAX } else { 0 }
            }
        }
    }

    /// Returns the last places of the sequences, the most recent first.
    pub(super) fn places(&self) -> Vec<LogAddress> {
        self.sequences().places()
    }

    /// Records that the sequence that led to `before` has continued to `place` without the disk.
    pub(super) fn note_without_disk(&self, before: LogAddress, place: LogAddress) {
        self.sequences().note_without_disk(before, place);
    }

    /// Records the end of the range that was prefetched beside `place`.
    pub(super) fn note_end(&self, place: LogAddress, end: LogAddress) {
        self.sequences().note_end(place, end);
    }

    fn sequences(&self) -> MutexGuard<'_, LookupSequences> {
        self.sequences.lock()
    }
}

/// Sequential look-ups on disk in one arena.
#[derive(Debug, Default)]
struct LookupRow {
    arena: Option<ArenaId>,
    last: Option<LogAddress>,
    length: u32,
}

/// Sequences of recent look-ups on disk, the most recent at the end. A look-up that is near none of
/// them is likely to be alone, so its neighbours are not prefetched: that would be a thousand times
/// the work of the look-up itself.
#[derive(Debug, Default)]
struct LookupSequences(Vec<LookupSequence>);

#[derive(Debug, Clone, Copy)]
struct LookupSequence {
    /// The place of the last look-up.
    last: LogAddress,
    /// The end of the prefetched range. The next look-up of the sequence falls behind it.
    end: LogAddress,
    /// The number of blocks to prefetch; 0 after a single look-up.
    blocks: u64,
}

impl LookupSequences {
    /// Records a look-up on disk that led to `place`. Returns the number of blocks beside it to
    /// prefetch.
    fn note(&mut self, place: LogAddress) -> u64 {
        let at = self.0.iter().rposition(|sequence| sequence.leads_to(place));
        let before = at.map(|at| self.0.remove(at));
        let blocks = before
            .map_or(0, |before| before.blocks.saturating_mul(BESIDE_GROWTH).clamp(BESIDE_FIRST, BESIDE_MAX));
        if self.0.len() >= SEQUENCES_MAX {
            self.0.remove(0);
        }
        self.0.push(LookupSequence { last: place, end: place, blocks });
        blocks
    }

    /// Returns the last places of the sequences, the most recent first.
    fn places(&self) -> Vec<LogAddress> {
        self.0.iter().rev().map(|sequence| sequence.last).collect()
    }

    /// Records that the sequence that led to `before` has continued to `place` without the disk.
    fn note_without_disk(&mut self, before: LogAddress, place: LogAddress) {
        if let Some(at) = self.0.iter().rposition(|sequence| sequence.last == before) {
            let sequence = self.0.remove(at);
            self.0.push(LookupSequence { last: place, end: sequence.end.max(place), ..sequence });
        }
    }

    /// Records the end of the range that was prefetched beside `place`.
    fn note_end(&mut self, place: LogAddress, end: LogAddress) {
        if let Some(sequence) = self.0.iter_mut().rfind(|sequence| sequence.last == place) {
            sequence.end = end;
        }
    }
}

impl LookupSequence {
    fn leads_to(&self, place: LogAddress) -> bool {
        let beyond = place.granule().checked_sub(self.end.granule());
        (self.blocks > 0 && beyond.is_some_and(|gap| gap <= NEXT_GRANULES))
            || self.last.granule().abs_diff(place.granule()) <= NEAR_GRANULES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(granule: u64) -> LogAddress {
        LogAddress::new(granule).unwrap()
    }

    #[test]
    fn what_leads_on_brings_in_more_and_more_and_what_is_alone_nothing() {
        let mut sequences = LookupSequences::default();
        for number in 0..1000 {
            assert_eq!(sequences.note(place(number * 3 * NEAR_GRANULES)), 0, "{number}");
        }
        assert_eq!(sequences.0.len(), SEQUENCES_MAX);
        // Two sequences continue in turns. The second look-up of each prefetches neighbours, and
        // each later one falls behind the prefetched range.
        let (mut one, mut other) = (1 << 30, 1 << 32);
        let mut asked = Vec::new();
        for _ in 0..6 {
            for at in [&mut one, &mut other] {
                let blocks = sequences.note(place(*at));
                asked.push(blocks);
                sequences.note_end(place(*at), place(*at + blocks * 16));
                *at += blocks * 16 + 100;
            }
        }
        assert_eq!(
            asked,
            [0, 0, 4096, 4096, 1 << 14, 1 << 14, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16]
        );
        // A place in the midst of the prefetched range, evicted since: read-ahead begins anew.
        assert_eq!(sequences.note(place(one - (1 << 19))), 0);
    }
    #[test]
    fn what_is_found_without_the_disk_leads_on_too() {
        let mut sequences = LookupSequences::default();
        assert_eq!((sequences.note(place(5000)), sequences.note(place(1 << 30))), (0, 0));
        sequences.note_without_disk(place(5000), place(5000 + 10 * NEAR_GRANULES));
        assert_eq!(sequences.places(), [place(5000 + 10 * NEAR_GRANULES), place(1 << 30)]);
        assert_eq!(sequences.note(place(5001 + 10 * NEAR_GRANULES)), BESIDE_FIRST);
        sequences.note_without_disk(place(77), place(78));
        assert_eq!(sequences.places().len(), 2, "what was let go meanwhile stays away");
    }
}

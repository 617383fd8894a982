//! Decides how much is fetched at once: what is wanted, if the reads are scattered, and more with
//! each step of a sequence.
//!
//! A request to a distant target costs as much time as some megabytes. A restore reads the log
//! mostly in order, with several workers that are a little apart, so it gets few large requests. A
//! mount reads here and there, and would throw away whatever it had not asked for.

use std::collections::VecDeque;
use std::ops::Range;

use varve_log::ArenaId;

/// The most bytes of one request, unless more are wanted.
pub(super) const FETCH_BYTES_MAX: u64 = 16 << 20;
/// A read that begins at most this far behind the end of a fetch continues it: what lies between
/// belongs to other snapshots.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// A fetch is this many times as long as the one before it.
const GROWTH: u64 = 4;
/// The most sequences that are tracked.
const SEQUENCES_MAX: usize = 64;

/// The sequences of reads, the newest last.
#[derive(Debug, Default)]
pub(super) struct ReadSequences {
    sequences: VecDeque<ReadSequence>,
}

/// Reads of which each continues the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadSequence {
    arena: ArenaId,
    /// The end of the last fetch, in the arena.
    end: u64,
    /// The bytes of the last fetch, if no object had ended it.
    bytes: u64,
}

impl ReadSequence {
    /// Reports whether a read continues the sequence: in its arena, or at the beginning of the next
    /// one if as much as possible was fetched at once.
    fn leads_to(self, arena: ArenaId, start: u64) -> bool {
        let gap = if arena == self.arena {
            start.checked_sub(self.end)
        } else {
            let is_next = self.arena.0.checked_add(1) == Some(arena.0);
            (is_next && self.bytes >= FETCH_BYTES_MAX).then_some(start)
        };
        gap.is_some_and(|gap| gap <= GAP_BYTES_MAX)
    }
}

impl ReadSequences {
    /// Returns the end of the fetch for wanted bytes of an arena. It is at least the end of these,
    /// and otherwise at most `limit`, where the object ends or known bytes begin.
    pub(super) fn fetch_end(&mut self, arena: ArenaId, wanted: Range<u64>, limit: u64) -> u64 {
        let wanted_bytes = wanted.end.saturating_sub(wanted.start);
        let before = self.longest_to(arena, wanted.start).and_then(|place| self.sequences.remove(place));
        let bytes = before.map_or(0, |before| before.bytes.saturating_mul(GROWTH).min(FETCH_BYTES_MAX));
        let bytes = bytes.max(wanted_bytes);
        let end = wanted.start.saturating_add(bytes).min(limit).max(wanted.end);
        if self.sequences.len() >= SEQUENCES_MAX {
            self.sequences.pop_front();
        }
        self.sequences.push_back(ReadSequence { arena, end, bytes });
        end
    }

    /// Reports whether a read at this place continues a sequence of the longest fetches.
    pub(super) fn is_at_full_speed(&self, arena: ArenaId, start: u64) -> bool {
        let longest = self.longest_to(arena, start).and_then(|place| self.sequences.get(place));
        longest.is_some_and(|sequence| sequence.bytes >= FETCH_BYTES_MAX)
    }

    /// Finds the sequence of the longest fetches that a read continues.
    fn longest_to(&self, arena: ArenaId, start: u64) -> Option<usize> {
        let all = self.sequences.iter().enumerate();
        let leading = all.filter(|(_, sequence)| sequence.leads_to(arena, start));
        Some(leading.max_by_key(|(_, sequence)| sequence.bytes)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARENA: ArenaId = ArenaId(7);
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_sequence_gets_more_with_each_step() {
        let mut sequences = ReadSequences::default();
        let (mut place, mut fetched) = (0, Vec::new());
        while place < 100 * MIB {
            let end = sequences.fetch_end(ARENA, place..place + 64 * KIB, 100 * MIB);
            fetched.push((end - place) / KIB);
            place = end;
        }
        let grows = [64, 256, 1_024, 4_096, 16_384];
        assert_eq!(fetched[..grows.len()], grows);
        assert!(fetched[grows.len()..fetched.len() - 1].iter().all(|kib| *kib == 16_384), "{fetched:?}");
        // The next object of the arena, and the next arena, are read as fast.
        assert_eq!(sequences.fetch_end(ARENA, place..place + KIB, 200 * MIB), place + 16 * MIB);
        assert_eq!(sequences.fetch_end(ArenaId(8), 4 * KIB..5 * KIB, 200 * MIB), 4 * KIB + 16 * MIB);
        assert_eq!(sequences.fetch_end(ArenaId(10), 0..KIB, 200 * MIB), KIB, "an arena was passed over");
    }

    #[test]
    fn scattered_reads_get_what_they_want() {
        let mut sequences = ReadSequences::default();
        for place in [90, 3, 50, 7, 8, 100, 1].map(|number| number * MIB) {
            assert_eq!(sequences.fetch_end(ARENA, place..place + KIB, 200 * MIB), place + KIB);
        }
        assert_eq!(sequences.fetch_end(ARENA, 0..40 * MIB, 200 * MIB), 40 * MIB, "all that is wanted");
        assert_eq!(sequences.fetch_end(ARENA, 150 * MIB..151 * MIB, 150 * MIB), 151 * MIB);
    }

    #[test]
    fn several_readers_have_a_sequence_each_and_small_gaps_end_none() {
        let mut sequences = ReadSequences::default();
        let mut places = [0, 40 * MIB, 90 * MIB];
        for step in 0..4 {
            for place in &mut places {
                let end = sequences.fetch_end(ARENA, *place..*place + 64 * KIB, 200 * MIB);
                assert_eq!(end - *place, 64 * KIB * GROWTH.pow(step));
                *place = end + 200 * KIB;
            }
        }
        for number in 0..1_000 {
            sequences.fetch_end(ArenaId(number), 0..KIB, MIB);
        }
        assert_eq!(sequences.sequences.len(), SEQUENCES_MAX);
    }
}

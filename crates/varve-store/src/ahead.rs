//! Reads that go through the log in its order are noticed, and the disk is asked to work ahead of them.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use varve_log::ArenaId;

/// How far the disk works ahead of a reader, in bytes.
const AHEAD_BYTES: u64 = 16 << 20;
/// Less than this is not worth a call.
const STEP_BYTES: u64 = 2 << 20;
/// Several hands read in turn: one may be this far behind another, or ahead of it.
const SLACK_BYTES: u64 = 8 << 20;

/// Where the last reads went, and what the disk has been told.
pub(crate) struct ReadAhead {
    arena_bytes: u64,
    last: Mutex<Option<Last>>,
}

#[derive(Clone, Copy)]
struct Last {
    arena: ArenaId,
    seen_end: u64,
    told_end: u64,
}

impl ReadAhead {
    pub(crate) fn new(arena_bytes: u64) -> Self {
        Self { arena_bytes, last: Mutex::new(None) }
    }

    /// Notes a read, and says what is worth bringing near because of it: ranges of bytes in arenas.
    pub(crate) fn note(&self, arena: ArenaId, read: Range<u64>) -> Vec<(ArenaId, Range<u64>)> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Last { arena, seen_end: read.end, told_end: read.end };
        let mut current = match *last {
            // A hand that has not left this arena yet.
            Some(previous) if arena.0.checked_add(1) == Some(previous.arena.0) => return Vec::new(),
            Some(previous) if previous.arena == arena && previous.is_near(&read) => {
                Last { seen_end: previous.seen_end.max(read.end), ..previous }
            }
            Some(previous)
                if previous.arena.0.checked_add(1) == Some(arena.0) && read.start <= SLACK_BYTES =>
            {
                let told_end = previous.told_end.saturating_sub(self.arena_bytes).max(read.end);
                Last { arena, seen_end: read.end, told_end }
            }
            _ => {
                *last = Some(fresh);
                return Vec::new();
            }
        };
        let from = current.told_end.max(current.seen_end);
        let to = current.seen_end.saturating_add(AHEAD_BYTES);
        let is_worth_it = to.saturating_sub(from) >= STEP_BYTES;
        if is_worth_it {
            current.told_end = to;
        }
        *last = Some(current);
        if is_worth_it { self.by_arena(arena, from..to) } else { Vec::new() }
    }

    /// A range that may go on in the next arena.
    fn by_arena(&self, arena: ArenaId, range: Range<u64>) -> Vec<(ArenaId, Range<u64>)> {
        let here = range.start..range.end.min(self.arena_bytes);
        let next = range.start.saturating_sub(self.arena_bytes)..range.end.saturating_sub(self.arena_bytes);
        let parts = [(arena, here), (ArenaId(arena.0.saturating_add(1)), next)];
        parts.into_iter().filter(|(_, part)| part.start < part.end).collect()
    }
}

impl Last {
    fn is_near(&self, read: &Range<u64>) -> bool {
        read.start.saturating_add(SLACK_BYTES) >= self.seen_end
            && read.start <= self.seen_end.saturating_add(SLACK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn note(ahead: &ReadAhead, arena: u64, mib: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let told = ahead.note(ArenaId(arena), mib.start * MIB..mib.end * MIB);
        told.into_iter().map(|(arena, range)| (arena.0, range.start / MIB..range.end / MIB)).collect()
    }

    #[test]
    fn reads_in_order_are_told_of_once() {
        let ahead = ReadAhead::new(64 * MIB);
        assert_eq!(note(&ahead, 0, 0..4), [], "one read is no order");
        assert_eq!(note(&ahead, 0, 4..8), [(0, 8..24)]);
        assert_eq!(note(&ahead, 0, 8..9), [], "too little is new");
        assert_eq!(note(&ahead, 0, 12..16), [(0, 24..32)], "a hand ahead of another");
        assert_eq!(note(&ahead, 0, 9..12), [], "and that other");
    }

    #[test]
    fn order_goes_on_in_the_next_arena() {
        let ahead = ReadAhead::new(64 * MIB);
        note(&ahead, 3, 50..54);
        assert_eq!(note(&ahead, 3, 54..58), [(3, 58..64), (4, 0..10)]);
        assert_eq!(note(&ahead, 4, 0..4), [(4, 10..20)]);
        assert_eq!(note(&ahead, 3, 60..64), [], "a hand that is late");
        assert_eq!(note(&ahead, 4, 4..8), [(4, 20..24)]);
    }

    #[test]
    fn reads_here_and_there_are_left_alone() {
        let ahead = ReadAhead::new(64 * MIB);
        for (arena, place) in [(0, 1), (9, 40), (2, 7), (2, 50), (2, 20), (0, 0)] {
            assert_eq!(note(&ahead, arena, place..place + 1), []);
        }
    }
}

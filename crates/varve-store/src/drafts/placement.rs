//! Assigns arenas to drafts in a by-value store. A block is named by its place, and gets its name
//! when it is put: long before the compressed size of its draft is known. So each draft gets an
//! arena when it begins, with room there as if none of its blocks could be compressed.
//!
//! Always true: every clump of an arena begins before the arena's limit, in whatever order drafts
//! become clumps.

use std::collections::BTreeMap;

use varve_block::{ClumpName, PlacedName, SESSION_MARK_BYTES, Score};
use varve_log::{ArenaId, ArenaMap};

/// The room for records other than clumps and their pages: marks, and pages that only carry a
/// ledger.
const SPARE_BYTES: u64 = 64 << 10;
/// The most bytes that a block takes besides its data: in its frame, in the clump's table, and in a
/// page.
const BLOCK_OVERHEAD_BYTES: u64 = 48;
/// The most bytes that a clump takes besides its blocks, with a page of its own.
const CLUMP_OVERHEAD_BYTES: u64 = 1 << 10;
/// The most blocks of a clump. Clumps whose blocks have fewer than `BLOCK_BYTES_MEAN_MIN` bytes on
/// average end early.
const CLUMP_BLOCKS_MAX: usize = 4096;
const BLOCK_BYTES_MEAN_MIN: usize = 256;
const CLUMP_BLOCKS_MIN: usize = 16;
/// The table of frames takes less than this share of a clump, even with the shortest frames and
/// blocks. The shortest frames aim at 8 KiB: two neighbouring ones hold more than that together,
/// and each costs a row and a count.
const FRAMES_SHARE: u64 = 96;

/// The name that a draft's clump will have, and the arena that it belongs in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AssignedPlace {
    arena: ArenaId,
    clump: ClumpName,
}

impl AssignedPlace {
    pub(crate) fn arena(&self) -> ArenaId {
        self.arena
    }

    /// Returns the score of the block with this number in the clump.
    pub(crate) fn score(&self, fingerprint: [u8; 8], slot: u16) -> Score {
        PlacedName { fingerprint, slot, clump: self.clump }.score()
    }
}

/// Assigns places to drafts.
#[derive(Debug)]
pub(crate) struct Placement {
    session: [u8; SESSION_MARK_BYTES],
    next_clump: u32,
    arena: ArenaId,
    arena_bytes: u64,
    /// The length of the arena in bytes.
    written: u64,
    /// For each draft that belongs in the arena and is not written yet, the most bytes that it may
    /// take.
    promised: BTreeMap<u64, u64>,
}

impl Placement {
    /// Assigns places in `arena`, which is `written` bytes long, and in the arenas after it.
    pub(crate) fn new(
        session: [u8; SESSION_MARK_BYTES],
        map: ArenaMap,
        (arena, written): (ArenaId, u64),
    ) -> Self {
        let arena_bytes = map.arena_bytes();
        Self { session, next_clump: 0, arena, arena_bytes, written, promised: BTreeMap::new() }
    }

    /// Returns true if the arena has room for one more draft of `draft_bytes`.
    pub(crate) fn has_room(&self, draft_bytes: usize) -> bool {
        let wanted = promise(draft_bytes);
        // Drafts may be written in any order. The last one to be written, whichever it is, must
        // still begin before the limit.
        let all = self.promised.values().sum::<u64>() + wanted;
        let least = self.promised.values().copied().min().map_or(wanted, |least| least.min(wanted));
        self.written + SPARE_BYTES + all - least < self.arena_bytes
    }

    /// Goes on to the next arena. No blocks may be added to drafts that belong in the current one.
    pub(crate) fn move_on(&mut self) {
        self.arena = ArenaId(self.arena.0 + 1);
        self.written = 0;
        self.promised.clear();
    }

    /// Returns a place for a draft; `None` when this session or the log has no more.
    pub(crate) fn give(&mut self, draft: u64, draft_bytes: usize) -> Option<AssignedPlace> {
        let clump = self.next_clump;
        self.next_clump = clump.checked_add(1)?;
        self.promised.insert(draft, promise(draft_bytes));
        let arena = u32::try_from(self.arena.0).ok()?;
        Some(AssignedPlace { arena: self.arena, clump: ClumpName { session: self.session, clump, arena } })
    }

    /// Records that a draft has been written.
    pub(crate) fn note_written(&mut self, draft: u64) {
        self.promised.remove(&draft);
    }

    /// Records the end of the log.
    pub(crate) fn note_end(&mut self, (arena, written): (ArenaId, u64)) {
        if arena == self.arena {
            self.written = written;
        } else if self.promised.is_empty() {
            (self.arena, self.written) = (arena, written);
        }
    }
}

/// Returns the most blocks of a draft of `draft_bytes`.
pub(crate) fn blocks_max(draft_bytes: usize) -> usize {
    (draft_bytes / BLOCK_BYTES_MEAN_MIN).clamp(CLUMP_BLOCKS_MIN, CLUMP_BLOCKS_MAX)
}

fn promise(draft_bytes: usize) -> u64 {
    let blocks = blocks_max(draft_bytes) as u64;
    let draft_bytes = draft_bytes as u64;
    draft_bytes + draft_bytes / FRAMES_SHARE + blocks * BLOCK_OVERHEAD_BYTES + CLUMP_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(written: u64) -> Placement {
        Placement::new([1; 6], ArenaMap::new(1 << 20).unwrap(), (ArenaId(3), written))
    }

    #[test]
    fn the_last_of_all_drafts_still_begins_before_the_limit() {
        let mut placement = placement(512);
        let mut homes = Vec::new();
        let mut draft = 0;
        while placement.has_room(100_000) {
            homes.push(placement.give(draft, 100_000).unwrap());
            draft += 1;
        }
        let names: std::collections::BTreeSet<_> = homes.iter().map(|home| home.clump).collect();
        assert_eq!(names.len(), homes.len(), "no name twice");
        assert!((2..=10).contains(&homes.len()), "{}", homes.len());
        // The worst case: nothing was compressed, and the largest drafts come first.
        assert!(512 + (homes.len() as u64 - 1) * promise(100_000) < 1 << 20);
        // All written drafts turned out to be small, so there is room again.
        for written in 0..draft {
            placement.note_written(written);
        }
        placement.note_end((ArenaId(3), 5000));
        assert!(placement.has_room(100_000));
    }

    #[test]
    fn an_arena_takes_a_draft_that_is_larger_than_it() {
        let mut placement = placement(512);
        assert!(placement.has_room(3 << 20));
        placement.give(7, 3 << 20).unwrap();
        assert!(!placement.has_room(10));
        placement.move_on();
        assert_eq!(placement.give(8, 10).unwrap().arena, ArenaId(4));
    }

    #[test]
    fn a_full_arena_takes_no_more() {
        let placement = placement(1 << 20);
        assert!(!placement.has_room(1));
    }

    #[test]
    fn what_moved_the_end_of_the_log_is_followed_when_nothing_is_promised() {
        let mut placement = placement(512);
        placement.note_end((ArenaId(9), 600));
        assert_eq!(placement.give(0, 10).unwrap().arena, ArenaId(9));
        placement.note_end((ArenaId(8), 700));
        assert_eq!(placement.give(1, 10).unwrap().arena, ArenaId(9), "that is an earlier one");
    }
}

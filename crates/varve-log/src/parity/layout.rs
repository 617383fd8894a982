//! The layout of shards in the arena and in the parity file.

use std::ops::Range;

use crate::parity::table::{BLOCK_CODES, PARITY_BLOCK_BYTES};

/// The length of each of the two headers of a parity file.
pub const PARITY_HEADER_BYTES: usize = 4096;

/// Neighbouring shards of one group. They have 1 MiB at the usual size, so that a disk with seeks
/// reads a group at half its speed.
const PIECE_SHARDS: u64 = 64;
const SHARD_BYTES_MIN: u32 = 4 << 10;
const SHARD_BYTES_MAX: u32 = 64 << 10;
/// Larger shards make the code faster, and increase the loss from one damaged place.
/// `docs/decisions/0005-parity.md` has the measurement.
const SHARD_BYTES_USUAL: u32 = 16 << 10;
/// The number of shards, including recovery shards, that a writer puts into a group.
const GROUP_SHARDS_GOAL: u64 = 6144;
/// The largest group, including recovery shards, that a reader accepts.
const GROUP_BYTES_MAX: u64 = 128 << 20;
const GROUP_COUNT_MAX: u32 = 1024;
/// The upper bound for the length of an arena's file: its limit, and the records that begin before
/// the limit.
const ARENA_FILE_BYTES_MAX: u64 = 1 << 35;

/// The number of recovery shards for a hundred data shards: 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParityPercent(u8);

impl ParityPercent {
    /// Returns `None` unless `percent` is from 1 to 100.
    #[must_use]
    pub fn new(percent: u8) -> Option<Self> {
        (1..=100).contains(&percent).then_some(Self(percent))
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}

/// The cut of an arena into shards and groups, and the offsets in its parity file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityLayout {
    pub(super) arena_bytes: u64,
    pub(super) shard_bytes: u32,
    pub(super) group_count: u32,
    pub(super) percent: ParityPercent,
}

impl ParityLayout {
    /// Chooses the layout for an arena's file of `arena_bytes`; `None` if no arena has that length.
    #[must_use]
    pub fn plan(arena_bytes: u64, percent: ParityPercent) -> Option<Self> {
        let group_shards_max = GROUP_SHARDS_GOAL * 100 / (100 + u64::from(percent.get()));
        let mut shard_bytes = SHARD_BYTES_MIN;
        while shard_bytes < SHARD_BYTES_USUAL
            && arena_bytes.div_ceil(u64::from(shard_bytes)) > group_shards_max
        {
            shard_bytes *= 2;
        }
        let pieces = arena_bytes.div_ceil(u64::from(shard_bytes)).div_ceil(PIECE_SHARDS);
        let group_count = pieces.div_ceil(group_shards_max / PIECE_SHARDS).max(1);
        Self::new(arena_bytes, shard_bytes, u32::try_from(group_count).ok()?, percent)
    }

    /// Makes the layout that a header describes; `None` if it is not valid, or would take too much
    /// memory.
    pub(super) fn new(
        arena_bytes: u64,
        shard_bytes: u32,
        group_count: u32,
        percent: ParityPercent,
    ) -> Option<Self> {
        let good_shard =
            shard_bytes.is_power_of_two() && (SHARD_BYTES_MIN..=SHARD_BYTES_MAX).contains(&shard_bytes);
        if !good_shard
            || !(1..=ARENA_FILE_BYTES_MAX).contains(&arena_bytes)
            || !(1..=GROUP_COUNT_MAX).contains(&group_count)
        {
            return None;
        }
        let layout = Self { arena_bytes, shard_bytes, group_count, percent };
        let pieces = layout.shard_count().div_ceil(PIECE_SHARDS);
        // The first group is the largest: it has at most one piece more than the last.
        let group_shards = layout.data_count(0) + layout.recovery_count(0);
        let fits = group_shards as u64 * u64::from(shard_bytes) <= GROUP_BYTES_MAX;
        (u64::from(group_count) <= pieces && fits).then_some(layout)
    }

    /// Returns the length of the arena's file.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Returns the number of recovery shards for a hundred data shards.
    #[must_use]
    pub fn percent(&self) -> ParityPercent {
        self.percent
    }

    /// Returns the length of a shard.
    #[must_use]
    pub fn shard_bytes(&self) -> usize {
        self.shard_bytes as usize
    }

    /// Returns the number of the arena's shards.
    #[must_use]
    pub fn shard_count(&self) -> u64 {
        self.arena_bytes.div_ceil(u64::from(self.shard_bytes))
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Returns the number of data shards in a group.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a group has at most 2^15 shards")]
    pub fn data_count(&self, group: u32) -> usize {
        let (group, groups) = (u64::from(group), u64::from(self.group_count));
        let (pieces, rest) = (self.shard_count() / PIECE_SHARDS, self.shard_count() % PIECE_SHARDS);
        let whole = pieces / groups + u64::from(group < pieces % groups);
        let last = if pieces % groups == group { rest } else { 0 };
        (whole * PIECE_SHARDS + last) as usize
    }

    /// Returns the number of recovery shards in a group.
    #[must_use]
    pub fn recovery_count(&self, group: u32) -> usize {
        (self.data_count(group) * usize::from(self.percent.get())).div_ceil(100)
    }

    /// Iterates over the parts of the arena that belong to a group, in the order of its shards.
    /// Each is at most a piece long.
    pub fn pieces(&self, group: u32) -> impl Iterator<Item = Range<u64>> + use<> {
        let Self { arena_bytes, shard_bytes, group_count, .. } = *self;
        let piece_bytes = PIECE_SHARDS * u64::from(shard_bytes);
        let starts = (u64::from(group)..).step_by(group_count as usize).map(move |piece| piece * piece_bytes);
        starts
            .take_while(move |start| *start < arena_bytes)
            .map(move |start| start..arena_bytes.min(start + piece_bytes))
    }

    /// Returns the group of the arena's shard `shard`, and the shard's number in the group.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the layout's bounds have been checked")]
    pub fn locate(&self, shard: u64) -> (u32, usize) {
        let (piece, rest) = (shard / PIECE_SHARDS, shard % PIECE_SHARDS);
        let groups = u64::from(self.group_count);
        ((piece % groups) as u32, (piece / groups * PIECE_SHARDS + rest) as usize)
    }

    /// Returns the number of blocks in a group's table.
    #[must_use]
    pub fn table_blocks(&self, group: u32) -> usize {
        (self.data_count(group) + self.recovery_count(group)).div_ceil(BLOCK_CODES)
    }

    /// Returns the offsets of the two copies of a group's table.
    #[must_use]
    pub fn tables(&self, group: u32) -> [u64; 2] {
        let first =
            PARITY_HEADER_BYTES as u64 + (0..group).map(|before| self.section_bytes(before)).sum::<u64>();
        let sections = (0..self.group_count).map(|group| self.section_bytes(group)).sum::<u64>();
        let again = (0..group).map(|before| self.table_bytes(before)).sum::<u64>();
        [first, PARITY_HEADER_BYTES as u64 + sections + again]
    }

    /// Returns the offset of a group's recovery shards.
    #[must_use]
    pub fn recovery(&self, group: u32) -> u64 {
        self.tables(group)[0] + self.table_bytes(group)
    }

    /// Returns the length of the parity file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let both = |group| self.section_bytes(group) + self.table_bytes(group);
        2 * PARITY_HEADER_BYTES as u64 + (0..self.group_count).map(both).sum::<u64>()
    }

    fn table_bytes(&self, group: u32) -> u64 {
        (self.table_blocks(group) * PARITY_BLOCK_BYTES) as u64
    }

    fn section_bytes(&self, group: u32) -> u64 {
        self.table_bytes(group) + self.recovery_count(group) as u64 * u64::from(self.shard_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percent(percent: u8) -> ParityPercent {
        ParityPercent::new(percent).unwrap()
    }

    #[test]
    fn the_sizes_of_arenas_lead_to_these_layouts() {
        let chosen = |arena_bytes, of| {
            let layout = ParityLayout::plan(arena_bytes, percent(of)).unwrap();
            (layout.shard_bytes(), layout.group_count(), layout.data_count(0), layout.recovery_count(0))
        };
        assert_eq!(chosen(1, 5), (4096, 1, 1, 1));
        assert_eq!(chosen(1 << 20, 5), (4096, 1, 256, 13));
        assert_eq!(chosen(64 << 20, 5), (16 << 10, 1, 4096, 205));
        assert_eq!(chosen(64 << 20, 100), (16 << 10, 2, 2048, 2048));
        assert_eq!(chosen(16 << 30, 5), (16 << 10, 181, 5824, 292));
    }

    #[test]
    fn nonsense_has_no_layout() {
        assert_eq!(ParityPercent::new(0), None);
        assert_eq!(ParityPercent::new(101), None);
        let new = |arena_bytes, shard_bytes, group_count| {
            ParityLayout::new(arena_bytes, shard_bytes, group_count, percent(5))
        };
        assert!(new(1 << 20, 4096, 4).is_some());
        assert_eq!(new(1 << 20, 4096, 5), None, "more groups than pieces");
        assert_eq!(new(1 << 20, 4096, 0), None);
        assert!(new(1 << 30, 4096, 1024).is_some());
        assert_eq!(new(1 << 30, 4096, 1025), None, "too many groups");
        assert_eq!(new(1 << 20, 4097, 1), None);
        assert_eq!(new(1 << 20, 2048, 1), None);
        assert_eq!(new(1 << 20, 128 << 10, 1), None);
        assert_eq!(new(0, 4096, 1), None);
        assert_eq!(new(1 << 30, 16 << 10, 1), None, "a group of 1 GiB");
        assert_eq!(new(u64::MAX, 64 << 10, u32::MAX), None);
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_shard_and_nothing_overlaps(
            arena_bytes in 1_u64..(600 << 20), of in 1_u8..=100, probe in any::<u64>(),
        ) {
            let layout = ParityLayout::plan(arena_bytes, percent(of)).unwrap();
            let shard_bytes = layout.shard_bytes() as u64;
            let (mut covered, mut shards, mut end) = (0, 0, PARITY_HEADER_BYTES as u64);
            for group in 0..layout.group_count() {
                let pieces: Vec<_> = layout.pieces(group).collect();
                covered += pieces.iter().map(|piece| piece.end - piece.start).sum::<u64>();
                let in_pieces = pieces.iter().map(|piece| (piece.end - piece.start).div_ceil(shard_bytes));
                prop_assert_eq!(in_pieces.sum::<u64>(), layout.data_count(group) as u64);
                shards += layout.data_count(group) as u64;
                prop_assert_eq!(layout.tables(group)[0], end);
                end = layout.recovery(group) + layout.recovery_count(group) as u64 * shard_bytes;
            }
            prop_assert_eq!(covered, arena_bytes);
            prop_assert_eq!(shards, layout.shard_count());
            prop_assert_eq!(layout.tables(0)[1], end);
            let shard = probe % layout.shard_count();
            let (group, number) = layout.locate(shard);
            let piece = layout.pieces(group).nth(number / 64).unwrap();
            prop_assert_eq!(piece.start + (number % 64) as u64 * shard_bytes, shard * shard_bytes);
        }
    }
}

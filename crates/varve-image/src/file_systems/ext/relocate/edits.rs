//! The blocks of metadata that change, with their checksums.

use std::collections::BTreeMap;
use std::ops::Range;

use varve_block::to_usize;

use super::super::ExtFileSystem;
use super::super::block_map::extent_block_checksum;
use super::super::groups::{locate, set_block_bitmap};
use super::super::inode::{ExtInode, HAS_HUGE_COUNT, MAP_BYTES, set_checksum};
use super::super::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, read_only, take_free_clusters};
use super::RelocationError;
use crate::bytes::fields::{put, u16_at, u32_at};
use crate::bytes::ranges::Ranges;

/// The limit on the changed metadata, because it is kept in memory.
const BYTES_MAX: usize = 256 << 20;
const MAP_AT: usize = 40;
const COUNT_AT: usize = 28;
const HIGH_COUNT_AT: usize = 116;

/// Changed blocks.
pub(super) struct Edits<'a> {
    files: &'a ExtFileSystem,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Edits<'a> {
    pub(super) fn new(files: &'a ExtFileSystem) -> Self {
        Self { files, blocks: BTreeMap::new() }
    }

    pub(super) fn into_blocks(self) -> BTreeMap<u64, Vec<u8>> {
        self.blocks
    }

    /// Adds a whole new block.
    pub(super) fn add(&mut self, block: u64, bytes: Vec<u8>) -> Result<(), RelocationError> {
        self.check_room()?;
        self.blocks.insert(block, bytes);
        Ok(())
    }

    fn check_room(&self) -> Result<(), RelocationError> {
        let block_bytes = to_usize(self.files.block_bytes());
        let max = BYTES_MAX.checked_div(block_bytes).unwrap_or(0);
        if self.blocks.len() >= max {
            return Err(RelocationError::TooLarge { what: "blocks of metadata", max });
        }
        Ok(())
    }

    /// Returns a block to be changed.
    pub(super) fn block(&mut self, block: u64) -> Result<&mut Vec<u8>, RelocationError> {
        if !self.blocks.contains_key(&block) {
            self.check_room()?;
            let bytes = self.files.metadata(block, || format!("metadata in block {block}"))?.to_vec();
            self.blocks.insert(block, bytes);
        }
        Ok(self.blocks.entry(block).or_default())
    }

    /// Changes the map of an inode, and adds `added` blocks to its count.
    pub(super) fn inode(
        &mut self,
        inode: &ExtInode,
        added: u64,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), RelocationError> {
        let files = self.files;
        let superblock = &files.superblock;
        let (block, start) = files.inode_place(inode.number)?;
        let end = start.saturating_add(usize::from(superblock.inode_bytes));
        let bytes = self.block(block)?.get_mut(start..end).unwrap_or_default();
        change(bytes.get_mut(MAP_AT..MAP_AT.saturating_add(MAP_BYTES)).unwrap_or_default());
        if added > 0 {
            let is_huge = superblock.has(read_only::HUGE_FILES);
            let sectors = u64::from(superblock.block_bytes >> 9);
            let unit = if is_huge && inode.flags() & HAS_HUGE_COUNT != 0 { 1 } else { sectors };
            let high = if is_huge { u64::from(u16_at(bytes, HIGH_COUNT_AT)) } else { 0 };
            let count = high << 32 | u64::from(u32_at(bytes, COUNT_AT));
            let [one, two, three, four, high, higher, ..] =
                count.saturating_add(added.saturating_mul(unit)).to_le_bytes();
            put(bytes, COUNT_AT, &[one, two, three, four]);
            if is_huge {
                put(bytes, HIGH_COUNT_AT, &[high, higher]);
            }
        }
        if superblock.has(read_only::METADATA_CHECKSUM) {
            set_checksum(inode.checksum_seed, bytes);
        }
        Ok(())
    }

    /// Sets the checksum of a changed block of an extent tree.
    pub(super) fn seal_extent_block(&mut self, inode: &ExtInode, block: u64) -> Result<(), RelocationError> {
        if self.files.has_checksums() {
            let bytes = self.block(block)?;
            let (at, code) = extent_block_checksum(inode, bytes);
            put(bytes, at, &code.to_le_bytes());
        }
        Ok(())
    }

    /// Marks blocks as used or as free in the bitmaps, with the counts of their groups.
    pub(super) fn mark(
        &mut self,
        used: &Ranges,
        freed: &Ranges,
        layout: &Ranges,
    ) -> Result<(), RelocationError> {
        let superblock = &self.files.superblock;
        for number in self.files.group_numbers() {
            let first = superblock.first_block_of_group(number);
            let all = first..first.saturating_add(superblock.blocks_of_group(number));
            let touched =
                |ranges: &Ranges| ranges.next_after(all.start).is_some_and(|range| range.start < all.end);
            if touched(used) || touched(freed) {
                self.mark_group(number, &all, [used, freed], layout)?;
            }
        }
        Ok(())
    }

    fn mark_group(
        &mut self,
        number: u32,
        all: &Range<u64>,
        [used, freed]: [&Ranges; 2],
        layout: &Ranges,
    ) -> Result<(), RelocationError> {
        let files = self.files;
        let superblock = &files.superblock;
        let group = files.group(number)?;
        let bitmap = self.block(group.block_bitmap)?;
        if group.has_no_block_bitmap() {
            bitmap.fill(0);
            set_bits(bitmap, all, layout, true);
            let present = all.end.saturating_sub(all.start);
            let end = (bitmap.len() as u64).saturating_mul(8);
            let padding: Ranges = std::iter::once(present..end).collect();
            set_bits(bitmap, &(0..end), &padding, true);
        }
        let taken = set_bits(bitmap, all, used, true);
        let given = set_bits(bitmap, all, freed, false);
        let covered = to_usize(superblock.clusters_per_group >> 3);
        let checksum = files.bitmap_checksum(bitmap.get(..covered).unwrap_or_default());
        let free_count = u64::from(group.free_count).saturating_add(given).saturating_sub(taken);
        let free_count = u32::try_from(free_count).unwrap_or(u32::MAX);
        let (block, at) = locate(superblock, number);
        let end = at.saturating_add(usize::from(superblock.descriptor_bytes));
        let descriptor = self.block(block)?.get_mut(at..end).unwrap_or_default();
        set_block_bitmap(superblock, number, descriptor, checksum, free_count);
        Ok(())
    }

    /// Counts that this many blocks are no longer free.
    pub(super) fn take_free(&mut self, count: u64) -> Result<(), RelocationError> {
        let superblock = &self.files.superblock;
        let block_bytes = u64::from(superblock.block_bytes).max(1);
        let start = to_usize(SUPERBLOCK_AT.checked_rem(block_bytes).unwrap_or(0));
        let block = self.block(SUPERBLOCK_AT.checked_div(block_bytes).unwrap_or(0))?;
        let bytes = block.get_mut(start..start.saturating_add(SUPERBLOCK_BYTES)).unwrap_or_default();
        take_free_clusters(superblock, bytes, count);
        Ok(())
    }
}

/// Sets the bits of the blocks of a group that are in `ranges`. Returns the number that changed.
fn set_bits(bitmap: &mut [u8], group: &Range<u64>, ranges: &Ranges, value: bool) -> u64 {
    let mut changed = 0_u64;
    let mut at = group.start;
    while at < group.end
        && let Some(range) = ranges.next_after(at).filter(|range| range.start < group.end)
    {
        let end = range.end.min(group.end);
        for block in range.start.max(at)..end {
            let bit = block.saturating_sub(group.start);
            let mask = 1_u8 << (bit & 7);
            let byte = bitmap.get_mut(to_usize(bit >> 3));
            if let Some(byte) = byte.filter(|byte| (**byte & mask != 0) != value) {
                *byte ^= mask;
                changed = changed.saturating_add(1);
            }
        }
        at = end;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bits_of_the_group_change() {
        let mut bitmap = vec![0b1000_0001, 0, 0];
        let ranges: Ranges = [90..102, 106..109, 115..140].into_iter().collect();
        assert_eq!(set_bits(&mut bitmap, &(100..120), &ranges, true), 1 + 3 + 5 - 1);
        assert_eq!(bitmap, [0b1100_0011, 0b1000_0001, 0b0000_1111]);
        assert_eq!(set_bits(&mut bitmap, &(100..120), &ranges, false), 2 + 3 + 5);
        assert_eq!(bitmap, [0, 0, 0]);
    }
}

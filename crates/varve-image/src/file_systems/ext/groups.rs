//! Group descriptors: the positions of the bitmaps and inodes of each group of blocks.

use super::superblock::{Superblock, incompatible, read_only};
use super::{ExtFileSystem, damaged};
use crate::bytes::crc::{crc16_from, crc32c_from};
use crate::bytes::fields::{put, u16_at, u32_at};
use crate::file_systems::file_system::FileSystemError;
use varve_block::to_usize;

const INODES_UNUSED: u16 = 0x1;
const BLOCKS_UNUSED: u16 = 0x2;
const FLAGS_AT: usize = 18;
const CHECKSUM_AT: usize = 30;
/// The lower and upper halves of the count of free clusters, and of the checksum of the block
/// bitmap.
const FREE_COUNT_AT: [usize; 2] = [12, 44];
const BITMAP_CHECKSUM_AT: [usize; 2] = [24, 56];

/// The descriptor of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockGroup {
    pub(super) number: u32,
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
    pub(super) block_bitmap_checksum: u32,
    pub(super) inode_bitmap_checksum: u32,
    /// In clusters.
    pub(super) free_count: u32,
    flags: u16,
}

impl BlockGroup {
    /// Returns true if its block bitmap was never written: only the layout itself uses blocks.
    pub(super) fn has_no_block_bitmap(&self) -> bool {
        self.flags & BLOCKS_UNUSED != 0
    }

    /// Returns true if its inode bitmap was never written: no inode is in use.
    pub(super) fn has_no_inodes(&self) -> bool {
        self.flags & INODES_UNUSED != 0
    }
}

/// Returns the block that has the descriptor of a group, and the offset within it.
pub(super) fn locate(superblock: &Superblock, group: u32) -> (u64, usize) {
    let block_bytes = superblock.block_bytes;
    let per_block = block_bytes.checked_div(u32::from(superblock.descriptor_bytes)).unwrap_or(1).max(1);
    let (index, place) =
        (group.checked_div(per_block).unwrap_or(0), group.checked_rem(per_block).unwrap_or(0));
    let at = to_usize(place).saturating_mul(usize::from(superblock.descriptor_bytes));
    // With blocks of 1 KiB the superblock is block 1, otherwise it is in block 0.
    let superblock_block = u64::from(block_bytes == 1024);
    if !superblock.needs(incompatible::META_GROUPS) || index < superblock.first_meta_group {
        return (superblock_block.saturating_add(1).saturating_add(u64::from(index)), at);
    }
    let first_group = index.saturating_mul(per_block);
    let mut block = superblock.first_block_of_group(first_group);
    if superblock.group_has_superblock(first_group) {
        block = block.saturating_add(1);
    }
    if block_bytes == 1024 && index == 0 && superblock.first_data_block == 0 {
        block = block.saturating_add(1);
    }
    (block, at)
}

/// Returns the number of blocks after a group's copy of the superblock that hold descriptors or are
/// reserved for them.
pub(super) fn descriptor_blocks(superblock: &Superblock, group: u32) -> u64 {
    let per_block = u64::from(superblock.block_bytes)
        .checked_div(u64::from(superblock.descriptor_bytes))
        .unwrap_or(1)
        .max(1);
    let all = superblock.group_count().div_ceil(per_block);
    let old = all.saturating_add(u64::from(superblock.reserved_descriptor_blocks));
    if !superblock.needs(incompatible::META_GROUPS) {
        return old;
    }
    let index = u64::from(group).checked_div(per_block).unwrap_or(0);
    if index < u64::from(superblock.first_meta_group) {
        return u64::from(superblock.first_meta_group);
    }
    // The first, second and last group of a meta group each have a copy of its single descriptor
    // block.
    let place = u64::from(group).checked_rem(per_block).unwrap_or(0);
    u64::from(place <= 1 || place == per_block.saturating_sub(1))
}

fn checksum(superblock: &Superblock, group: u32, bytes: &[u8]) -> Option<u16> {
    let (before, rest) = bytes.split_at_checked(CHECKSUM_AT)?;
    let after = rest.get(2..)?;
    if superblock.has(read_only::METADATA_CHECKSUM) {
        let code = crc32c_from(superblock.checksum_seed, &group.to_le_bytes());
        let code = crc32c_from(crc32c_from(crc32c_from(code, before), &[0, 0]), after);
        return Some(u16::from_le_bytes([code.to_le_bytes()[0], code.to_le_bytes()[1]]));
    }
    if superblock.has(read_only::GROUP_CHECKSUM) {
        let code = crc16_from(crc16_from(!0, &superblock.uuid), &group.to_le_bytes());
        return Some(crc16_from(crc16_from(code, before), after));
    }
    None
}

impl ExtFileSystem {
    /// Reads the descriptor of a group that exists.
    pub(super) fn group(&self, number: u32) -> Result<BlockGroup, FileSystemError> {
        let superblock = &self.superblock;
        let (block, at) = locate(superblock, number);
        let what = || format!("descriptor of group {number}");
        let block = self.metadata(block, what)?;
        let length = usize::from(superblock.descriptor_bytes);
        let end = at.saturating_add(length);
        let bytes = block.get(at..end).ok_or_else(|| damaged(what(), "it is cut off"))?;
        if let Some(code) = checksum(superblock, number, bytes)
            && code != u16_at(bytes, CHECKSUM_AT)
        {
            return Err(damaged(what(), "it does not match its checksum"));
        }
        let is_wide = length >= 64;
        let wide = |low: usize, high: usize| {
            let high = if is_wide { u64::from(u32_at(bytes, high)) } else { 0 };
            high << 32 | u64::from(u32_at(bytes, low))
        };
        let code = |[low, high]: [usize; 2]| {
            let high = if is_wide { u32::from(u16_at(bytes, high)) } else { 0 };
            high << 16 | u32::from(u16_at(bytes, low))
        };
        let has_flags = superblock.has(read_only::METADATA_CHECKSUM | read_only::GROUP_CHECKSUM);
        Ok(BlockGroup {
            number,
            block_bitmap: wide(0, 32),
            inode_bitmap: wide(4, 36),
            inode_table: wide(8, 40),
            block_bitmap_checksum: code(BITMAP_CHECKSUM_AT),
            inode_bitmap_checksum: code([26, 58]),
            free_count: code(FREE_COUNT_AT),
            flags: if has_flags { u16_at(bytes, FLAGS_AT) } else { 0 },
        })
    }

    /// Returns true if the checksum of a bitmap is correct. Descriptors of 32 bytes store only its
    /// lower half.
    pub(super) fn bitmap_matches(&self, bitmap: &[u8], recorded: u32) -> bool {
        if !self.superblock.has(read_only::METADATA_CHECKSUM) {
            return true;
        }
        let code = self.bitmap_checksum(bitmap);
        let mask = if self.superblock.descriptor_bytes >= 64 { u32::MAX } else { 0xffff };
        code & mask == recorded
    }

    /// Computes the checksum of the part of a bitmap that the file system uses.
    pub(super) fn bitmap_checksum(&self, bitmap: &[u8]) -> u32 {
        crc32c_from(self.superblock.checksum_seed, bitmap)
    }
}

/// Changes the descriptor of a group: its block bitmap exists and has this checksum, and this many
/// clusters are free. A descriptor without checksums has no place for the first two.
pub(super) fn set_block_bitmap(
    superblock: &Superblock,
    group: u32,
    descriptor: &mut [u8],
    bitmap_checksum: u32,
    free_count: u32,
) {
    let mut set = |[low_at, high_at]: [usize; 2], number: u32| {
        let [first, second, third, fourth] = number.to_le_bytes();
        put(descriptor, low_at, &[first, second]);
        if superblock.descriptor_bytes >= 64 {
            put(descriptor, high_at, &[third, fourth]);
        }
    };
    set(FREE_COUNT_AT, free_count);
    if superblock.has(read_only::METADATA_CHECKSUM) {
        set(BITMAP_CHECKSUM_AT, bitmap_checksum);
    }
    if superblock.has(read_only::METADATA_CHECKSUM | read_only::GROUP_CHECKSUM) {
        let flags = u16_at(descriptor, FLAGS_AT) & !BLOCKS_UNUSED;
        put(descriptor, FLAGS_AT, &flags.to_le_bytes());
    }
    if let Some(code) = checksum(superblock, group, descriptor) {
        put(descriptor, CHECKSUM_AT, &code.to_le_bytes());
    }
}

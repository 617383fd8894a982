//! Decides if an ext file system is live, or the remnant of one that was overwritten: a superblock
//! alone proves little.
//!
//! Each check reads something that a live file system must have and that new content overwrites
//! sooner or later: the root folder, the copies of the superblock, and the bitmaps with all their
//! checksums and counts.

use std::ops::Range;

use varve_block::to_usize;

use super::groups::BlockGroup;
use super::superblock::{SUPERBLOCK_BYTES, compatible, incompatible, read_only};
use super::{ExtFileSystem, inode};
use crate::bytes::fields::{array_at, has_at, u16_at, u32_at};
use crate::bytes::ranges::Ranges;
use crate::file_systems::file_system::{FileKind, FileSystemError};

/// Old file systems have a copy of the superblock in every group.
const COPY_COUNT_MAX: usize = 64;
const MAGIC: u16 = 0xef53;

fn said(error: FileSystemError) -> String {
    error.to_string()
}

impl ExtFileSystem {
    /// Checks that the superblock, its copies and the root folder belong together, and that the
    /// volume contains all blocks.
    ///
    /// # Errors
    /// The failed check, in words.
    pub(crate) fn check_live(&self) -> Result<(), String> {
        let superblock = &self.superblock;
        if self.is_by_copy {
            return Err("its first superblock is damaged".into());
        }
        if let Some(problem) = self.recovery_problem() {
            return Err(format!("its journal cannot be read completely: {problem}"));
        }
        let bytes = superblock.block_count.checked_mul(u64::from(superblock.block_bytes));
        if bytes.is_none_or(|bytes| bytes > self.volume.size()) {
            return Err("it is larger than its volume".into());
        }
        self.check_root()?;
        self.check_copies()
    }

    fn check_root(&self) -> Result<(), String> {
        let root = self.inode(inode::ROOT).map_err(said)?;
        if root.kind() != FileKind::Folder || root.links() < 2 {
            return Err("its root is not a folder".into());
        }
        let number = inode::ROOT.to_le_bytes();
        let is_sound = if root.has_inline_data() {
            has_at(&self.inline_data(&root).map_err(said)?, 0, &number)
        } else {
            let first = self.run_at(&root, 0).map_err(said)?.data();
            let block = self.metadata(first.ok_or("its root folder is empty")?, || "root folder".into());
            let block = block.map_err(said)?;
            self.check_folder_block(&root, 0, &block).map_err(said)?;
            // The root is its own parent, as its first two entries show. Each has 12 bytes or more.
            has_at(&block, 0, &number)
                && has_at(&block, 4, &[12, 0, 1])
                && has_at(&block, 8, b".\0")
                && has_at(&block, 12, &number)
                && has_at(&block, 18, &[2])
                && has_at(&block, 20, b"..")
        };
        if is_sound { Ok(()) } else { Err("its root folder is malformed".into()) }
    }

    fn check_copies(&self) -> Result<(), String> {
        let superblock = &self.superblock;
        let groups = self.group_numbers().skip(1).filter(|group| superblock.group_has_superblock(*group));
        for group in groups.take(COPY_COUNT_MAX) {
            let block = superblock.first_block_of_group(group);
            let place = block.saturating_mul(u64::from(superblock.block_bytes));
            let mut copy = [0; SUPERBLOCK_BYTES];
            self.volume.read_at(place, &mut copy).map_err(|error| {
                format!("the copy of its superblock in group {group} cannot be read: {error}")
            })?;
            let is_own = u16_at(&copy, 0x38) == MAGIC && array_at::<16>(&copy, 0x68) == superblock.uuid;
            if !is_own {
                return Err(format!(
                    "the copy of its superblock in group {group} belongs to another file system"
                ));
            }
        }
        Ok(())
    }

    /// Checks that the bitmaps mark all these bytes as in use.
    ///
    /// # Errors
    /// The failed check, in words.
    pub(crate) fn check_in_use(&self, places: &[Range<u64>]) -> Result<(), String> {
        let superblock = &self.superblock;
        let block_bytes = u64::from(superblock.block_bytes).max(1);
        let blocks: Ranges = places
            .iter()
            .map(|place| place.start.checked_div(block_bytes).unwrap_or(0)..place.end.div_ceil(block_bytes))
            .collect();
        let mut at = 0;
        while let Some(next) = blocks.next_after(at) {
            let block = next.start.max(at);
            let inside = block.saturating_sub(superblock.first_data_block);
            let number = inside.checked_div(superblock.blocks_per_group).unwrap_or(0);
            let number = u32::try_from(number).map_err(|_| "it has blocks beyond its groups".to_owned())?;
            let group = self.group(number).map_err(said)?;
            let first = superblock.first_block_of_group(number);
            let end = first.saturating_add(superblock.blocks_of_group(number)).min(next.end);
            let mut free = Ranges::default();
            self.add_free(&group, &mut free).map_err(said)?;
            if end <= block || free.next_after(block).is_some_and(|range| range.start < end) {
                return Err(format!(
                    "the block bitmap of group {number} does not mark all of its blocks as used"
                ));
            }
            at = end;
        }
        Ok(())
    }

    /// Checks that all bitmaps and free counts agree with each other and with the layout.
    ///
    /// # Errors
    /// The disagreement, in words.
    pub(crate) fn check_free_counts(&self) -> Result<(), String> {
        let superblock = &self.superblock;
        let mut layout = Ranges::default();
        let mut groups = Vec::new();
        for number in self.group_numbers() {
            let group = self.group(number).map_err(said)?;
            self.add_exact_layout(&group, &mut layout);
            groups.push((group.number, group.free_count, group.has_no_block_bitmap()));
            self.check_inode_bitmap(&group)?;
        }
        for (number, free_count, has_no_bitmap) in groups {
            let first = superblock.first_block_of_group(number);
            let all = first..first.saturating_add(superblock.blocks_of_group(number));
            let mut free = Ranges::default();
            self.add_free(&self.group(number).map_err(said)?, &mut free).map_err(said)?;
            let without_layout = free.without(&layout);
            if !has_no_bitmap && without_layout != free {
                return Err(format!(
                    "the block bitmap of group {number} marks the group's own tables as free"
                ));
            }
            // A group without a bitmap has no files. With bigalloc, the layout may use only a part
            // of a cluster, so the count is uncertain there.
            let is_known = !has_no_bitmap || superblock.cluster_blocks == 1;
            let counted = without_layout
                .iter()
                .map(|run| run.end.min(all.end).saturating_sub(run.start))
                .map(|blocks| blocks.div_ceil(superblock.cluster_blocks.max(1)))
                .fold(0, u64::saturating_add);
            if is_known && counted != u64::from(free_count) {
                return Err(format!(
                    "group {number} counts {free_count} free blocks, but its block bitmap has {counted}"
                ));
            }
        }
        Ok(())
    }

    fn check_inode_bitmap(&self, group: &BlockGroup) -> Result<(), String> {
        if group.has_no_inodes() || !self.superblock.has(read_only::METADATA_CHECKSUM) {
            return Ok(());
        }
        let what = || format!("inode bitmap of group {}", group.number);
        let bitmap = self.metadata(group.inode_bitmap, what).map_err(said)?;
        let covered = to_usize(self.superblock.inodes_per_group >> 3);
        let covered = bitmap.get(..covered).unwrap_or_default();
        if self.bitmap_matches(covered, group.inode_bitmap_checksum) {
            return Ok(());
        }
        Err(format!("the {} does not match its checksum", what()))
    }

    /// Adds exactly the blocks that a group's tables and copies occupy.
    pub(super) fn add_exact_layout(&self, group: &BlockGroup, layout: &mut Ranges) {
        let superblock = &self.superblock;
        // With blocks of 1 KiB the boot block is a block of its own, and may be part of the first
        // group.
        let has_boot_block = superblock.block_bytes == 1024 && superblock.first_data_block == 0;
        self.add_layout_with(group, u64::from(group.number == 0 && has_boot_block), layout);
    }

    /// Returns true if the newest changes are in the fast-commit area of the journal, which this
    /// reader does not replay.
    #[must_use]
    pub fn has_fast_commits(&self) -> bool {
        self.has_fast_commits
    }

    /// Returns the name of its generation: ext2, ext3 or ext4.
    pub(crate) fn age(&self) -> &'static str {
        let is_new =
            self.superblock.needs(incompatible::EXTENTS | incompatible::WIDE | incompatible::FLEX_GROUPS);
        match (is_new, self.superblock.compatible & compatible::JOURNAL != 0) {
            (true, _) => "ext4",
            (false, true) => "ext3",
            (false, false) => "ext2",
        }
    }
}

/// Returns true if the first block of a fast-commit area begins one for this transaction: a head of
/// 8 bytes, of which the last four are the transaction's number.
pub(super) fn begins_fast_commit(block: &[u8], sequence: u32) -> bool {
    const HEAD: u16 = 9;
    u16_at(block, 0) == HEAD && u16_at(block, 2) == 8 && u32_at(block, 8) == sequence
}

//! Free space: the bitmaps of blocks and of inodes.

use std::ops::Range;

use varve_block::to_usize;

use super::groups::{BlockGroup, descriptor_blocks};
use super::{ExtFileSystem, damaged};
use crate::bytes::ranges::Ranges;
use crate::file_systems::file_system::FileSystemError;

impl ExtFileSystem {
    /// Returns the blocks that the bitmaps mark as free, in ascending order. The bitmaps are
    /// certain to be correct only if the file system is [clean](Self::is_clean).
    ///
    /// # Errors
    ///
    /// [`FileSystemError`] if any bitmap is damaged: then no block is reported as free.
    pub fn free_blocks(&self) -> Result<Vec<Range<u64>>, FileSystemError> {
        let mut free = Ranges::default();
        let mut layout = Ranges::default();
        for number in self.group_numbers() {
            let group = self.group(number)?;
            self.add_layout(&group, &mut layout);
            self.add_free(&group, &mut free)?;
        }
        // A bitmap that was never written does not contain the blocks of the layout itself.
        Ok(free.without(&layout).into_iter().collect())
    }

    pub(super) fn group_numbers(&self) -> Range<u32> {
        0..u32::try_from(self.superblock.group_count()).unwrap_or(u32::MAX)
    }

    /// Adds the blocks of a group's own tables, wherever they lie.
    fn add_layout(&self, group: &BlockGroup, layout: &mut Ranges) {
        // Adds one block more than necessary: the boot block shifts the first group on file systems
        // with blocks of 1 KiB.
        self.add_layout_with(group, u64::from(group.number == 0), layout);
    }

    /// Does the same with a given number of `boot` blocks before the group's copy of the
    /// superblock.
    pub(super) fn add_layout_with(&self, group: &BlockGroup, boot: u64, layout: &mut Ranges) {
        let superblock = &self.superblock;
        let mut add = |start: u64, count: u64| layout.add(start..start.saturating_add(count));
        let table_bytes =
            u64::from(superblock.inodes_per_group).saturating_mul(u64::from(superblock.inode_bytes));
        add(group.block_bitmap, 1);
        add(group.inode_bitmap, 1);
        add(group.inode_table, table_bytes.div_ceil(u64::from(superblock.block_bytes).max(1)));
        let first = superblock.first_block_of_group(group.number);
        let has_superblock = u64::from(superblock.group_has_superblock(group.number));
        let descriptors = descriptor_blocks(superblock, group.number);
        if has_superblock == 1 || superblock.needs(super::superblock::incompatible::META_GROUPS) {
            add(first, has_superblock.saturating_add(descriptors).saturating_add(boot));
        }
    }

    pub(super) fn add_free(&self, group: &BlockGroup, free: &mut Ranges) -> Result<(), FileSystemError> {
        let superblock = &self.superblock;
        let first = superblock.first_block_of_group(group.number);
        let block_count = superblock.blocks_of_group(group.number);
        if group.has_no_block_bitmap() {
            free.add(first..first.saturating_add(block_count));
            return Ok(());
        }
        let what = || format!("block bitmap of group {}", group.number);
        let bitmap = self.metadata(group.block_bitmap, what)?;
        let covered = to_usize(superblock.clusters_per_group >> 3);
        let covered = bitmap.get(..covered).unwrap_or_default();
        if !self.bitmap_matches(covered, group.block_bitmap_checksum) {
            return Err(damaged(what(), "it does not match its checksum"));
        }
        let clusters = block_count.div_ceil(superblock.cluster_blocks.max(1));
        for run in zero_runs(covered, clusters) {
            let block = |cluster: u64| {
                let inside = cluster.saturating_mul(superblock.cluster_blocks).min(block_count);
                first.saturating_add(inside)
            };
            free.add(block(run.start)..block(run.end));
        }
        Ok(())
    }

    /// Calls `visit` with the number of every inode that is in use, in ascending order.
    pub(super) fn for_each_inode_in_use(
        &self,
        mut visit: impl FnMut(u32) -> Result<(), FileSystemError>,
    ) -> Result<(), FileSystemError> {
        let per_group = self.superblock.inodes_per_group;
        for number in self.group_numbers() {
            let group = self.group(number)?;
            if group.has_no_inodes() {
                continue;
            }
            let what = || format!("inode bitmap of group {number}");
            let bitmap = self.metadata(group.inode_bitmap, what)?;
            let covered = bitmap.get(..to_usize(per_group >> 3)).unwrap_or_default();
            if !self.bitmap_matches(covered, group.inode_bitmap_checksum) {
                return Err(damaged(what(), "it does not match its checksum"));
            }
            let first = number.saturating_mul(per_group).saturating_add(1);
            for (inode, bit) in (first..=self.superblock.inode_count).zip(bits(covered)) {
                if bit {
                    visit(inode)?;
                }
            }
        }
        Ok(())
    }
}

fn bits(bitmap: &[u8]) -> impl Iterator<Item = bool> {
    bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1))
}

/// Returns the runs of zeros among the first `count` bits.
fn zero_runs(bitmap: &[u8], count: u64) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    let mut start = None;
    let mut end = 0;
    for (place, bit) in (0..count).zip(bits(bitmap)) {
        match (bit, start) {
            (false, None) => start = Some(place),
            (true, Some(from)) => {
                runs.push(from..place);
                start = None;
            }
            _ => {}
        }
        end = place.saturating_add(1);
    }
    runs.extend(start.map(|from| from..end));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros_are_found() {
        assert_eq!(zero_runs(&[0b1111_0000, 0b0000_0001], 16), [0..4, 9..16]);
        assert_eq!(zero_runs(&[0b1111_0000, 0b0000_0001], 11), [0..4, 9..11]);
        assert_eq!(zero_runs(&[0xff], 8), []);
        assert_eq!(
            zero_runs(&[0, 255], 100),
            std::iter::once(0..8).collect::<Vec<_>>(),
            "what the bitmap lacks is not known"
        );
    }
}

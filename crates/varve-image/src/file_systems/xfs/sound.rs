//! Decides if an XFS file system is live, or the remnant of one that was overwritten, and which of
//! its blocks are free: a superblock alone proves little.
//!
//! Each check reads something that a live file system must have and that new content overwrites
//! sooner or later: the root folder, and the headers and trees of all groups. Every group has two
//! trees of its free blocks, which must be the same, and up to four counts of them.

use std::ops::{ControlFlow, Range};

use super::XfsFiles;
use super::inode::XfsFork;
use crate::bytes::fields::{array_at, be32_at, be64_at, has_at, u8_at};
use crate::bytes::ranges::Ranges;
use crate::file_systems::file_system::{FileKind, FileSystemError};

fn said(error: FileSystemError) -> String {
    error.to_string()
}

impl XfsFiles {
    /// Returns the free ranges of the volume, in bytes, if all evidence agrees.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(crate) fn proven_free(&self) -> Result<Vec<Range<u64>>, String> {
        self.check_live()?;
        let superblock = &self.superblock;
        let block_bytes = u64::from(superblock.block_bytes);
        let mut free = Ranges::default();
        let mut unused_count = 0_u64;
        for number in 0..superblock.group_count {
            let group = self.group(number).map_err(said)?;
            group.check()?;
            let first = u64::from(number).saturating_mul(superblock.group_blocks.into());
            free.extend(
                group
                    .free
                    .iter()
                    .map(|extent| first.saturating_add(extent.start)..first.saturating_add(extent.end)),
            );
            unused_count = unused_count.saturating_add(group.unused_count);
        }
        if superblock.has_lazy_counts && unused_count != superblock.free_blocks {
            return Err(format!(
                "its groups have {unused_count} unused blocks, but its superblock counts {}",
                superblock.free_blocks
            ));
        }
        let log = superblock.positions(superblock.log_start, superblock.log_blocks.into());
        let log: Ranges = log.into_iter().collect();
        if log.is_empty() || free.without(&log) != free {
            return Err("its log lies in free blocks".into());
        }
        let to_bytes =
            |run: Range<u64>| run.start.saturating_mul(block_bytes)..run.end.saturating_mul(block_bytes);
        Ok(free.iter().map(to_bytes).collect())
    }

    /// Checks that the volume was left in order, contains all blocks, and has a root folder and
    /// copies of the superblock that belong to it.
    ///
    /// # Errors
    /// The failed check, in words.
    fn check_live(&self) -> Result<(), String> {
        let superblock = &self.superblock;
        if self.unmounted_at.is_none() {
            return Err("the file system was not unmounted cleanly".into());
        }
        if let Some(doubt) = superblock.doubt() {
            return Err(doubt.into());
        }
        if superblock.has_unknown_read_only() {
            return Err("it has a feature that is not supported".into());
        }
        let bytes = superblock.block_count.checked_mul(superblock.block_bytes.into());
        if bytes.is_none_or(|bytes| bytes > self.volume.size()) {
            return Err("it is larger than its volume".into());
        }
        self.check_root()?;
        for group in 1..superblock.group_count {
            let block = superblock.position_in_group(group, 0).unwrap_or(0);
            let copy = self.block_at(block, || format!("copy of the superblock in group {group}"));
            let copy = copy.map_err(said)?;
            if !has_at(&copy, 0, b"XFSB") || array_at::<16>(&copy, 32) != superblock.volume_uuid {
                return Err(format!(
                    "the copy of its superblock in group {group} belongs to another file system"
                ));
            }
        }
        Ok(())
    }

    fn check_root(&self) -> Result<(), String> {
        let number = self.superblock.root;
        let root = self.inode(number).map_err(said)?;
        let malformed = || "its root folder is malformed".to_owned();
        if root.kind() != FileKind::Folder {
            return Err("its root is not a folder".into());
        }
        // Each folder names its parent; that of the root is the root.
        let parent = if root.is_local(XfsFork::Content).map_err(said)? {
            let bytes = root.fork(XfsFork::Content);
            if u8_at(bytes, 1) > 0 { be64_at(bytes, 2) } else { be32_at(bytes, 2).into() }
        } else {
            let block = self.names_block(&root, 0).map_err(said)?;
            let (block, _) = block.ok_or_else(malformed)?;
            // The second entry, after one of 16 bytes.
            let second = self.first_entry_at().saturating_add(16);
            if !has_at(&block, second.saturating_add(8), b"\x02..") {
                return Err(malformed());
            }
            be64_at(&block, second)
        };
        if parent != number {
            return Err(malformed());
        }
        self.visit_children(&root, 0, &mut |_| ControlFlow::Continue(())).map_err(said)
    }
}

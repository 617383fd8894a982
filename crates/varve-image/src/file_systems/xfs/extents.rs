//! Extents: which blocks hold which part of a file, of a folder, or of attributes.
//!
//! An extent has 128 bits: 1 that it was never written, 54 of the first block in the file, 52 of
//! the first block of the volume, 21 of the number of blocks. Up to a few dozen lie in the inode.
//! More of them are in a tree of blocks:
//!
//! | part               | in the inode | in a block (version 4, 5)                               |
//! |--------------------|--------------|---------------------------------------------------------|
//! | level, and records | 0, 2         | 4, 6 (after a magic number)                             |
//! | records            | from 4       | from 24, 72: extents at level 0, otherwise first blocks |
//! | pointers           | half-way     | half-way: after the room for as many first blocks as fit |

use super::inode::{XfsFork, XfsForm, XfsInode, what};
use super::seal::XfsBlockKind;
use super::{XfsFiles, damaged};
use crate::bytes::fields::{be16_at, be64_at};
use crate::file_systems::file_system::FileSystemError;
use varve_block::to_usize;

const EXTENT_BYTES: usize = 16;
/// The bytes of the header of a block, in version 4 and 5.
const HEAD_BYTES: [usize; 2] = [24, 72];
/// The bytes of the header of the root in an inode.
const ROOT_HEAD_BYTES: usize = 4;
/// No tree is higher, since each level has many times as many blocks as the one above.
const LEVELS_MAX: u16 = 16;
/// The first block that no file has: 54 bits count blocks.
const FILE_END: u64 = 1 << 54;

const TREE_BLOCK: XfsBlockKind =
    XfsBlockKind { name: "a block of its extent tree", magics: [0x424d_4150, 0x424d_4133] };

/// Blocks of a file that follow each other on the volume, or that are on no disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct XfsRun {
    /// The first block of the file.
    pub(super) logical: u64,
    pub(super) count: u64,
    /// The first block of the volume; `None` if these blocks are a hole or were never written.
    pub(super) block: Option<u64>,
}

/// An extent as stored.
#[derive(Debug, Clone, Copy)]
struct XfsExtent {
    logical: u64,
    count: u64,
    block: u64,
    is_written: bool,
}

impl XfsExtent {
    fn parse(bytes: &[u8; EXTENT_BYTES]) -> Self {
        let (high, low) = (be64_at(bytes, 0), be64_at(bytes, 8));
        Self {
            logical: high >> 9 & (FILE_END - 1),
            count: low & 0x1f_ffff,
            block: (high & 0x1ff) << 43 | low >> 21,
            is_written: high >> 63 == 0,
        }
    }

    fn end(&self) -> u64 {
        self.logical.saturating_add(self.count)
    }
}

/// Returns the run at `logical` according to a sorted list of extents that covers everything up to
/// `end`; `None` if the list is not sorted.
fn run_in_list(list: &[[u8; EXTENT_BYTES]], logical: u64, end: u64) -> Option<XfsRun> {
    let after = list.partition_point(|extent| XfsExtent::parse(extent).logical <= logical);
    let parsed = |at: usize| list.get(at).map(XfsExtent::parse);
    let next = parsed(after).map_or(end, |next| next.logical.min(end));
    match after.checked_sub(1).and_then(parsed).filter(|extent| extent.end() > logical) {
        Some(extent) => {
            let inside = logical.saturating_sub(extent.logical);
            let count = extent.end().min(end).saturating_sub(logical).max(1);
            let block = extent.is_written.then(|| extent.block.saturating_add(inside));
            Some(XfsRun { logical, count, block })
        }
        None => {
            (next > logical).then(|| XfsRun { logical, count: next.saturating_sub(logical), block: None })
        }
    }
}

/// The records of a block of the tree, or of its root.
struct TreeNode<'a> {
    level: u16,
    count: usize,
    /// The bytes after the header.
    room: &'a [u8],
}

impl TreeNode<'_> {
    /// Returns the child that has the extents at `logical`, and the first block after those of the
    /// child; `None` if there is no child, or if they are not sorted.
    fn child(&self, logical: u64, end: u64) -> Option<(u64, u64)> {
        let most = self.room.len().checked_div(16)?;
        let (firsts, pointers) = self.room.split_at_checked(most.saturating_mul(8))?;
        let (firsts, _) = firsts.as_chunks::<8>();
        let firsts = firsts.get(..self.count)?;
        let after = firsts.partition_point(|first| u64::from_be_bytes(*first) <= logical);
        let next = firsts.get(after).map_or(end, |next| u64::from_be_bytes(*next).min(end));
        if next <= logical || firsts.is_empty() {
            return None;
        }
        // Blocks before those of the first child are a hole, which the first child shows.
        let at = after.saturating_sub(1);
        Some((be64_at(pointers, at.saturating_mul(8)), next))
    }
}

impl XfsFiles {
    /// Returns the run of a fork that begins at block `logical`. A hole may be returned in several
    /// parts.
    pub(super) fn run_at(
        &self,
        inode: &XfsInode,
        fork: XfsFork,
        logical: u64,
    ) -> Result<XfsRun, FileSystemError> {
        let bytes = inode.fork(fork);
        match inode.form(fork)? {
            Some(XfsForm::Extents) => {
                let (list, _) = bytes.as_chunks::<EXTENT_BYTES>();
                let count = to_usize(inode.extent_count(fork));
                let list = list
                    .get(..count)
                    .ok_or_else(|| damaged(what(inode.number), "its extents exceed the room in the inode"))?;
                run_in_list(list, logical, FILE_END)
                    .ok_or_else(|| damaged(what(inode.number), "its extents are not in order"))
            }
            Some(XfsForm::Tree) => self.run_in_tree(inode, bytes, logical),
            _ => Err(damaged(what(inode.number), "it has no extents")),
        }
    }

    fn run_in_tree(&self, inode: &XfsInode, root: &[u8], logical: u64) -> Result<XfsRun, FileSystemError> {
        let wrong = |problem: &str| damaged(what(inode.number), problem);
        let head_bytes = HEAD_BYTES.get(usize::from(self.superblock.has_checksums)).copied().unwrap_or(0);
        let root = TreeNode {
            level: be16_at(root, 0),
            count: be16_at(root, 2).into(),
            room: root.get(ROOT_HEAD_BYTES..).unwrap_or_default(),
        };
        if root.level == 0 || root.level > LEVELS_MAX {
            return Err(wrong("the root of its extent tree has an impossible level"));
        }
        let no_child = || wrong("a block of its extent tree has no children in order");
        let (mut level, (mut block, mut end)) =
            (root.level, root.child(logical, FILE_END).ok_or_else(no_child)?);
        loop {
            let bytes = self.sealed_block(block, &TREE_BLOCK, || what(inode.number))?;
            let node = TreeNode {
                level: be16_at(&bytes, 4),
                count: be16_at(&bytes, 6).into(),
                room: bytes.get(head_bytes..).unwrap_or_default(),
            };
            level = level.saturating_sub(1);
            if node.level != level {
                return Err(wrong("a block of its extent tree has an impossible level"));
            }
            if level == 0 {
                let (list, _) = node.room.as_chunks::<EXTENT_BYTES>();
                let list = list.get(..node.count);
                let list = list.ok_or_else(|| wrong("the extents exceed a block of its extent tree"))?;
                return run_in_list(list, logical, end).ok_or_else(|| wrong("its extents are not in order"));
            }
            (block, end) = node.child(logical, end).ok_or_else(no_child)?;
        }
    }

    /// Passes all runs of a fork that were written, in its order, up to block `end`.
    pub(super) fn for_each_run(
        &self,
        inode: &XfsInode,
        fork: XfsFork,
        end: u64,
        mut visit: impl FnMut(XfsRun) -> Result<(), FileSystemError>,
    ) -> Result<(), FileSystemError> {
        let (mut logical, mut found) = (0_u64, 0_u64);
        while logical < end.min(FILE_END) {
            let run = self.run_at(inode, fork, logical)?;
            if run.block.is_some() {
                found = found.saturating_add(run.count);
                self.check_amount(inode, found)?;
                visit(run)?;
            }
            logical = logical.saturating_add(run.count);
        }
        Ok(())
    }

    /// Checks a number of blocks that were found in one file. A damaged map may name the same
    /// blocks again and again.
    pub(super) fn check_amount(&self, inode: &XfsInode, blocks: u64) -> Result<(), FileSystemError> {
        // Files that share blocks with themselves may have more blocks than the volume.
        if blocks > self.superblock.block_count.max(1 << 32) {
            return Err(damaged(what(inode.number), "it has more blocks than the file system"));
        }
        Ok(())
    }
}

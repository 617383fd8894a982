//! Folders: names in the inode, or in blocks. The blocks of names lie in the first 32 GiB of the
//! folder, its index behind them. A folder of one block has a small index at the end of the block.
//!
//! | in the inode | field                          | in a block, from     | field               |
//! |-------------:|--------------------------------|---------------------:|---------------------|
//! |            0 | entries                        | 16, 64 (version 4, 5) | entries            |
//! |            1 | entries with long inode numbers | 8 before the end    | index entries of a folder of one block |
//! |      2, of 4 or 8 bytes | the parent          |                      |                     |
//!
//! An entry in a block has an inode number, the length of the name, the name, its kind (if the file
//! system has kinds), and its own position in the last two bytes. Free space begins with `0xffff`
//! and its length.

use std::ops::ControlFlow;

use varve_block::to_usize;

use super::inode::{XfsFork, XfsForm, XfsInode, what};
use super::seal::XfsBlockKind;
use super::{XfsFiles, damaged};
use crate::bytes::fields::{array_at, be16_at, be32_at, be64_at, u8_at};
use crate::file_systems::bookmarks::{Bookmark, ChildCounter};
use crate::file_systems::file_system::{FileId, FileKind, FileSystemError, FolderChild, OnChild};
use crate::file_systems::unix_files::{kind_of_entry, shown_name};

/// The bytes of a folder that may have names.
pub(super) const NAMES_BYTES: u64 = 32 << 30;
const FREE_TAG: u16 = 0xffff;
/// Inode numbers have 56 bits.
const INODE_MASK: u64 = (1 << 56) - 1;
/// A listing ends after this number of damaged blocks.
const DAMAGED_BLOCKS_MAX: u64 = 4096;

const ONE_BLOCK: XfsBlockKind = XfsBlockKind { name: "a block of names", magics: [0x5844_3242, 0x5844_4233] };
const NAMES_BLOCK: XfsBlockKind =
    XfsBlockKind { name: "a block of names", magics: [0x5844_3244, 0x5844_4433] };

/// An entry of a folder as stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct XfsFolderEntry<'a> {
    inode: u64,
    /// 0 if it is not known.
    kind: u8,
    pub(super) name: &'a [u8],
}

/// Parses the entry of a block at `at`. Returns it, unless that space is free, and its length.
pub(super) fn entry_at(
    block: &[u8],
    at: usize,
    has_kinds: bool,
) -> Result<(Option<XfsFolderEntry<'_>>, usize), &'static str> {
    let rest = block.get(at..).unwrap_or_default();
    if be16_at(rest, 0) == FREE_TAG {
        let length = usize::from(be16_at(rest, 2));
        let is_sound = length > 0 && length.is_multiple_of(8) && length <= rest.len();
        return if is_sound { Ok((None, length)) } else { Err("a free part is longer than its block") };
    }
    let name_end = usize::from(u8_at(rest, 8)).saturating_add(9);
    let length = name_end.saturating_add(usize::from(has_kinds)).saturating_add(2).next_multiple_of(8);
    let name = rest.get(..length).and_then(|entry| entry.get(9..name_end));
    let name = name.ok_or("an entry is longer than its block")?;
    let kind = if has_kinds { u8_at(rest, name_end) } else { 0 };
    Ok((Some(XfsFolderEntry { inode: be64_at(rest, 0) & INODE_MASK, kind, name }), length))
}

impl XfsFiles {
    /// Returns the number of file system blocks in a block of a folder.
    pub(super) fn folder_blocks(&self) -> u64 {
        1_u64.checked_shl(self.superblock.folder_block_bits.into()).unwrap_or(1)
    }

    /// Passes the children of a folder to `visit`, from the one numbered `first` on. Unreadable
    /// blocks are skipped. The first problem is returned at the end, also if it lies before
    /// `first`.
    pub(super) fn visit_children(
        &self,
        folder: &XfsInode,
        first: u64,
        visit: &mut OnChild<'_>,
    ) -> Result<(), FileSystemError> {
        let mut counter = ChildCounter { next: 0, first, visit };
        if folder.form(XfsFork::Content)? == Some(XfsForm::Local) {
            return self.visit_local(folder, &mut counter).map(|_| ());
        }
        let step = self.folder_blocks();
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let end = NAMES_BYTES.checked_div(block_bytes).unwrap_or(0);
        let mark = self.bookmarks.find(folder.number, first);
        let (mut logical, mut read, mut damaged_count) = (mark.map_or(0, |mark| mark.block), 0_u64, 0_u64);
        counter.next = mark.map_or(0, |mark| mark.children_before);
        let mut lost_block = mark.and_then(|mark| mark.lost_block);
        let mut problem = lost_block.and_then(|block| self.problem_at(folder, block));
        while logical < end {
            let run = match self.run_at(folder, XfsFork::Content, logical) {
                Ok(run) => run,
                // Without its map, nothing that follows can be found.
                Err(error) => return Err(problem.unwrap_or(error)),
            };
            if run.block.is_none() {
                // The next block of names begins at a multiple of its length.
                let next = logical.saturating_add(run.count);
                logical = next
                    .saturating_sub(next.checked_rem(step).unwrap_or(0))
                    .max(logical.saturating_add(step));
                continue;
            }
            read = read.saturating_add(step);
            // Folders share no blocks.
            if read > self.superblock.block_count {
                return Err(damaged(what(folder.number), "it has more blocks than the file system"));
            }
            let mark =
                Bookmark { folder: folder.number, block: logical, children_before: counter.next, lost_block };
            match self.visit_block(folder, logical, &mut counter) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => {
                    self.bookmarks.keep(mark);
                    return Ok(());
                }
                Err(error) => {
                    lost_block.get_or_insert(logical);
                    problem.get_or_insert(error);
                    damaged_count = damaged_count.saturating_add(1);
                    if damaged_count > DAMAGED_BLOCKS_MAX {
                        break;
                    }
                }
            }
            logical = logical.saturating_add(step);
        }
        problem.map_or(Ok(()), Err)
    }

    /// Returns the problem of a block of a folder.
    fn problem_at(&self, folder: &XfsInode, block: u64) -> Option<FileSystemError> {
        let shown_to_nobody = &mut |_| ControlFlow::Continue(());
        let mut counter = ChildCounter { next: 0, first: u64::MAX, visit: shown_to_nobody };
        self.visit_block(folder, block, &mut counter).err()
    }

    /// Reads the block of names that begins at block `logical` of a folder. Returns it, and the end
    /// of its entries.
    pub(super) fn names_block(
        &self,
        folder: &XfsInode,
        logical: u64,
    ) -> Result<Option<(Vec<u8>, usize)>, FileSystemError> {
        let found = self.fork_blocks(folder, XfsFork::Content, logical, self.folder_blocks())?;
        let Some((bytes, at)) = found else { return Ok(None) };
        self.check_block(&bytes, at, &[ONE_BLOCK, NAMES_BLOCK], || what(folder.number))?;
        let mut end = bytes.len();
        if ONE_BLOCK.is_of(&bytes, self.superblock.has_checksums) {
            let tail = end.saturating_sub(8);
            let index_bytes = to_usize(be32_at(&bytes, tail)).checked_mul(8);
            let start = index_bytes.and_then(|index_bytes| tail.checked_sub(index_bytes));
            end = start.ok_or_else(|| damaged(what(folder.number), "its index is longer than its block"))?;
        }
        Ok(Some((bytes, end)))
    }

    /// Returns the place of the first entry in a block of names.
    pub(super) fn first_entry_at(&self) -> usize {
        if self.superblock.has_checksums { 64 } else { 16 }
    }

    fn visit_block(
        &self,
        folder: &XfsInode,
        logical: u64,
        counter: &mut ChildCounter<'_>,
    ) -> Result<ControlFlow<()>, FileSystemError> {
        let Some((bytes, end)) = self.names_block(folder, logical)? else {
            return Ok(ControlFlow::Continue(()));
        };
        let entries = bytes.get(..end).unwrap_or_default();
        let mut at = self.first_entry_at();
        while at < entries.len() {
            let (entry, length) = entry_at(entries, at, self.superblock.has_kinds)
                .map_err(|problem| damaged(what(folder.number), problem))?;
            if let Some(entry) = entry
                && self.count_child(&entry, counter).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            at = at.saturating_add(length);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_local(
        &self,
        folder: &XfsInode,
        counter: &mut ChildCounter<'_>,
    ) -> Result<ControlFlow<()>, FileSystemError> {
        let bytes = folder.fork(XfsFork::Content);
        let size = to_usize(folder.size);
        let cut_off = || damaged(what(folder.number), "an entry is longer than the folder");
        let bytes = bytes.get(..size).ok_or_else(cut_off)?;
        let is_long = u8_at(bytes, 1) > 0;
        let number_bytes: usize = if is_long { 8 } else { 4 };
        let count = u8_at(bytes, 0);
        let mut at = number_bytes.saturating_add(2);
        for _ in 0..count {
            let rest = bytes.get(at..).unwrap_or_default();
            let name_end = usize::from(u8_at(rest, 0)).saturating_add(3);
            let number_at = name_end.saturating_add(usize::from(self.superblock.has_kinds));
            let end = number_at.saturating_add(number_bytes);
            let name = rest.get(..end).and_then(|entry| entry.get(3..name_end)).ok_or_else(cut_off)?;
            let kind = if self.superblock.has_kinds { u8_at(rest, name_end) } else { 0 };
            let inode = if is_long {
                u64::from_be_bytes(array_at(rest, number_at)) & INODE_MASK
            } else {
                be32_at(rest, number_at).into()
            };
            if self.count_child(&XfsFolderEntry { inode, kind, name }, counter).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            at = at.saturating_add(end);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn count_child(&self, entry: &XfsFolderEntry<'_>, counter: &mut ChildCounter<'_>) -> ControlFlow<()> {
        let Some(child) = self.child_of(entry, counter.next >= counter.first) else {
            return ControlFlow::Continue(());
        };
        let number = counter.next;
        counter.next = number.saturating_add(1);
        if number < counter.first { ControlFlow::Continue(()) } else { (counter.visit)(child) }
    }

    /// Returns the child of an entry; `None` for the folder itself and its parent. Its kind is
    /// looked up only if it `is_shown`.
    pub(super) fn child_of(&self, entry: &XfsFolderEntry<'_>, is_shown: bool) -> Option<FolderChild> {
        if [&b""[..], b".", b".."].contains(&entry.name) {
            return None;
        }
        let kind = match kind_of_entry(entry.kind) {
            Some(kind) => kind,
            // A name without a valid inode is still shown; a request for its status reports the
            // problem.
            None if is_shown => self.inode(entry.inode).map_or(FileKind::File, |inode| inode.kind()),
            None => FileKind::File,
        };
        Some(FolderChild { name: shown_name(entry.name), id: FileId(entry.inode), kind })
    }
}

//! Folders: blocks of names, one after the other. Large folders also have an index, made so that a
//! reader without support for it sees empty entries in its place.
//!
//! | last bytes of a block of | 8 before the end                | 4 before the end           |
//! |--------------------------|---------------------------------|----------------------------|
//! | names                    | an empty entry's, from 12 before | checksum of all before these 12 |
//! | the index                | anything                        | checksum, as `index` has it |
//!
//! So the last bytes do not tell the two kinds apart: a folder whose first block became the root of
//! its index keeps the tail that the block had as a block of names.

use std::ops::ControlFlow;

use super::inode::ExtInode;
use super::superblock::incompatible;
use super::{ExtFileSystem, damaged};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{array_at, u8_at, u16_at, u32_at};
use crate::file_systems::bookmarks::{Bookmark, ChildCounter};
use crate::file_systems::file_system::{FileId, FileKind, FileSystemError, FolderChild, OnChild};
use crate::file_systems::unix_files::{kind_of_entry, shown_name};

const HEAD_BYTES: usize = 8;
const TAIL_BYTES: usize = 12;
/// The tail of a block: an empty entry that only marks the place of the checksum.
const TAIL: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xde];
/// Inline folders store the inode of their parent where other folders have `.` and `..`.
const PARENT_BYTES: usize = 4;

/// An entry of a folder as stored.
struct ExtFolderEntry<'a> {
    inode: u32,
    kind: u8,
    name: &'a [u8],
}

/// Parses entries. Stops with an error at the first invalid one.
struct ExtFolderEntries<'a> {
    rest: &'a [u8],
    has_kinds: bool,
}

impl<'a> Iterator for ExtFolderEntries<'a> {
    type Item = Result<ExtFolderEntry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.rest);
        let length = entry_bytes(bytes);
        let name_length =
            if self.has_kinds { usize::from(u8_at(bytes, 6)) } else { usize::from(u16_at(bytes, 6)) };
        let Some((entry, rest)) = bytes.split_at_checked(length).filter(|_| length >= HEAD_BYTES) else {
            return Some(Err("an entry is longer than its block"));
        };
        let Some(name) = entry.get(HEAD_BYTES..HEAD_BYTES.saturating_add(name_length)) else {
            return Some(Err("a name is longer than its entry"));
        };
        self.rest = rest;
        let kind = if self.has_kinds { u8_at(bytes, 7) } else { 0 };
        Some(Ok(ExtFolderEntry { inode: u32_at(bytes, 0), kind, name }))
    }
}

impl ExtFileSystem {
    /// Passes the children of a folder to `visit`, from the one numbered `first` on. Unreadable
    /// blocks are skipped. The first problem is returned at the end, also if it lies before
    /// `first`.
    pub(super) fn visit_children(
        &self,
        folder: &ExtInode,
        first: u64,
        visit: &mut OnChild<'_>,
    ) -> Result<(), FileSystemError> {
        let mut counter = ChildCounter { next: 0, first, visit };
        if folder.has_inline_data() {
            return self.visit_inline(folder, &mut counter);
        }
        let block_bytes = u64::from(self.superblock.block_bytes);
        let block_count = folder.size.div_ceil(block_bytes.max(1));
        let mark = self.bookmarks.find(u64::from(folder.number), first);
        let (mut logical, mut read) = (mark.map_or(0, |mark| mark.block), 0_u64);
        counter.next = mark.map_or(0, |mark| mark.children_before);
        let mut lost_block = mark.and_then(|mark| mark.lost_block);
        let mut problem = lost_block.and_then(|block| self.problem_at(folder, block));
        while logical < block_count {
            let mut end = block_count;
            let run = self.run_before(folder, logical, &mut end);
            let end = end.clamp(logical.saturating_add(1), block_count);
            let physical = match run {
                Ok(run) => run.data(),
                Err(error) => {
                    read = read.saturating_add(1);
                    self.check_amount(folder, read)?;
                    lost_block.get_or_insert(logical);
                    problem.get_or_insert(error);
                    None
                }
            };
            for (block, physical) in (logical..end).zip(physical.into_iter().flat_map(|first| first..)) {
                read = read.saturating_add(1);
                self.check_amount(folder, read)?;
                let id = u64::from(folder.number);
                let mark = Bookmark { folder: id, block, children_before: counter.next, lost_block };
                match self.visit_block(folder, block, physical, &mut counter) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => {
                        self.bookmarks.keep(mark);
                        return Ok(());
                    }
                    Err(error) => {
                        lost_block.get_or_insert(block);
                        problem.get_or_insert(error);
                    }
                }
            }
            logical = end;
        }
        problem.map_or(Ok(()), Err)
    }

    fn visit_inline(&self, folder: &ExtInode, counter: &mut ChildCounter<'_>) -> Result<(), FileSystemError> {
        let data = self.inline_data(folder)?;
        let (head, rest) = data.split_at_checked(60).unwrap_or((&data, &[]));
        let mut problem = None;
        for part in [head.get(PARENT_BYTES..).unwrap_or_default(), rest] {
            match self.visit_entries(folder, part, counter) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) => drop(problem.get_or_insert(error)),
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Visits the children of one block.
    fn visit_block(
        &self,
        folder: &ExtInode,
        block: u64,
        physical: u64,
        counter: &mut ChildCounter<'_>,
    ) -> Result<ControlFlow<()>, FileSystemError> {
        let bytes = self.metadata(physical, || what(folder))?;
        self.check_folder_block(folder, block, &bytes)?;
        self.visit_entries(folder, &bytes, counter)
    }

    /// Returns the problem of a block of a folder.
    fn problem_at(&self, folder: &ExtInode, block: u64) -> Option<FileSystemError> {
        let shown_to_nobody = &mut |_| ControlFlow::Continue(());
        let mut counter = ChildCounter { next: 0, first: u64::MAX, visit: shown_to_nobody };
        let run = match self.run_at(folder, block) {
            Ok(run) => run,
            Err(error) => return Some(error),
        };
        self.visit_block(folder, block, run.data()?, &mut counter).err()
    }

    pub(super) fn visit_entries(
        &self,
        folder: &ExtInode,
        bytes: &[u8],
        counter: &mut ChildCounter<'_>,
    ) -> Result<ControlFlow<()>, FileSystemError> {
        let has_kinds = self.superblock.needs(incompatible::FILE_TYPE);
        for entry in (ExtFolderEntries { rest: bytes, has_kinds }) {
            let entry = entry.map_err(|problem| damaged(what(folder), problem))?;
            if entry.inode == 0 || [&b""[..], b".", b".."].contains(&entry.name) {
                continue;
            }
            let number = counter.next;
            counter.next = number.saturating_add(1);
            if number < counter.first {
                continue;
            }
            let id = FileId(u64::from(entry.inode));
            let child = FolderChild { name: shown_name(entry.name), id, kind: self.kind_of(&entry) };
            if (counter.visit)(child).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the kind from the entry, or from the inode if the entry has none.
    fn kind_of(&self, entry: &ExtFolderEntry<'_>) -> FileKind {
        // A name without a valid inode is still shown; a request for its status reports the
        // problem.
        let of_inode = || self.inode(entry.inode).map_or(FileKind::File, |inode| inode.kind());
        kind_of_entry(entry.kind & 7).unwrap_or_else(of_inode)
    }

    /// Checks block number `number` of a folder, if it is a block of names. The code that uses the
    /// index checks the blocks of the index.
    pub(super) fn check_folder_block(
        &self,
        folder: &ExtInode,
        number: u64,
        block: &[u8],
    ) -> Result<(), FileSystemError> {
        let tail_at = block.len().saturating_sub(TAIL_BYTES);
        if !self.has_checksums()
            || array_at::<8>(block, tail_at) != TAIL
            || self.is_of_index(folder, number, block)
        {
            return Ok(());
        }
        let code = crc32c_from(folder.checksum_seed, block.get(..tail_at).unwrap_or_default());
        if code != u32_at(block, tail_at.saturating_add(8)) {
            return Err(damaged(what(folder), "a block of it does not match its checksum"));
        }
        Ok(())
    }
}

/// Returns the length of an entry according to the entry.
pub(super) fn entry_bytes(entry: &[u8]) -> usize {
    match u16_at(entry, 4) {
        0 | u16::MAX => 1 << 16,
        coded => usize::from(coded & !3) | usize::from(coded & 3) << 16,
    }
}

fn what(folder: &ExtInode) -> String {
    format!("folder of inode {}", folder.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_path_can_have_are_spelled() {
        assert_eq!(shown_name(b"plain %2F name"), b"plain %2F name");
        assert_eq!(shown_name(b"a/b\0c"), b"a%2Fb%00c");
    }

    #[test]
    fn nonsense_ends_a_block() {
        let take = |bytes: &[u8]| {
            ExtFolderEntries { rest: bytes, has_kinds: true }
                .map(|entry| entry.map(|entry| entry.inode))
                .collect::<Vec<_>>()
        };
        let entry =
            |length: u16, name: u8| [&[9, 0, 0, 0][..], &length.to_le_bytes(), &[name, 1], b"abcd"].concat();
        assert_eq!(take(&[entry(12, 4), entry(12, 1)].concat()), [Ok(9), Ok(9)]);
        assert_eq!(take(&entry(12, 5)), [Err("a name is longer than its entry")]);
        for length in [0, 4, 7, 16, 65535] {
            assert_eq!(take(&entry(length, 1)), [Err("an entry is longer than its block")], "{length}");
        }
        assert_eq!(take(&[1, 2, 3]), [Err("an entry is longer than its block")]);
    }
}

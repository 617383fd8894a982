//! Reads XFS, versions 4 and 5.
//!
//! ```text
//! superblock ─▶ (log) ─▶ inode ─┬▶ content: in the inode, a list of extents, or a tree of them
//!                               ├▶ names, if it is a folder
//!                               └▶ attributes: in the inode, or in blocks
//! ```
//!
//! An inode's number is its position on the volume, so no table is needed to find it. Every number
//! is untrusted until it has been compared with another. Metadata of version 5 has checksums:
//! metadata with a wrong one is not shown, as with a mount; the metadata beside it is still read.

mod extents;
mod folder;
mod folder_index;
mod group;
mod inode;
mod log;
mod log_items;
mod replay;
mod seal;
mod sound;
mod superblock;
mod xattr;

use std::ops::Range;
use std::sync::Arc;

use inode::{XfsFork, XfsForm, XfsInode, what};
use replay::XfsReplay;
use seal::{XfsBlockKind, XfsSeal};
use superblock::{SUPERBLOCK_BYTES, XfsSuperblock};
use varve_block::to_usize;

use crate::bytes::read_at::ReadAt;
use crate::file_systems::bookmarks::Bookmarks;
use crate::file_systems::file_system::find_child;
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr,
};
use crate::file_systems::metadata_cache::{MetadataBlock, MetadataCache};

/// The longest target of a symbolic link.
const TARGET_BYTES_MAX: u64 = 1024;
/// The header of a block with a target, in version 5.
const TARGET_HEAD_BYTES: usize = 56;

/// An XFS file system.
pub(crate) struct XfsFiles {
    volume: Arc<dyn ReadAt>,
    superblock: XfsSuperblock,
    blocks: MetadataCache,
    bookmarks: Bookmarks,
    /// The position in the log of its unmount; `None` if it was in use.
    unmounted_at: Option<u64>,
    /// The reason why files may differ from those that a mount shows.
    recovery_problem: Option<String>,
}

fn damaged(what: impl Into<String>, problem: &str) -> FileSystemError {
    FileSystemError::Damaged { what: what.into(), problem: problem.into() }
}

impl XfsFiles {
    /// Opens the file system of a volume. Shows the transactions in its log as if they were done.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`] if the superblock is not valid, or if the file system needs a feature
    /// that is not supported.
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let superblock = read_superblock(&volume)?;
        let found = replay::replay(&volume, &superblock);
        let found = found.and_then(|found| Ok((read_superblock(&found.volume)?, found)));
        match found {
            Ok((superblock, XfsReplay { volume, unmounted_at, problem })) => {
                Ok(Self::of(volume, superblock, unmounted_at, problem))
            }
            Err(error) => Ok(Self::of(volume, superblock, None, Some(error.to_string()))),
        }
    }

    fn of(
        volume: Arc<dyn ReadAt>,
        superblock: XfsSuperblock,
        unmounted_at: Option<u64>,
        recovery_problem: Option<String>,
    ) -> Self {
        let blocks = MetadataCache::new(Arc::clone(&volume), superblock.block_bytes);
        let bookmarks = Bookmarks::default();
        Self { volume, superblock, blocks, bookmarks, unmounted_at, recovery_problem }
    }

    /// Reads the block at a position, counted from the beginning of the volume.
    fn block_at(&self, position: u64, what: impl Fn() -> String) -> Result<MetadataBlock, FileSystemError> {
        self.blocks.get(position).map_err(|source| FileSystemError::Read { what: what(), source })
    }

    /// Reads a block of metadata, and checks that it is of a kind.
    fn sealed_block(
        &self,
        block: u64,
        kind: &XfsBlockKind,
        what: impl Fn() -> String,
    ) -> Result<MetadataBlock, FileSystemError> {
        let position = self.superblock.position(block);
        let position = position.ok_or_else(|| damaged(what(), &format!("block {block} does not exist")))?;
        let bytes = self.block_at(position, &what)?;
        let at = position.saturating_mul(self.superblock.block_bytes.into());
        self.check_block(&bytes, at, std::slice::from_ref(kind), what)?;
        Ok(bytes)
    }

    /// Checks that a block that was read at `at` (bytes) is of one of these kinds.
    fn check_block(
        &self,
        bytes: &[u8],
        at: u64,
        kinds: &[XfsBlockKind],
        what: impl Fn() -> String,
    ) -> Result<(), FileSystemError> {
        let is_sealed = self.superblock.has_checksums;
        let name = kinds.first().map_or("a block", |kind| kind.name);
        if !kinds.iter().any(|kind| kind.is_of(bytes, is_sealed)) {
            return Err(damaged(what(), &format!("the magic number of {name} is missing")));
        }
        if is_sealed && let Some(seal) = XfsSeal::of(bytes) {
            let checked = seal.check(bytes, self.superblock.uuid, at);
            checked.map_err(|problem| damaged(what(), &format!("of {name}: {problem}")))?;
        }
        Ok(())
    }

    /// Reads `count` blocks of a fork from block `logical`, which may be in several places. Returns
    /// `None` if the first of them is a hole, and the position of the first of them in bytes.
    fn fork_blocks(
        &self,
        inode: &XfsInode,
        fork: XfsFork,
        logical: u64,
        count: u64,
    ) -> Result<Option<(Vec<u8>, u64)>, FileSystemError> {
        let mut bytes = Vec::new();
        let (mut first, mut at) = (None, logical);
        let end = logical.saturating_add(count);
        while at < end {
            let run = self.run_at(inode, fork, at)?;
            let Some(block) = run.block else {
                if first.is_none() {
                    return Ok(None);
                }
                return Err(damaged(what(inode.number), "a part of one of its blocks is a hole"));
            };
            let count = run.count.min(end.saturating_sub(at));
            let positions = self.superblock.positions(block, count);
            let positions = positions
                .ok_or_else(|| damaged(what(inode.number), &format!("block {block} does not exist")))?;
            first.get_or_insert(positions.start.saturating_mul(self.superblock.block_bytes.into()));
            for position in positions {
                bytes.extend_from_slice(&self.block_at(position, || what(inode.number))?);
            }
            at = at.saturating_add(count);
        }
        Ok(first.map(|first| (bytes, first)))
    }

    fn file(&self, file: FileId) -> Result<XfsInode, FileSystemError> {
        self.inode(file.0)
    }

    fn folder(&self, folder: FileId) -> Result<XfsInode, FileSystemError> {
        let inode = self.file(folder)?;
        match inode.kind() {
            FileKind::Folder => Ok(inode),
            _ => Err(FileSystemError::Absent { what: format!("folder with inode {}", folder.0) }),
        }
    }

    /// Returns a regular file whose content is on this volume.
    fn regular_file(&self, file: FileId) -> Result<XfsInode, FileSystemError> {
        let inode = self.file(file)?;
        if inode.kind() != FileKind::File {
            return Err(FileSystemError::Absent { what: format!("regular file with inode {}", file.0) });
        }
        if inode.is_realtime() && inode.size > 0 {
            let feature = "content on a realtime device".into();
            return Err(FileSystemError::Unsupported { what: what(file.0), feature });
        }
        Ok(inode)
    }

    fn read_content(&self, inode: &XfsInode, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let present = inode.size.saturating_sub(offset);
        let length = to_usize(present).min(into.len());
        let (into, _) = into.split_at_mut(length);
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let logical = at.checked_div(block_bytes).unwrap_or(0);
            let inside = at.checked_rem(block_bytes).unwrap_or(0);
            let run = self.run_at(inode, XfsFork::Content, logical)?;
            let bytes = run.count.saturating_mul(block_bytes).saturating_sub(inside);
            let (now, later) = rest.split_at_mut(to_usize(bytes).min(rest.len()));
            match run.block {
                None => now.fill(0),
                Some(block) => {
                    let what = || format!("content of inode {} at {at}", inode.number);
                    let count = inside.saturating_add(now.len() as u64).div_ceil(block_bytes);
                    let positions = self.superblock.positions(block, count);
                    let positions =
                        positions.ok_or_else(|| damaged(what(), &format!("block {block} does not exist")))?;
                    let place = positions.start.saturating_mul(block_bytes).saturating_add(inside);
                    let read = self.volume.read_at(place, now);
                    read.map_err(|source| FileSystemError::Read { what: what(), source })?;
                }
            }
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(length)
    }

    /// Returns the target of a link that is stored in blocks. In version 5, each run of blocks has
    /// a header.
    fn target_in_blocks(&self, link: &XfsInode) -> Result<Vec<u8>, FileSystemError> {
        const TARGET: [XfsBlockKind; 1] = [XfsBlockKind { name: "its target", magics: [0, 0x5853_4c4d] }];
        let size = to_usize(link.size);
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let (mut target, mut logical) = (Vec::new(), 0_u64);
        while target.len() < size {
            let run = self.run_at(link, XfsFork::Content, logical)?;
            // A target has at most 1024 bytes, and blocks of 512 bytes or more.
            let count = run.count.min(TARGET_BYTES_MAX.div_ceil(block_bytes).saturating_add(1));
            let cut_off = || damaged(what(link.number), "its target is cut off");
            let (bytes, at) =
                self.fork_blocks(link, XfsFork::Content, logical, count)?.ok_or_else(cut_off)?;
            let head_bytes = if self.superblock.has_checksums {
                self.check_block(&bytes, at, &TARGET, || what(link.number))?;
                TARGET_HEAD_BYTES
            } else {
                0
            };
            target.extend_from_slice(bytes.get(head_bytes..).unwrap_or_default());
            logical = logical.saturating_add(count);
        }
        target.truncate(size);
        Ok(target)
    }
}

fn read_superblock(volume: &dyn ReadAt) -> Result<XfsSuperblock, FileSystemError> {
    let read = |length: usize| {
        let mut bytes = vec![0; length];
        let read = volume.read_at(0, &mut bytes);
        read.map_err(|source| FileSystemError::Read { what: "superblock".into(), source })?;
        Ok(bytes)
    };
    let first = read(SUPERBLOCK_BYTES)?;
    let superblock = XfsSuperblock::parse(&first)?;
    match to_usize(superblock.sector_bytes) {
        SUPERBLOCK_BYTES => Ok(superblock),
        length => XfsSuperblock::parse(&read(length)?),
    }
}

impl FileSystem for XfsFiles {
    fn root(&self) -> FileId {
        FileId(self.superblock.root)
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        Ok(self.file(file)?.status(self.superblock.block_bytes))
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        self.visit_children(&self.folder(folder)?, first, visit)
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        let inode = self.folder(folder)?;
        if let Ok(Some(found)) = self.child_by_index(&inode, name) {
            return Ok(found);
        }
        find_child(name, |visit| self.visit_children(&inode, 0, visit))
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        self.read_content(&self.regular_file(file)?, offset, into)
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let inode = self.regular_file(file)?;
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let mut logical = offset.checked_div(block_bytes).unwrap_or(0);
        let mut found: Option<Range<u64>> = None;
        while logical.saturating_mul(block_bytes) < inode.size && offset < inode.size {
            let run = self.run_at(&inode, XfsFork::Content, logical)?;
            let start = logical.saturating_mul(block_bytes).max(offset);
            logical = logical.saturating_add(run.count);
            let end = logical.saturating_mul(block_bytes).min(inode.size);
            match (&mut found, run.block) {
                (Some(_), None) => break,
                (Some(range), Some(_)) => range.end = end,
                (None, Some(_)) => found = Some(start..end),
                (None, None) => {}
            }
        }
        Ok(found)
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let inode = self.file(file)?;
        // Other files may have the same blocks, or the blocks may be on another device.
        let is_alone = inode.kind() == FileKind::File && !inode.is_realtime() && !inode.is_shared();
        if !is_alone || self.recovery_problem.is_some() || self.superblock.doubt().is_some() {
            return Ok(None);
        }
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let mut places = Vec::new();
        // Blocks behind the end of the file are not its content.
        let end = inode.size.div_ceil(block_bytes);
        self.for_each_run(&inode, XfsFork::Content, end, |run| {
            let count = run.count.min(end.saturating_sub(run.logical));
            let positions = run.block.and_then(|block| self.superblock.positions(block, count));
            let positions = positions.ok_or_else(|| damaged(what(file.0), "its blocks do not exist"))?;
            places
                .push(positions.start.saturating_mul(block_bytes)..positions.end.saturating_mul(block_bytes));
            Ok(())
        })?;
        Ok(Some(places))
    }

    fn free_places(&self) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        Ok(self.proven_free().ok())
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let inode = self.file(link)?;
        if inode.kind() != FileKind::SymbolicLink {
            return Err(FileSystemError::Absent { what: format!("symbolic link with inode {}", link.0) });
        }
        if inode.size > TARGET_BYTES_MAX {
            return Err(damaged(what(link.0), "its target exceeds the maximum length"));
        }
        match inode.form(XfsFork::Content)? {
            Some(XfsForm::Local) => {
                let target = inode.fork(XfsFork::Content);
                let target = target.get(..to_usize(inode.size));
                Ok(target.ok_or_else(|| damaged(what(link.0), "its target is cut off"))?.to_vec())
            }
            _ => self.target_in_blocks(&inode),
        }
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        self.xattrs_of(&self.file(file)?)
    }

    fn warning(&self) -> Option<String> {
        if let Some(problem) = &self.recovery_problem {
            return Some(format!(
                "it was in use, and the newer state in its log is not shown completely: {problem}"
            ));
        }
        self.superblock.doubt().map(|doubt| format!("it is in doubt: {doubt}"))
    }
}

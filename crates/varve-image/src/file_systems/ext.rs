//! Reads ext2, ext3 and ext4.
//!
//! ```text
//! superblock ─▶ group descriptors ─▶ inode ─┬▶ map: extents, or pointers ─▶ blocks of the file
//!               (bitmaps: what is free)     ├▶ names, if it is a folder
//!                                           └▶ extended attributes
//! ```
//!
//! Every number is untrusted until it has been compared with another. Metadata with a wrong
//! checksum is not shown, as with a mount; the metadata beside it is still read. Transactions in
//! the journal are shown as if they were applied. All metadata passes through one small cache; file
//! contents do not.

mod bitmap;
mod block_map;
mod folder;
mod groups;
mod index;
mod inode;
mod journal;
mod name_hash;
mod owners;
mod relocate;
mod sound;
mod superblock;
mod xattr;

use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

pub use block_map::BlockRun;
use index::IndexAnswer;
use inode::ExtInode;
pub use owners::{BlockOwner, BlockOwners};
pub use relocate::{LeftInPlace, MovedRun, Relocation, RelocationError, RelocationOptions};
pub(crate) use relocate::{loader_with_block_lists, structure};
use superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES, Superblock, read_only};

use crate::bytes::read_at::ReadAt;
use crate::file_systems::bookmarks::Bookmarks;
use crate::file_systems::file_system::find_child;
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr,
};
use crate::file_systems::metadata_cache::{MetadataBlock, MetadataCache};

/// The longest target that Linux accepts.
const TARGET_BYTES_MAX: u64 = 64 << 10;

/// An ext2, ext3 or ext4 file system. Unlike [`FileSystem`], it also tells the positions of blocks.
pub struct ExtFileSystem {
    volume: Arc<dyn ReadAt>,
    superblock: Superblock,
    blocks: MetadataCache,
    bookmarks: Bookmarks,
    needs_recovery: bool,
    /// The reason why this reader shows less than a mount would.
    recovery_problem: Option<String>,
    /// True if some of the missing changes are in the fast-commit area of the journal.
    has_fast_commits: bool,
    /// True if the first superblock was invalid and a copy was used.
    is_by_copy: bool,
}

fn damaged(what: impl Into<String>, problem: &str) -> FileSystemError {
    FileSystemError::Damaged { what: what.into(), problem: problem.into() }
}

impl ExtFileSystem {
    /// Opens the file system of a volume. Uses a copy of the superblock if the first one is
    /// damaged. Shows the readable transactions of the journal as if they were applied.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`] if no superblock is valid, or if the file system needs a feature that is
    /// not supported.
    pub fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let first = read_superblock(&volume, SUPERBLOCK_AT);
        let is_by_copy = first.is_err();
        let superblock = first.or_else(|error| {
            // The position of a copy depends on the block size, which is unknown. All of them are
            // tried.
            let places = [1024_u64, 2048, 4096, 8192, 16384, 32768, 65536].map(|bytes| {
                bytes.saturating_mul(bytes.saturating_mul(8).saturating_add(u64::from(bytes == 1024)))
            });
            let mut copies = places.into_iter().filter_map(|at| read_superblock(&volume, at).ok());
            copies.next().ok_or(error)
        })?;
        let files = Self { is_by_copy, ..Self::of(volume, superblock) };
        if !files.needs_recovery {
            return Ok(files);
        }
        let problem = match journal::replay(&files) {
            Ok(replay) => {
                let volume: Arc<dyn ReadAt> = Arc::new(replay.volume);
                match read_superblock(&volume, SUPERBLOCK_AT) {
                    Ok(superblock) => {
                        let recovered = Self::of(volume, superblock);
                        return Ok(Self {
                            needs_recovery: true,
                            recovery_problem: replay.problem,
                            has_fast_commits: replay.has_fast_commits,
                            is_by_copy,
                            ..recovered
                        });
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        Ok(Self { recovery_problem: Some(problem), ..files })
    }

    fn of(volume: Arc<dyn ReadAt>, superblock: Superblock) -> Self {
        let blocks = MetadataCache::new(Arc::clone(&volume), superblock.block_bytes);
        let needs_recovery = superblock.needs_recovery();
        Self {
            volume,
            superblock,
            blocks,
            bookmarks: Bookmarks::default(),
            needs_recovery,
            recovery_problem: None,
            has_fast_commits: false,
            is_by_copy: false,
        }
    }

    /// Returns true if the journal has transactions that a mount would replay first.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.needs_recovery
    }

    /// Returns the reason why some transactions of the journal are not shown; `None` if all are
    /// shown or there are none.
    #[must_use]
    pub fn recovery_problem(&self) -> Option<&str> {
        self.recovery_problem.as_deref()
    }

    /// Returns true if the file system was left in a clean state: unmounted, with no operation
    /// unfinished.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.superblock.is_clean() && !self.needs_recovery
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.superblock.block_bytes
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.superblock.block_count
    }

    /// Returns the UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// Returns the label; empty if there is none.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        self.superblock.label.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Returns the runs of blocks of a file, in its order, without holes.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    pub fn runs(&self, file: FileId) -> Result<Vec<BlockRun>, FileSystemError> {
        let inode = self.file(file)?;
        let mut runs = Vec::new();
        if self.has_blocks(&inode) {
            self.for_each_run(&inode, |run| {
                runs.push(run);
                Ok(())
            })?;
        }
        Ok(runs)
    }

    fn has_checksums(&self) -> bool {
        self.superblock.has(read_only::METADATA_CHECKSUM)
    }

    /// Reads a block of metadata.
    fn metadata(&self, block: u64, what: impl Fn() -> String) -> Result<MetadataBlock, FileSystemError> {
        if block >= self.superblock.block_count {
            return Err(damaged(what(), &format!("it lies in block {block}, which does not exist")));
        }
        self.blocks.get(block).map_err(|source| FileSystemError::Read { what: what(), source })
    }

    fn file(&self, file: FileId) -> Result<ExtInode, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("inode {}", file.0) };
        self.inode(u32::try_from(file.0).map_err(|_| absent())?)
    }

    fn folder(&self, folder: FileId) -> Result<ExtInode, FileSystemError> {
        let inode = self.file(folder)?;
        match inode.kind() {
            FileKind::Folder => Ok(inode),
            _ => Err(FileSystemError::Absent { what: format!("folder with inode {}", folder.0) }),
        }
    }

    /// Returns true if the inode has a block map: devices and short link targets use the same bytes
    /// otherwise.
    fn has_blocks(&self, inode: &ExtInode) -> bool {
        !inode.has_inline_data()
            && match inode.kind() {
                FileKind::File | FileKind::Folder => true,
                FileKind::SymbolicLink => !is_short(inode),
                _ => false,
            }
    }

    fn read_inode(&self, inode: &ExtInode, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let present = inode.size.saturating_sub(offset);
        let length = to_usize(present).min(into.len());
        let (into, _) = into.split_at_mut(length);
        if inode.is_encrypted() && length > 0 {
            let what = format!("inode {}", inode.number);
            return Err(FileSystemError::Unsupported { what, feature: "the key of its folder".into() });
        }
        if inode.has_inline_data() {
            let data = self.inline_data(inode)?;
            let present = data.get(to_usize(offset)..).unwrap_or_default();
            into.iter_mut()
                .zip(present.iter().copied().chain(std::iter::repeat(0)))
                .for_each(|(into, from)| *into = from);
            return Ok(length);
        }
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let logical = at.checked_div(block_bytes).unwrap_or(0);
            let inside = at.checked_rem(block_bytes).unwrap_or(0);
            let run = self.run_at(inode, logical)?;
            let bytes = run.count.saturating_mul(block_bytes).saturating_sub(inside);
            let (now, later) = rest.split_at_mut(to_usize(bytes).min(rest.len()));
            match run.data() {
                None => now.fill(0),
                Some(physical) => {
                    let place = physical.saturating_mul(block_bytes).saturating_add(inside);
                    let what = || format!("content of inode {} at {at}", inode.number);
                    let read = self.volume.read_at(place, now);
                    read.map_err(|source| FileSystemError::Read { what: what(), source })?;
                }
            }
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(length)
    }
}

/// Returns true if a link's target is stored in place of the block map.
fn is_short(link: &ExtInode) -> bool {
    link.size < inode::MAP_BYTES as u64 && !link.has_extents()
}

fn read_superblock(volume: &dyn ReadAt, at: u64) -> Result<Superblock, FileSystemError> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let read = volume.read_at(at, &mut bytes);
    read.map_err(|source| FileSystemError::Read { what: "superblock".into(), source })?;
    Superblock::parse(&bytes)
}

impl FileSystem for ExtFileSystem {
    fn root(&self) -> FileId {
        FileId(u64::from(inode::ROOT))
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        Ok(self.status_of(&self.file(file)?))
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        self.visit_children(&self.folder(folder)?, first, visit)
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        let inode = self.folder(folder)?;
        if let IndexAnswer::Certain(found) = self.child_by_index(&inode, name) {
            return Ok(found);
        }
        find_child(name, |visit| self.visit_children(&inode, 0, visit))
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let inode = self.file(file)?;
        if inode.kind() != FileKind::File {
            return Err(FileSystemError::Absent { what: format!("regular file with inode {}", file.0) });
        }
        self.read_inode(&inode, offset, into)
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let inode = self.file(file)?;
        if inode.kind() != FileKind::File || offset >= inode.size {
            return Ok(None);
        }
        if inode.has_inline_data() {
            let end = self.inline_data(&inode)?.len() as u64;
            return Ok((offset < end).then_some(offset..end));
        }
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let mut logical = offset.checked_div(block_bytes).unwrap_or(0);
        let mut found: Option<Range<u64>> = None;
        while logical.saturating_mul(block_bytes) < inode.size {
            let run = self.run_at(&inode, logical)?;
            let start = logical.saturating_mul(block_bytes).max(offset);
            logical = logical.saturating_add(run.count);
            let end = logical.saturating_mul(block_bytes).min(inode.size);
            match (&mut found, run.data()) {
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
        if !self.has_blocks(&inode) || !self.superblock.is_in_order() || self.recovery_problem.is_some() {
            return Ok(None);
        }
        let block_bytes = u64::from(self.superblock.block_bytes);
        let mut places = Vec::new();
        self.for_each_run(&inode, |run| {
            let physical = run.physical.unwrap_or(0);
            let end = physical.saturating_add(run.count);
            places.push(physical.saturating_mul(block_bytes)..end.saturating_mul(block_bytes));
            Ok(())
        })?;
        Ok(Some(places))
    }

    fn free_places(&self) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        if !self.is_clean() {
            return Ok(None);
        }
        let block_bytes = u64::from(self.superblock.block_bytes);
        let to_bytes =
            |run: Range<u64>| run.start.saturating_mul(block_bytes)..run.end.saturating_mul(block_bytes);
        Ok(Some(self.free_blocks()?.into_iter().map(to_bytes).collect()))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let inode = self.file(link)?;
        let what = || format!("symbolic link with inode {}", link.0);
        if inode.kind() != FileKind::SymbolicLink {
            return Err(FileSystemError::Absent { what: what() });
        }
        if inode.size > TARGET_BYTES_MAX {
            return Err(damaged(what(), "its target exceeds the maximum length"));
        }
        let mut target = vec![0; to_usize(inode.size)];
        if is_short(&inode) && !inode.has_inline_data() && !inode.is_encrypted() {
            let map = inode.map();
            target.iter_mut().zip(map).for_each(|(into, from)| *into = from);
        } else {
            self.read_inode(&inode, 0, &mut target)?;
        }
        Ok(target)
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        self.xattrs_of(&self.file(file)?)
    }

    fn warning(&self) -> Option<String> {
        let problem = self.recovery_problem()?;
        Some(format!("it was in use, and the newer state in its journal is not shown completely: {problem}"))
    }
}

//! Reads Btrfs from one of its devices.
//!
//! ```text
//! superblock ─▶ chunks ─▶ nodes of trees ─▶ root tree ─▶ subvolume ─┬▶ inodes, names, attributes
//!               (addresses to places)              └▶ checksums     └▶ extents ─▶ content
//! ```
//!
//! The root folder is that of the top subvolume. All other subvolumes and snapshots are folders
//! where they are linked, as with a mount of the top (`subvolid=5`). Subvolumes that are being
//! deleted are not shown.
//!
//! Every node is compared with its checksum and with what its parent says of it, and data with its
//! checksums. If the device has another copy of damaged bytes, the copy is read.

mod checksum;
mod chunks;
mod compression;
mod contents;
mod data_checksums;
mod extent;
mod file_number;
mod folder;
mod free;
mod inode;
mod inode_names;
mod key;
mod listing_marks;
mod log;
mod logical;
mod lzo;
mod named_item;
mod node;
mod open_trees;
mod places;
mod replay;
mod subvolumes;
mod superblock;
mod tree_patch;
mod tree_root;
mod trees;

use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

use self::contents::{BtrfsContent, Contents};
use self::data_checksums::DataChecksums;
use self::extent::FileOfSubvolume;
use self::file_number::BtrfsFile;
use self::folder::Folder;
use self::inode::BtrfsInode;
use self::key::{TreeKey, kind, object};
use self::listing_marks::ListingMarks;
use self::named_item::named_items;
use self::open_trees::OpenTrees;
use self::subvolumes::{Subvolume, Subvolumes, find_root};
use self::trees::Trees;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr,
};

/// The longest target that Linux accepts.
const TARGET_BYTES_MAX: u64 = 64 << 10;

/// A Btrfs file system.
pub(crate) struct Btrfs {
    trees: Trees,
    subvolumes: Subvolumes,
    contents: Contents,
    marks: ListingMarks,
    warning: Option<String>,
}

/// An inode and its subvolume.
struct FoundInode {
    subvolume: Arc<Subvolume>,
    number: u64,
    inode: BtrfsInode,
}

fn damaged(what: impl Into<String>, problem: &str) -> FileSystemError {
    FileSystemError::Damaged { what: what.into(), problem: problem.into() }
}

fn unsupported(what: impl Into<String>, feature: &str) -> FileSystemError {
    FileSystemError::Unsupported { what: what.into(), feature: feature.into() }
}

impl FoundInode {
    fn what(&self) -> String {
        format!("inode {} of subvolume {}", self.number, self.subvolume.id)
    }

    fn content(&self) -> BtrfsContent {
        let Subvolume { id, root, .. } = *self.subvolume;
        BtrfsContent {
            file: FileOfSubvolume { root, subvolume: id, inode: self.number },
            size: self.inode.size,
            has_checksums: self.inode.has_checksums,
        }
    }
}

impl Btrfs {
    /// Opens the file system of a volume.
    ///
    /// # Errors
    /// [`FileSystemError`] if no superblock is valid, or if the file system needs a feature that is
    /// not supported.
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let OpenTrees { trees, logged_checksums, warning } = OpenTrees::open(volume)?;
        let checksums = find_root(&trees, object::CHECKSUM_TREE)?.map(|(root, _)| root);
        Ok(Self {
            contents: Contents::new(DataChecksums::new(checksums, logged_checksums)),
            trees,
            subvolumes: Subvolumes::new(),
            marks: ListingMarks::default(),
            warning,
        })
    }

    fn find(&self, subvolume: u64, number: u64) -> Result<FoundInode, FileSystemError> {
        let subvolume = self.subvolumes.get(&self.trees, subvolume)?;
        let what = || format!("inode {number} of subvolume {}", subvolume.id);
        let item = self.trees.find(&subvolume.root, &TreeKey::new(number, kind::INODE, 0))?;
        let item = item.ok_or_else(|| FileSystemError::Absent { what: what() })?;
        let inode = BtrfsInode::parse(item.data()).map_err(|problem| damaged(what(), problem))?;
        Ok(FoundInode { subvolume, number, inode })
    }

    /// Returns the inode of a file that is not a stand-in, if it has this kind.
    fn find_kind(&self, id: FileId, kind: FileKind, name: &str) -> Result<FoundInode, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("{name} with the number {}", id.0) };
        match BtrfsFile::of(id).ok_or_else(absent)? {
            BtrfsFile::Inode { subvolume, inode } => {
                let found = self.find(subvolume, inode)?;
                if found.inode.status.kind == kind { Ok(found) } else { Err(absent()) }
            }
            BtrfsFile::StandIn { .. } => Err(absent()),
        }
    }

    /// Passes a folder to `look`; `None` for a stand-in, which is empty.
    fn in_folder<T: Default>(
        &self,
        id: FileId,
        look: impl FnOnce(Folder<'_>) -> Result<T, FileSystemError>,
    ) -> Result<T, FileSystemError> {
        if let Some(BtrfsFile::StandIn { .. }) = BtrfsFile::of(id) {
            return Ok(T::default());
        }
        let found = self.find_kind(id, FileKind::Folder, "folder")?;
        look(Folder { trees: &self.trees, subvolume: &found.subvolume, inode: found.number, id })
    }
}

impl FileSystem for Btrfs {
    fn root(&self) -> FileId {
        let top = self.subvolumes.get(&self.trees, object::TOP_SUBVOLUME);
        let inode = top.map_or(object::FIRST_FREE, |top| top.root_folder);
        let root = BtrfsFile::Inode { subvolume: object::TOP_SUBVOLUME, inode };
        root.id().unwrap_or(FileId(object::FIRST_FREE))
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("file with the number {}", file.0) };
        match BtrfsFile::of(file).ok_or_else(absent)? {
            BtrfsFile::Inode { subvolume, inode } => Ok(self.find(subvolume, inode)?.inode.status),
            BtrfsFile::StandIn { subvolume, .. } => {
                // A mount shows the present time, which is not on the disk.
                let top = self.subvolumes.get(&self.trees, subvolume)?;
                let created = self.find(subvolume, top.root_folder)?.inode.status.created;
                let modified = created.unwrap_or_default();
                Ok(FileStatus { modified, ..FileStatus::new(FileKind::Folder, 0o755, 0) })
            }
        }
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        self.in_folder(folder, |folder| folder.visit(&self.marks, first, visit))
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        self.in_folder(folder, |folder| folder.find(name))
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let found = self.find_kind(file, FileKind::File, "regular file")?;
        self.contents.read(&self.trees, &found.content(), offset, into)
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        match self.find_kind(file, FileKind::File, "regular file") {
            Ok(found) => Contents::next_data(&self.trees, &found.content(), offset),
            Err(FileSystemError::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        match self.find_kind(file, FileKind::File, "regular file") {
            Ok(found) => self.places_of(&found),
            Err(FileSystemError::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn free_places(&self) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        Ok(self.proven_free().ok())
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let found = self.find_kind(link, FileKind::SymbolicLink, "symbolic link")?;
        if found.inode.size > TARGET_BYTES_MAX {
            return Err(damaged(found.what(), "its target exceeds the maximum length"));
        }
        let mut target = vec![0; to_usize(found.inode.size)];
        self.contents.read(&self.trees, &found.content(), 0, &mut target)?;
        Ok(target)
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        let Some(BtrfsFile::Inode { subvolume, inode }) = BtrfsFile::of(file) else { return Ok(Vec::new()) };
        let found = self.find(subvolume, inode)?;
        let key = |hash| TreeKey::new(inode, kind::XATTR, hash);
        let mut xattrs = Vec::new();
        for item in self.trees.range(&found.subvolume.root, key(0), key(u64::MAX)) {
            for entry in named_items(item?.data()) {
                let entry = entry.map_err(|problem| {
                    damaged(found.what(), &format!("its extended attributes are damaged: {problem}"))
                })?;
                xattrs.push(Xattr { name: entry.name.into(), value: entry.data.into() });
            }
        }
        xattrs.sort();
        Ok(xattrs)
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

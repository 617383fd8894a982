//! The one interface to files: each reader of a file system implements the trait [`FileSystem`],
//! and listing, restoring, comparing, mounting and serving use it.

use std::io;
use std::ops::{ControlFlow, Range};

use crate::file_systems::file_time::FileTime;

/// The number of a file: its inode number if the file system has inodes, otherwise a number made
/// from the position of its record. The same bytes always give the same file the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    Folder,
    SymbolicLink,
    CharacterDevice,
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
}

/// The number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The number of the driver.
    pub major: u32,
    /// The number of the device among those of its driver.
    pub minor: u32,
}

/// The metadata of a file, as `stat` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStatus {
    pub kind: FileKind,
    /// The permission bits, with setuid, setgid and sticky. If the file system stores none, those
    /// of a read-only file.
    pub mode: u16,
    /// The owner; 0 if the file system stores none.
    pub uid: u32,
    /// The group; 0 if the file system stores none.
    pub gid: u32,
    /// The number of hard links.
    pub links: u32,
    /// The bytes of a file or of a link's target; 0 for all other kinds.
    pub size: u64,
    /// The bytes that it occupies on the disk.
    pub allocated: u64,
    /// The time of the last change to its content.
    pub modified: FileTime,
    /// The time of the last change to its content or metadata.
    pub changed: Option<FileTime>,
    /// The time of the last access.
    pub accessed: Option<FileTime>,
    /// The time of its creation.
    pub created: Option<FileTime>,
    /// Set for devices only.
    pub device: Option<DeviceNumber>,
}

impl FileStatus {
    /// A status with one link, and without an owner, blocks, times and a device.
    #[must_use]
    pub fn new(kind: FileKind, mode: u16, size: u64) -> Self {
        Self {
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            size,
            allocated: 0,
            modified: FileTime::EPOCH,
            changed: None,
            accessed: None,
            created: None,
            device: None,
        }
    }
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderChild {
    /// One component of a path, as bytes: never empty, `.` or `..`, and without `/` and NUL.
    pub name: Vec<u8>,
    pub id: FileId,
    /// The kind according to the folder's entry.
    pub kind: FileKind,
}

/// Receives the children of a folder, one after another, until it breaks.
pub type OnChild<'a> = dyn FnMut(FolderChild) -> ControlFlow<()> + 'a;

/// An extended attribute, as the Linux kernel would return it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The name with its namespace: `user.comment`, `system.posix_acl_access`.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

/// The reason why a part of a file system cannot be read. Other parts may still be readable.
#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// The bytes below could not be read.
    #[error("the {what} could not be read")]
    Read {
        /// The part that was to be read.
        what: String,
        source: io::Error,
    },
    /// The bytes were read and make no sense.
    #[error("the {what} is damaged: {problem}")]
    Damaged {
        /// The damaged part.
        what: String,
        problem: String,
    },
    /// There is no such file, or it is not of the requested kind.
    #[error("there is no {what}")]
    Absent {
        /// The requested item.
        what: String,
    },
    /// The file system is intact, but this reader does not support it.
    #[error("{what} cannot be read: {feature} is not supported")]
    Unsupported {
        /// The requested item.
        what: String,
        /// The feature that it needs.
        feature: String,
    },
}

/// The files of a file system: read-only, and usable by several threads at the same time.
pub trait FileSystem: Send + Sync {
    /// Returns the root folder.
    fn root(&self) -> FileId;

    /// Returns the metadata of a file.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError>;

    /// Passes the children of a folder to `visit`, in the folder's own order, from the child
    /// numbered `first` on, until `visit` breaks. A name that no path may contain is escaped,
    /// always in the same way.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]; children that were passed before stay valid.
    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError>;

    /// Looks up a name in a folder.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        find_child(name, |visit| self.children(folder, 0, visit))
    }

    /// Fills `into` with the bytes of a file from `offset`; holes read as zeros. Returns the number
    /// of bytes read, which is less than requested only at the end of the file.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError>;

    /// Returns the first range at or after `offset` that is not a hole; `None` if only holes
    /// follow. A reader that knows no holes reports the whole file as data.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let size = self.status(file)?.size;
        Ok((offset < size).then_some(offset..size))
    }

    /// Returns the ranges of the volume that hold the bytes of a file: in the order of the file,
    /// without its holes. Every byte of these ranges belongs to the file alone. The last range may
    /// extend past the end of the file to the end of its block.
    ///
    /// Returns `None` if the bytes are not stored as they are (compressed, or packed together with
    /// other data), or if the reader is not certain, as after an unclean shutdown.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let _ = file;
        Ok(None)
    }

    /// Returns the ranges of the volume that belong to no file and hold nothing that the file
    /// system needs, in ascending order. Returns `None` if that is not certain: the reader does not
    /// know, or the file system was not left in a clean state.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn free_places(&self) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        Ok(None)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError>;

    /// Returns the extended attributes in ascending order of their names. Returns none if the file
    /// system does not support them.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        let _ = file;
        Ok(Vec::new())
    }

    /// Returns the reason, in words, if this reader shows fewer or older files than a mount would;
    /// `None` if both show the same.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Tells that this file number is no longer in use until it is returned again. A file system
    /// that keeps a record for each returned file drops it; for all others this does nothing.
    fn forget(&self, file: FileId) {
        let _ = file;
    }
}

/// Finds the child with this name among those that a walk passes.
pub(crate) fn find_child(
    name: &[u8],
    walk: impl FnOnce(&mut OnChild<'_>) -> Result<(), FileSystemError>,
) -> Result<Option<FolderChild>, FileSystemError> {
    let mut found = None;
    walk(&mut |child| {
        if child.name == name {
            found = Some(child);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

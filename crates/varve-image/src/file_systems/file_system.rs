//! Files that can be looked at, whatever keeps them: the one trait that every reader of a file system implements, and that
//! listing, restoring, comparing, mounting and serving are written against.

use std::io;
use std::ops::{ControlFlow, Range};

use crate::file_systems::file_time::FileTime;

/// The number of a file: its inode where the file system has such, else one made from where it lies. The same file of the same
/// bytes has the same number whenever and by whomever it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    SymbolicLink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket of the Unix kind.
    Socket,
}

/// The numbers of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// All that `stat` would tell of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStatus {
    /// What it is.
    pub kind: FileKind,
    /// The permission bits, with setuid, setgid and sticky; where the file system has none, what a read-only one would show.
    pub mode: u16,
    /// The owner; 0 where the file system has none.
    pub uid: u32,
    /// The group; 0 where the file system has none.
    pub gid: u32,
    /// How many names it has.
    pub links: u32,
    /// Bytes of a file or of a link's target; 0 for all else.
    pub size: u64,
    /// Bytes that it occupies.
    pub allocated: u64,
    /// When its content last changed.
    pub modified: FileTime,
    /// When it last changed in any way.
    pub changed: Option<FileTime>,
    /// When it was last read.
    pub accessed: Option<FileTime>,
    /// When it was made.
    pub created: Option<FileTime>,
    /// Set for devices.
    pub device: Option<DeviceNumber>,
}

/// What a folder holds under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// As bytes, one component of a path: never empty, `.` or `..`, and without `/` and zero.
    pub name: Vec<u8>,
    /// Which file.
    pub id: FileId,
    /// What it is, as the folder says.
    pub kind: FileKind,
}

/// An extended attribute, as a kernel would give it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// With its namespace: `user.comment`, `system.posix_acl_access`.
    pub name: Vec<u8>,
    /// Any bytes.
    pub value: Vec<u8>,
}

/// Why something inside a file system cannot be read. What is beside it may well be readable.
#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// The bytes below could not be read.
    #[error("the {what} could not be read")]
    Read {
        /// What was wanted.
        what: String,
        /// What kept it from being read.
        source: io::Error,
    },
    /// The bytes are there and make no sense.
    #[error("the {what} is damaged: {problem}")]
    Damaged {
        /// What was looked at.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such file, or it is not of the kind that was asked for.
    #[error("there is no {what}")]
    Absent {
        /// What was wanted.
        what: String,
    },
    /// The file system is sound, but this reader cannot read it.
    #[error("{what} cannot be read: {feature} is not known here")]
    Unsupported {
        /// What was wanted.
        what: String,
        /// What it needs.
        feature: String,
    },
}

/// The files of a file system, for reading only, by many at the same time.
pub trait FileSystem: Send + Sync {
    /// The folder in which all else is.
    fn root(&self) -> FileId;

    /// All about a file but its name.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError>;

    /// Shows what a folder holds, in the folder's own order, from the child numbered `first` on, until the visitor has enough. A
    /// name that no path can have is shown as one that can, and the same whenever it is asked for.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]; children that were shown before stay valid.
    fn children(
        &self,
        folder: FileId,
        first: u64,
        visit: &mut dyn FnMut(Child) -> ControlFlow<()>,
    ) -> Result<(), FileSystemError>;

    /// What a folder holds under a name.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<Child>, FileSystemError> {
        let mut found = None;
        self.children(folder, 0, &mut |child| {
            if child.name == name {
                found = Some(child);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Fills `into` with a file's bytes from `offset`, zeros where it has holes. Returns how many there were: fewer than asked for
    /// only at the end.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError>;

    /// The first range of the file at or after `offset` that is no hole; `None` if there is none before the end. A reader that does not know says that
    /// all is data.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let size = self.status(file)?.size;
        Ok((offset < size).then_some(offset..size))
    }

    /// Where the bytes of a file lie in its volume: ranges in the order of the file, none for its holes, and every byte of them
    /// the file's own. `None` if they do not lie there as they are (compressed, or packed beside others), or if the reader does
    /// not know for certain, as of a file system that was not left in order. Such a range may be longer than the file, by what is left of its last block.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let _ = file;
        Ok(None)
    }

    /// The ranges of its volume that belong to no file and keep nothing that the file system needs, in ascending order. `None` if
    /// that is not certain: the reader does not know, or it was not left in a clean state.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn free_places(&self) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        Ok(None)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError>;

    /// In ascending order of their names; none where the file system has no such thing.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`]
    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError>;

    /// What is shown may be less, or older, than what a mount would show: why, in words; `None` if it is not.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Says that nobody will use this number any more until it is shown again. Who keeps a note for each file that was shown
    /// lets go of it; to everybody else this means nothing.
    fn forget(&self, file: FileId) {
        let _ = file;
    }
}

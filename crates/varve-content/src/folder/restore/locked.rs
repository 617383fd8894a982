//! Files and folders with a flag that refuses changes.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::folder::source::status::Status;
use crate::inode_flags::InodeFlags;

/// An immutable or append-only file or folder. Not even root can replace, remove or change it until
/// `chattr` removes the flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedEntry {
    /// `None` stands for the entry itself. An empty path is the destination.
    path: Option<PathBuf>,
    flags: InodeFlags,
}

impl LockedEntry {
    /// The entry with this status, if it is locked.
    pub(super) fn entry(status: &Status) -> Option<Self> {
        Self::new(status, None)
    }

    /// An open file or folder at a path, if it is locked. A locked folder refuses new, renamed and
    /// removed entries.
    pub(super) fn open(file: impl AsFd, path: &Path) -> Option<Self> {
        Self::new(&Status::of_open(file).ok()?, Some(path))
    }

    /// The entry with this name in a folder, if it is locked.
    pub(super) fn named(folder: impl AsFd, name: &[u8], path: &Path) -> Option<Self> {
        Self::new(&Status::of_name(folder, name).ok()?, Some(path))
    }

    fn new(status: &Status, path: Option<&Path>) -> Option<Self> {
        let flags = status.flags.locks();
        (!flags.is_empty()).then(|| Self { path: path.map(Path::to_path_buf), flags })
    }
}

impl fmt::Display for LockedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_deref() {
            None => f.write_str("it")?,
            Some(path) if path.as_os_str().is_empty() => f.write_str("the destination")?,
            Some(path) => write!(f, "{}", path.display())?,
        }
        let (name, letters) =
            match (self.flags.contain(InodeFlags::IMMUTABLE), self.flags.contain(InodeFlags::APPEND_ONLY)) {
                (true, true) => ("immutable and append-only", "ia"),
                (true, false) => ("immutable", "i"),
                (false, _) => ("append-only", "a"),
            };
        write!(f, " is {name}: `chattr -{letters}` allows changes again")
    }
}

impl std::error::Error for LockedEntry {}

/// Explains an error of an operation in a folder. For a locked folder, the system reports only that
/// the operation is not permitted.
pub(super) fn explain(error: Errno, folder: impl AsFd, path: &Path) -> io::Error {
    match LockedEntry::open(folder, path).filter(|_| error == Errno::PERM) {
        Some(locked) => io::Error::other(locked),
        None => error.into(),
    }
}

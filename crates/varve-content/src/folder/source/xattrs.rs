//! Reads and writes extended attributes of files of every kind, including ACLs and file
//! capabilities.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use varve_image::Xattr;

/// The kernel's limit for the names of one file, and for one value.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// A size that names and values seldom exceed.
const XATTR_BYTES_USUAL: usize = 1 << 10;
/// Upper bound on the attributes of one node, which is far below the limit of a record.
const XATTRS_BYTES_MAX: usize = 8 << 20;

/// The folder with a path to each open file of this process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The way to reach the attributes of a file.
pub(crate) enum XattrPlace<'a> {
    /// An open file or folder.
    Open(BorrowedFd<'a>),
    /// A node that cannot or must not be opened: its path through its open folder.
    Named(PathBuf),
}

impl<'a> XattrPlace<'a> {
    pub(crate) fn open(file: &'a impl AsFd) -> Self {
        Self::Open(file.as_fd())
    }

    /// The system calls for attributes take no folder descriptor, but `/proc` has a path to each
    /// open one. It leads to the folder itself, wherever it has been moved.
    pub(crate) fn named(folder: &impl AsFd, name: &[u8]) -> Self {
        let folder = Path::new(DESCRIPTORS).join(folder.as_fd().as_raw_fd().to_string());
        Self::Named(folder.join(OsStr::from_bytes(name)))
    }

    /// Returns true if the path leads nowhere because there is no `/proc`, as in a new root folder.
    fn lacks_proc(&self) -> bool {
        matches!(self, Self::Named(_)) && !Path::new(DESCRIPTORS).exists()
    }

    fn list_into(&self, names: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::fs::flistxattr(file, names),
            Self::Named(path) => rustix::fs::llistxattr(path, names),
        }
    }

    fn get_into(&self, name: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => rustix::fs::fgetxattr(file, name, value),
            Self::Named(path) => rustix::fs::lgetxattr(path, name, value),
        }
    }

    /// Reads all attributes, in ascending order of their names. None if the file system has no
    /// attributes.
    pub(crate) fn read(&self) -> io::Result<Vec<Xattr>> {
        let names = match read_into_room(|room| self.list_into(room)) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(Errno::NOENT) if self.lacks_proc() => {
                return Err(io::Error::other(
                    "its extended attributes are reached through /proc, which is not mounted here: `mount -t proc proc /proc`",
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let (mut xattrs, mut total_bytes) = (Vec::new(), 0);
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = match read_into_room(|room| self.get_into(name, room)) {
                Ok(value) => value,
                // The attribute was removed after its name was read.
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(error.into()),
            };
            total_bytes += name.len() + value.len();
            if total_bytes > XATTRS_BYTES_MAX {
                return Err(io::Error::other("its extended attributes are too large"));
            }
            xattrs.push(Xattr { name: name.to_vec(), value });
        }
        xattrs.sort_unstable();
        Ok(xattrs)
    }

    /// Removes one attribute.
    pub(crate) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
            Self::Named(path) => rustix::fs::lremovexattr(path, name),
        }
    }

    /// Sets one attribute.
    pub(crate) fn write(&self, xattr: &Xattr) -> io::Result<()> {
        let Xattr { name, value } = xattr;
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?,
            Self::Named(path) => rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty())?,
        }
        Ok(())
    }
}

/// Calls `read` with a small buffer, and with one of the maximum size if the small one is too
/// short. Returns the bytes read.
fn read_into_room(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut little = [0; XATTR_BYTES_USUAL];
    match read(&mut little) {
        Ok(filled) => Ok(little[..filled].to_vec()),
        Err(Errno::RANGE) => {
            let mut room = vec![0; XATTR_BYTES_MAX];
            let filled = read(&mut room)?;
            room.truncate(filled);
            Ok(room)
        }
        Err(error) => Err(error),
    }
}

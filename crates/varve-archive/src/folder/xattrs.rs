//! Extended attributes, read from and written to files of every kind. ACLs and file capabilities are such.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::records::node::Xattr;

/// What the kernel allows for the names of one file, and for one value.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// What the names of a file, or a value, seldom exceed.
const XATTR_BYTES_USUAL: usize = 1 << 10;
/// How much one node may have of them: far less than a record.
const XATTRS_BYTES_MAX: usize = 8 << 20;

/// Where the attributes of a file are found.
pub(super) enum XattrPlace<'a> {
    /// At an open file or folder.
    Open(BorrowedFd<'a>),
    /// At something that cannot be opened, or must not be: its path, by way of its open folder.
    Named(PathBuf),
}

impl<'a> XattrPlace<'a> {
    pub(super) fn open(file: &'a impl AsFd) -> Self {
        Self::Open(file.as_fd())
    }

    /// The system calls for attributes know no folders, but `/proc` has a path to each open one. It leads to the folder
    /// itself, wherever it has been moved.
    pub(super) fn named(folder: &impl AsFd, name: &[u8]) -> Self {
        let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
        Self::Named(folder.join(OsStr::from_bytes(name)))
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

    /// All attributes, in ascending order of their names; none where the file system knows no attributes.
    pub(super) fn read(&self) -> io::Result<Vec<Xattr>> {
        let names = match read_into_room(|room| self.list_into(room)) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let (mut xattrs, mut total_bytes) = (Vec::new(), 0);
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = match read_into_room(|room| self.get_into(name, room)) {
                Ok(value) => value,
                // Taken away since the names were read.
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

    /// Takes one attribute away.
    pub(super) fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
            Self::Named(path) => rustix::fs::lremovexattr(path, name),
        }
    }

    /// Sets one attribute.
    pub(super) fn write(&self, xattr: &Xattr) -> io::Result<()> {
        let Xattr { name, value } = xattr;
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?,
            Self::Named(path) => rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty())?,
        }
        Ok(())
    }
}

/// Hands over some room, and all that there may be if that was too little; returns what was filled of it.
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

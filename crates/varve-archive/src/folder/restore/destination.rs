//! The place that is restored to, and the one beside it where it is made.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::super::watch::Watch;
use super::RestoreFolderError;
use crate::node::NodeKind;

/// How much of its name what is made shows: the rest leaves room for the ending.
const SHOWN_NAME_BYTES_MAX: usize = 200;
/// How many unfinished ones may lie there from before.
const PARTIAL_COUNT_MAX: u32 = 10_000;

pub(super) struct Destination {
    path: PathBuf,
    parent: OwnedFd,
    name: Vec<u8>,
    partial_name: Vec<u8>,
    overwrite: bool,
}

impl Destination {
    /// Finds a name that is free, and makes the folder if it is to be one.
    pub(super) fn prepare(path: &Path, kind: NodeKind, overwrite: bool) -> Result<Self, RestoreFolderError> {
        let Some(name) = path.file_name().map(|name| name.as_bytes().to_vec()) else {
            return Err(RestoreFolderError::NoName { path: path.to_path_buf() });
        };
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let failed = |source: Errno| failed(path, source.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(CWD, parent, flags, Mode::empty()).map_err(failed)?;
        let mut destination =
            Self { path: path.to_path_buf(), parent, name, partial_name: Vec::new(), overwrite };
        if !overwrite && destination.exists().map_err(failed)? {
            return Err(RestoreFolderError::Exists { path: path.to_path_buf() });
        }
        destination.choose_partial_name(kind).map_err(failed)?;
        Ok(destination)
    }

    /// The folder in which everything is made.
    pub(super) fn parent(&self) -> &OwnedFd {
        &self.parent
    }

    /// The name under which it is made. Taken already if it is a folder's.
    pub(super) fn partial_name(&self) -> &[u8] {
        &self.partial_name
    }

    pub(super) fn failed(&self, source: io::Error) -> RestoreFolderError {
        failed(&self.path, source)
    }

    /// Makes what was restored durable, and gives it its name.
    pub(super) fn put_in_place(self, watch: Watch<'_>) -> Result<(), RestoreFolderError> {
        match self.rename() {
            Ok(is_replaced) => {
                // What was there has the other name now.
                if is_replaced && let Err(error) = self.remove_partial() {
                    watch.report(Path::new(OsStr::from_bytes(&self.partial_name)), error);
                }
                Ok(())
            }
            Err(error) => {
                self.discard();
                Err(if error == Errno::EXIST {
                    RestoreFolderError::Exists { path: self.path }
                } else {
                    self.failed(error.into())
                })
            }
        }
    }

    /// Takes away what was made. Whatever resists stays, under a name that says what it is.
    pub(super) fn discard(&self) {
        let _ = self.remove_partial();
    }

    fn exists(&self) -> Result<bool, Errno> {
        match rustix::fs::statat(&self.parent, self.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn choose_partial_name(&mut self, kind: NodeKind) -> Result<(), Errno> {
        let shown = &self.name[..self.name.len().min(SHOWN_NAME_BYTES_MAX)];
        for number in 0..PARTIAL_COUNT_MAX {
            let ending = format!(".varve-partial-{number}");
            let name = [b".", shown, ending.as_bytes()].concat();
            let taken = if kind == NodeKind::Folder {
                rustix::fs::mkdirat(&self.parent, name.as_slice(), Mode::RWXU)
            } else {
                match rustix::fs::statat(&self.parent, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => Ok(()),
                    other => other.and(Err(Errno::EXIST)),
                }
            };
            if taken != Err(Errno::EXIST) {
                self.partial_name = name;
                return taken;
            }
        }
        Err(Errno::EXIST)
    }

    /// Returns whether something was replaced.
    fn rename(&self) -> Result<bool, Errno> {
        rustix::fs::syncfs(&self.parent)?;
        let (from, to) = (self.partial_name.as_slice(), self.name.as_slice());
        let is_replaced = self.overwrite && self.exists()?;
        let flags = if is_replaced { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(&self.parent, from, &self.parent, to, flags) {
            // A file system that cannot promise not to replace: what was looked at last decides.
            Err(Errno::INVAL | Errno::NOSYS) if !is_replaced && !self.exists()? => {
                rustix::fs::renameat(&self.parent, from, &self.parent, to)?;
            }
            renamed => renamed?,
        }
        rustix::fs::fsync(&self.parent)?;
        Ok(is_replaced)
    }

    fn remove_partial(&self) -> io::Result<()> {
        // By way of the open folder, wherever it may have been moved.
        let parent = PathBuf::from(format!("/proc/self/fd/{}", self.parent.as_raw_fd()));
        let path = parent.join(OsStr::from_bytes(&self.partial_name));
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(&path),
            Ok(_) => std::fs::remove_file(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> RestoreFolderError {
    RestoreFolderError::Destination { path: path.to_path_buf(), source }
}

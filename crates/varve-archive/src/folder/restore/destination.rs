//! The place that is restored to, and the one beside it where it is made.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::super::status::kind_of;
use super::super::watch::Watch;
use super::replaced::{Hindrance, Kept};
use super::{RestoreFolderError, RestoreOptions};
use crate::node::NodeKind;
use crate::partial::{self, Rename, exists, is_unknown_flag, partial_names, rename_new};

pub(super) struct Destination {
    path: PathBuf,
    parent: OwnedFd,
    name: Vec<u8>,
    partial_name: Vec<u8>,
    overwrite: bool,
    kept: Kept,
}

/// Why what was made did not get its name.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    #[error("what is there cannot be replaced")]
    Rename(#[from] io::Error),
    /// On a file system that cannot exchange the two.
    #[error("what was there is at {} now, and cannot be put back", aside.display())]
    NotPutBack { aside: PathBuf, source: io::Error },
}

impl Destination {
    /// Finds a name that is free, and makes the folder if it is to be one. What would be replaced is looked at first.
    pub(super) fn prepare(
        path: &Path,
        kind: NodeKind,
        options: RestoreOptions<'_>,
    ) -> Result<Self, RestoreFolderError> {
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
        let kept = Kept::new(options.kept);
        let overwrite = options.overwrite;
        let mut destination =
            Self { path: path.to_path_buf(), parent, name, partial_name: Vec::new(), overwrite, kept };
        if exists(&destination.parent, &destination.name).map_err(failed)? {
            if !overwrite {
                return Err(RestoreFolderError::Exists { path: path.to_path_buf() });
            }
            destination.check_kind(kind)?;
            destination.look_through()?;
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

    /// Makes what was restored durable, and gives it its name. What it replaces is removed only if it `is_whole`. Returns whether something
    /// is left of that.
    pub(super) fn put_in_place(self, is_whole: bool, watch: Watch<'_>) -> Result<bool, RestoreFolderError> {
        let synced = rustix::fs::syncfs(&self.parent);
        let replaces = synced.and_then(|()| Ok(self.overwrite && exists(&self.parent, &self.name)?));
        let replaces = match replaces {
            Ok(replaces) => replaces,
            Err(error) => {
                self.discard();
                return Err(self.failed(error.into()));
            }
        };
        let replaced = if replaces { Some(self.replace()?) } else { self.take_name().map(|()| None)? };
        // It has its name now, whatever becomes of it when the power fails: nothing is taken away any more.
        rustix::fs::fsync(&self.parent).map_err(|error| self.failed(error.into()))?;
        let Some(old_name) = replaced else { return Ok(false) };
        let old_path = self.beside(&old_name);
        if !is_whole {
            watch.report(&old_path, KeptAside);
            return Ok(true);
        }
        match self.kept.remove(&self.parent, &old_name, &old_path) {
            Ok(()) => Ok(false),
            Err(hindrance) => {
                watch.report(&old_path, NotRemoved { source: hindrance });
                Ok(true)
            }
        }
    }

    /// Takes away what was made. Whatever resists stays, under a name that says what it is.
    pub(super) fn discard(&self) {
        let _ = self.kept.remove(&self.parent, &self.partial_name, &self.beside(&self.partial_name));
    }

    /// A device that somebody has named by mistake is not replaced by a file.
    fn check_kind(&self, kind: NodeKind) -> Result<(), RestoreFolderError> {
        let stat = rustix::fs::statat(&self.parent, self.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed(error.into()))?;
        match kind_of(FileType::from_raw_mode(stat.st_mode)) {
            Some(NodeKind::File | NodeKind::Folder | NodeKind::SymbolicLink) => Ok(()),
            Some(there) if there != kind => {
                Err(RestoreFolderError::OtherKind { path: self.path.clone(), there, kind })
            }
            _ => Ok(()),
        }
    }

    /// Whether what is there can be taken away without harm to anything else.
    fn look_through(&self) -> Result<(), RestoreFolderError> {
        let path = || self.path.clone();
        self.kept.look_through(&self.parent, &self.name, &self.path).map_err(|hindrance| match hindrance {
            Hindrance::Kept { kept } => RestoreFolderError::Holds { path: path(), kept },
            Hindrance::Mount { at } => RestoreFolderError::Mounted { path: path(), at },
            hindrance @ Hindrance::System { .. } => self.failed(io::Error::other(hindrance)),
        })
    }

    fn choose_partial_name(&mut self, kind: NodeKind) -> Result<(), Errno> {
        for name in partial_names(&self.name) {
            let taken = if kind == NodeKind::Folder {
                rustix::fs::mkdirat(&self.parent, name.as_slice(), Mode::RWXU)
            } else {
                exists(&self.parent, &name).and_then(|exists| if exists { Err(Errno::EXIST) } else { Ok(()) })
            };
            if taken != Err(Errno::EXIST) {
                self.partial_name = name;
                return taken;
            }
        }
        Err(Errno::EXIST)
    }

    /// Gives what was made a name that nothing had.
    fn take_name(&self) -> Result<(), RestoreFolderError> {
        match rename_new(&self.parent, &self.partial_name, &self.name, &partial::rename) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                self.discard();
                Err(RestoreFolderError::Exists { path: self.path.clone() })
            }
            // Nothing was made: what was to be restored is left out.
            Err(Errno::NOENT) => Err(self.failed(Errno::NOENT.into())),
            Err(error) => Err(self.unplaced(io::Error::from(error))),
        }
    }

    /// Gives what was made the name of what is there, which is looked at once more: much can have happened since the work began.
    /// Returns the name of what was replaced.
    fn replace(&self) -> Result<Vec<u8>, RestoreFolderError> {
        if !exists(&self.parent, &self.partial_name).map_err(|error| self.failed(error.into()))? {
            return Err(self.failed(Errno::NOENT.into()));
        }
        self.look_through().map_err(|error| self.unplaced(error))?;
        exchange(&self.parent, &self.partial_name, &self.name, &partial::rename).map_err(|error| {
            self.unplaced(match error {
                ExchangeError::Rename(error) => ReplaceError::Rename(error.into()),
                ExchangeError::NotPutBack { aside, error } => {
                    ReplaceError::NotPutBack { aside: self.beside(&aside), source: error.into() }
                }
            })
        })
    }

    /// The work is done, and is worth too much to be thrown away because of a name.
    fn unplaced(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RestoreFolderError {
        RestoreFolderError::Unplaced {
            path: self.path.clone(),
            finished: self.beside(&self.partial_name),
            source: source.into(),
        }
    }

    fn beside(&self, name: &[u8]) -> PathBuf {
        self.path.with_file_name(OsStr::from_bytes(name))
    }
}

/// What was there before is still there, or some of it.
#[derive(Debug, thiserror::Error)]
#[error("what was replaced is not all removed")]
struct NotRemoved {
    source: Hindrance,
}

/// What was there before stays: a full disk, or damage, must not cost that as well.
#[derive(Debug, thiserror::Error)]
#[error("this is what was there before: it stays, as not everything was restored")]
struct KeptAside;

/// Why two names were not exchanged.
#[derive(Debug, PartialEq, Eq)]
enum ExchangeError {
    /// Both are as they were.
    Rename(Errno),
    /// What had the second name has this one.
    NotPutBack { aside: Vec<u8>, error: Errno },
}

/// Gives `from` the name `to`, and returns the name that what was there has got. At no moment does anything cease to be.
fn exchange(folder: &OwnedFd, from: &[u8], to: &[u8], rename: &Rename) -> Result<Vec<u8>, ExchangeError> {
    match rename(folder, from, to, RenameFlags::EXCHANGE) {
        Ok(()) => return Ok(from.to_vec()),
        // In two steps then, where the file system knows no better. For a moment nothing has the name.
        Err(error) if is_unknown_flag(error) => {}
        Err(error) => return Err(ExchangeError::Rename(error)),
    }
    let mut moved = Err(Errno::EXIST);
    let mut aside = Vec::new();
    for name in partial_names(to) {
        moved = rename_new(folder, to, &name, rename);
        aside = name;
        if moved != Err(Errno::EXIST) {
            break;
        }
    }
    moved.map_err(ExchangeError::Rename)?;
    let Err(error) = rename_new(folder, from, to, rename) else { return Ok(aside) };
    match rename_new(folder, &aside, to, rename) {
        Ok(()) => Err(ExchangeError::Rename(error)),
        Err(_) => Err(ExchangeError::NotPutBack { aside, error }),
    }
}

fn failed(path: &Path, source: io::Error) -> RestoreFolderError {
    RestoreFolderError::Destination { path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with an old and a new one in it.
    fn old_and_new() -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("name", "old"), (".name.varve-partial-0", "new")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("file"), content).unwrap();
        }
        let opened = fs::File::open(folder.path()).unwrap().into();
        (folder, opened)
    }

    fn content(folder: &tempfile::TempDir, name: &[u8]) -> String {
        fs::read_to_string(folder.path().join(OsStr::from_bytes(name)).join("file")).unwrap()
    }

    const NAME: &[u8] = b"name";
    const PARTIAL: &[u8] = b".name.varve-partial-0";

    #[test]
    fn a_file_system_that_knows_no_flags_replaces_in_steps() {
        for unknown in [Errno::INVAL, Errno::NOSYS] {
            let (folder, opened) = old_and_new();
            let plain = move |folder: &OwnedFd, from: &[u8], to: &[u8], flags: RenameFlags| {
                if flags.is_empty() { partial::rename(folder, from, to, flags) } else { Err(unknown) }
            };
            let old_name = exchange(&opened, PARTIAL, NAME, &plain).unwrap();
            assert_eq!((content(&folder, NAME), content(&folder, &old_name)), ("new".into(), "old".into()));
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_put_back() {
        let (folder, opened) = old_and_new();
        // The new one cannot be moved.
        let stuck = |folder: &OwnedFd, from: &[u8], to: &[u8], flags: RenameFlags| match flags {
            RenameFlags::EXCHANGE => Err(Errno::INVAL),
            _ if from == PARTIAL => Err(Errno::BUSY),
            _ => partial::rename(folder, from, to, flags),
        };
        assert_eq!(exchange(&opened, PARTIAL, NAME, &stuck), Err(ExchangeError::Rename(Errno::BUSY)));
        assert_eq!((content(&folder, NAME), content(&folder, PARTIAL)), ("old".into(), "new".into()));
        // Nor can the old one be put back.
        let lost = |folder: &OwnedFd, from: &[u8], to: &[u8], flags: RenameFlags| match flags {
            RenameFlags::EXCHANGE => Err(Errno::INVAL),
            _ if to == NAME => Err(Errno::IO),
            _ => partial::rename(folder, from, to, flags),
        };
        let not_put_back = exchange(&opened, PARTIAL, NAME, &lost);
        let Err(ExchangeError::NotPutBack { aside, error: Errno::IO }) = not_put_back else {
            panic!("{not_put_back:?}")
        };
        assert_eq!((content(&folder, &aside), content(&folder, PARTIAL)), ("old".into(), "new".into()));
    }
}

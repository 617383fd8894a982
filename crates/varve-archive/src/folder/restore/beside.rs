//! Replacing one entry of a folder: the new one is made beside it under a partial name, and takes its name in one step.
//!
//! So a name always leads to a whole file: the old one or the new one, also after a power cut.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::guards::{Guards, Hindrance};
use crate::restoring::partial::{self, Rename, exists, is_unknown_flag, partial_names, rename_new};

/// What is there under the name that something gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing: what comes there meanwhile is not replaced.
    Nothing,
    /// Anything but a folder.
    File,
    /// A folder, or a file in the place of which a folder comes. It was looked through, and is removed.
    Tree,
}

/// Why something that was made did not get its name.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("it cannot get its name")]
    Rename(#[source] std::io::Error),
    /// On a file system that cannot exchange two names.
    #[error("what was there is at {} now, and cannot be put back", String::from_utf8_lossy(aside))]
    NotPutBack {
        aside: Vec<u8>,
        #[source]
        source: std::io::Error,
    },
    /// The new one is in place.
    #[error("what was there before is not all removed")]
    NotRemoved(#[source] Hindrance),
}

/// Makes a file that only its owner can see into, beside the one that will be called `name`. It is locked while it is open. Files
/// that a killed run has left are removed.
pub(super) fn create_file(folder: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for partial in partial_names(name) {
        remove_if_stale(folder, &partial);
        match rustix::fs::openat(folder, partial.as_slice(), flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // Where files cannot be locked, another run would at most remove this one, which then is missed.
                let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                return Ok((file, partial));
            }
        }
    }
    Err(Errno::EXIST)
}

/// Removes what a killed run has left under a partial name: a file of this user that nobody has locked, and that no unfinished
/// restore of its own goes on with.
fn remove_if_stale(folder: &OwnedFd, partial: &[u8]) {
    let is_stale = || -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, partial, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_nlink == 1;
        let has_state = exists(folder, &[partial, b".state"].concat())?;
        Ok(is_ours
            && !has_state
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    if is_stale() == Ok(true) {
        let _ = rustix::fs::unlinkat(folder, partial, AtFlags::empty());
    }
}

/// Makes something else than a file beside what will be called `name`, by the first partial name that is free.
pub(super) fn make(name: &[u8], mut make: impl FnMut(&[u8]) -> Result<(), Errno>) -> Result<Vec<u8>, Errno> {
    for partial in partial_names(name) {
        match make(&partial) {
            Ok(()) => return Ok(partial),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// Gives what was made its name. `path` is what it is called in messages.
pub(super) fn place(
    folder: &OwnedFd,
    partial: &[u8],
    name: &[u8],
    over: Over,
    guards: &Guards,
    path: &Path,
) -> Result<(), PlaceError> {
    let renamed = |error: Errno| PlaceError::Rename(error.into());
    match over {
        Over::Nothing => rename_new(folder, partial, name, &partial::rename).map_err(renamed),
        Over::File => rustix::fs::renameat(folder, partial, folder, name).map_err(renamed),
        Over::Tree => {
            let aside = exchange(folder, partial, name, &partial::rename).map_err(|error| match error {
                ExchangeError::Rename(error) => renamed(error),
                ExchangeError::NotPutBack { aside, error } => {
                    PlaceError::NotPutBack { aside, source: error.into() }
                }
            })?;
            guards.remove(folder, &aside, path).map_err(PlaceError::NotRemoved)
        }
    }
}

/// Why two names were not exchanged.
#[derive(Debug, PartialEq, Eq)]
enum ExchangeError {
    /// Both are as they were.
    Rename(Errno),
    /// What had the second name has this one.
    NotPutBack { aside: Vec<u8>, error: Errno },
}

/// Gives `from` the name `to`, and returns the name that what was there has got. At no moment does anything cease to be.
fn exchange(folder: &OwnedFd, from: &[u8], to: &[u8], rename: &Rename<'_>) -> Result<Vec<u8>, ExchangeError> {
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

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

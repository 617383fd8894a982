//! Replaces one entry of a folder: the new one is created beside it under a partial name, and takes
//! the name in one step.
//!
//! The name therefore always leads to a complete file: the old one or the new one, also after a
//! power cut.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::guards::{Guards, Hindrance};
use crate::restoring::partial::{self, Rename, exists, is_unknown_flag, partial_names, rename_new};

/// The existing entry under the name that the new one takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplacedEntry {
    /// None. An entry that appears meanwhile is not replaced.
    Nothing,
    /// Any entry except a folder.
    File,
    /// A folder, or a file that a folder replaces. It was searched for paths that must stay, and is
    /// removed.
    Tree,
}

/// Why a new entry did not get its name.
#[derive(Debug, thiserror::Error)]
pub(super) enum MoveIntoPlaceError {
    #[error("it cannot be renamed to its final name")]
    Rename(#[source] std::io::Error),
    /// Occurs only on a file system that cannot exchange two names.
    #[error("the old entry is at {} now, and cannot be put back", String::from_utf8_lossy(aside))]
    NotPutBack {
        aside: Vec<u8>,
        #[source]
        source: std::io::Error,
    },
    /// The new entry is in place, and the old one remains.
    #[error("the old entry is not completely removed")]
    NotRemoved(#[source] Hindrance),
}

/// Creates a file that only its owner can read, beside its future place `name`. It is locked while
/// it is open. Files that a killed run has left are removed.
pub(super) fn create_file(folder: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for partial in partial_names(name) {
        remove_if_stale(folder, &partial);
        match rustix::fs::openat(folder, partial.as_slice(), flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // If the file system has no locks, another run may at worst remove this file, and
                // the rename then fails.
                let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                return Ok((file, partial));
            }
        }
    }
    Err(Errno::EXIST)
}

/// Removes a file that a killed run has left under a partial name: it belongs to this user, is not
/// locked, and has no state file for a later run.
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

/// Creates an entry other than a file beside its future place `name`, under the first free partial
/// name.
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

/// Renames a new entry to its final name. `path` is its path in messages.
pub(super) fn place(
    folder: &OwnedFd,
    partial: &[u8],
    name: &[u8],
    over: ReplacedEntry,
    guards: &Guards,
    path: &Path,
) -> Result<(), MoveIntoPlaceError> {
    let renamed = |error: Errno| MoveIntoPlaceError::Rename(error.into());
    match over {
        ReplacedEntry::Nothing => rename_new(folder, partial, name, &partial::rename).map_err(renamed),
        ReplacedEntry::File => rustix::fs::renameat(folder, partial, folder, name).map_err(renamed),
        ReplacedEntry::Tree => {
            let aside = exchange(folder, partial, name, &partial::rename).map_err(|error| match error {
                ExchangeError::Rename(error) => renamed(error),
                ExchangeError::NotPutBack { aside, error } => {
                    MoveIntoPlaceError::NotPutBack { aside, source: error.into() }
                }
            })?;
            guards.remove(folder, &aside, path).map_err(MoveIntoPlaceError::NotRemoved)
        }
    }
}

/// Why two names were not exchanged.
#[derive(Debug, PartialEq, Eq)]
enum ExchangeError {
    /// Both names are unchanged.
    Rename(Errno),
    /// The old entry now has the name `aside`.
    NotPutBack { aside: Vec<u8>, error: Errno },
}

/// Renames `from` to `to`, and returns the new name of the old entry. Both entries exist at every
/// moment.
fn exchange(folder: &OwnedFd, from: &[u8], to: &[u8], rename: &Rename<'_>) -> Result<Vec<u8>, ExchangeError> {
    match rename(folder, from, to, RenameFlags::EXCHANGE) {
        Ok(()) => return Ok(from.to_vec()),
        // The file system cannot exchange names, so this takes two steps. For a moment nothing has
        // the name.
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

    /// A folder with an old and a new entry.
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
        // The new entry cannot be moved.
        let stuck = |folder: &OwnedFd, from: &[u8], to: &[u8], flags: RenameFlags| match flags {
            RenameFlags::EXCHANGE => Err(Errno::INVAL),
            _ if from == PARTIAL => Err(Errno::BUSY),
            _ => partial::rename(folder, from, to, flags),
        };
        assert_eq!(exchange(&opened, PARTIAL, NAME, &stuck), Err(ExchangeError::Rename(Errno::BUSY)));
        assert_eq!((content(&folder, NAME), content(&folder, PARTIAL)), ("old".into(), "new".into()));
        // The old entry cannot be put back either.
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

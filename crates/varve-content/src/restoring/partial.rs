//! Names for incomplete files beside their final name, and the rename to the final name.
//!
//! An attacker with write access to the folder could put a link under a predictable name. The names
//! are therefore numbered, and a name is taken only by creating a new file under it, without
//! following links.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

/// The final name is cut to this length, which leaves room for the suffix.
const SHOWN_NAME_BYTES_MAX: usize = 200;
/// Upper bound on partial files for one name in a folder.
const PARTIAL_COUNT_MAX: u32 = 10_000;

/// The candidate names for a partial file of `name`, in order of preference.
pub(crate) fn partial_names(name: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let shown = &name[..name.len().min(SHOWN_NAME_BYTES_MAX)];
    (0..PARTIAL_COUNT_MAX)
        .map(move |number| [b".", shown, format!(".varve-partial-{number}").as_bytes()].concat())
}

/// Renames a file within a folder from the first name to the second one, or exchanges the two.
pub(crate) type Rename<'a> = dyn Fn(&OwnedFd, &[u8], &[u8], RenameFlags) -> Result<(), Errno> + 'a;

/// Renames with the system call.
pub(crate) fn rename(folder: &OwnedFd, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), Errno> {
    if flags.is_empty() {
        return rustix::fs::renameat(folder, from, folder, to);
    }
    rustix::fs::renameat_with(folder, from, folder, to, flags)
}

/// Returns whether the file system or the kernel does not support the flags of a rename.
pub(crate) fn is_unknown_flag(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Renames without replacing: [`Errno::EXIST`] if the new name is in use.
pub(crate) fn rename_new(folder: &OwnedFd, from: &[u8], to: &[u8], rename: &Rename<'_>) -> Result<(), Errno> {
    match rename(folder, from, to, RenameFlags::NOREPLACE) {
        // The file system cannot refuse to replace atomically, so the last look decides.
        Err(error) if is_unknown_flag(error) => {
            if exists(folder, to)? {
                return Err(Errno::EXIST);
            }
            rename(folder, from, to, RenameFlags::empty())
        }
        renamed => renamed,
    }
}

/// Returns whether the name is in use, be it by a dangling link.
pub(crate) fn exists(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

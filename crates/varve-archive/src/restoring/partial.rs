//! The names of what is not complete yet, beside the one that it will have, and how it gets that one.
//!
//! Whoever can write in the folder too could lay a link under a name that is known beforehand. So the names are counted, and one is
//! taken only by making something new under it, through no link.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

/// How much of its name what is made shows: the rest leaves room for the ending.
const SHOWN_NAME_BYTES_MAX: usize = 200;
/// How many unfinished ones may lie there from before.
const PARTIAL_COUNT_MAX: u32 = 10_000;

/// The names under which something may be made that is to be called `name`, the first choice first.
pub(crate) fn partial_names(name: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let shown = &name[..name.len().min(SHOWN_NAME_BYTES_MAX)];
    (0..PARTIAL_COUNT_MAX)
        .map(move |number| [b".", shown, format!(".varve-partial-{number}").as_bytes()].concat())
}

/// Gives what has the first name in a folder the second one, or exchanges the two.
pub(crate) type Rename<'a> = dyn Fn(&OwnedFd, &[u8], &[u8], RenameFlags) -> Result<(), Errno> + 'a;

/// As the system does it.
pub(crate) fn rename(folder: &OwnedFd, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), Errno> {
    if flags.is_empty() {
        return rustix::fs::renameat(folder, from, folder, to);
    }
    rustix::fs::renameat_with(folder, from, folder, to, flags)
}

/// Whether a file system, or the kernel, does not know the flags of a rename.
pub(crate) fn is_unknown_flag(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Renames, and replaces nothing: [`Errno::EXIST`], if something has the name already.
pub(crate) fn rename_new(folder: &OwnedFd, from: &[u8], to: &[u8], rename: &Rename<'_>) -> Result<(), Errno> {
    match rename(folder, from, to, RenameFlags::NOREPLACE) {
        // A file system that cannot promise not to replace: what was looked at last decides.
        Err(error) if is_unknown_flag(error) => {
            if exists(folder, to)? {
                return Err(Errno::EXIST);
            }
            rename(folder, from, to, RenameFlags::empty())
        }
        renamed => renamed,
    }
}

/// Whether anything has the name, a link that leads nowhere too.
pub(crate) fn exists(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

//! Sets the flags that `chattr` sets.
//!
//! Flags are only added. A file keeps the flags that it inherited from its folder, and an existing
//! file keeps those that a user has set. An immutable or append-only file cannot be written,
//! renamed or linked, and no entry of such a folder can be created or removed. These two flags are
//! therefore set last, when everything else is done.
//!
//! ```text
//! created (compressed, not copied on write) ─> content ─> owner, mode, times ─> other flags
//!         ─> moved to its place ─> … ─> locked
//! ```
//!
//! If a restore is interrupted, none of its files is locked, and the next run can continue with all
//! of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use super::entry::open_beneath;
use crate::folder::source::status::{HostFileId, Status, open_file};
use crate::inode_flags::InodeFlags;
use crate::records::node::Node;

/// The capabilities that some flags need, by their numbers in `capabilities(7)`:
/// `CAP_LINUX_IMMUTABLE` and `CAP_SYS_RESOURCE`.
const CAPABILITIES: [(u32, InodeFlags); 2] = [(9, InodeFlags::LOCKS), (24, InodeFlags::JOURNALED_DATA)];

/// Sets flags, and counts the files that lack some of theirs. A missing flag is no failure: it may
/// be impossible for this user, or on this file system.
#[derive(Debug, Default)]
pub(super) struct FlagGiver {
    to_lock: Mutex<Vec<ToLock>>,
    lacking_count: AtomicU64,
}

/// A file or folder that is locked at the end.
#[derive(Debug)]
struct ToLock {
    /// The path from the root of the restore.
    path: PathBuf,
    /// Identifies the file. If another file has this path by then, it is not locked.
    id: HostFileId,
    locks: InodeFlags,
    /// True if it lacks another flag.
    is_lacking: bool,
}

impl FlagGiver {
    /// Sets the flags of an open file or folder. Flags that lock it are set at the end. `path` is
    /// its path from the root of the restore.
    pub(super) fn give(&self, file: impl AsFd, path: &Path, node: &Node) {
        let has_all = give_now(&file, node);
        self.give_rest(file, path, node, has_all);
    }

    /// Registers a file whose other flags were set before. `has_all` tells whether it has all of
    /// those.
    pub(super) fn give_rest(&self, file: impl AsFd, path: &Path, node: &Node, has_all: bool) {
        let locks = node.inode_flags.and(InodeFlags::LOCKS);
        if locks.is_empty() {
            return self.count(has_all);
        }
        match Status::of_open(file) {
            Ok(status) => {
                let to_lock = ToLock { path: path.into(), id: status.id, locks, is_lacking: !has_all };
                self.to_lock.lock().push(to_lock);
            }
            Err(_) => self.count(false),
        }
    }

    /// Counts a file that cannot be opened.
    pub(super) fn cannot_give(&self, node: &Node) {
        self.count(node.inode_flags.and(InodeFlags::KEPT).is_empty());
    }

    /// Sets the locking flags, durably. `root` is the restored node at its final place. Returns the
    /// number of files and folders that lack a flag.
    pub(super) fn finish(&self, root: Option<&OwnedFd>) -> io::Result<u64> {
        let to_lock = std::mem::take(&mut *self.to_lock.lock());
        for ToLock { path, id, locks, is_lacking } in &to_lock {
            let is_locked = root.is_some_and(|root| {
                open(root, path).is_ok_and(|file| {
                    Status::of_open(&file).is_ok_and(|status| status.id == *id) && add(&file, *locks)
                })
            });
            self.count(is_locked && !is_lacking);
        }
        if let Some(root) = root.filter(|_| !to_lock.is_empty()) {
            rustix::fs::syncfs(root)?;
        }
        Ok(self.lacking_count.load(Ordering::Relaxed))
    }

    fn count(&self, has_all: bool) {
        self.lacking_count.fetch_add(u64::from(!has_all), Ordering::Relaxed);
    }
}

/// Sets the flags that work only on an empty file. A later call of [`give_now`] checks the result.
pub(super) fn give_before_content(file: impl AsFd, node: &Node) {
    add(file, node.inode_flags.and(InodeFlags::BEFORE_CONTENT));
}

/// Sets all flags of an open file or folder that do not lock it. Returns whether it has them.
pub(super) fn give_now(file: impl AsFd, node: &Node) -> bool {
    add(file, node.inode_flags.without(InodeFlags::LOCKS))
}

/// Returns whether an open file or folder has these flags. True if its file system has no flags.
pub(super) fn has(file: impl AsFd, flags: InodeFlags) -> bool {
    ioctl_getflags(file).map_or(true, |there| InodeFlags::from_bits(there.bits()).contain(flags))
}

/// The flags that this process may set on its own files.
pub(super) fn permitted() -> InodeFlags {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    CAPABILITIES.into_iter().fold(InodeFlags::KEPT, |permitted, (capability, flags)| {
        if effective >> capability & 1 == 1 { permitted } else { permitted.without(flags) }
    })
}

/// Opens the node at a path below `root`.
fn open(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    match path.file_name() {
        None => Ok(rustix::io::dup(root)?),
        Some(name) => open_file(open_beneath(root, path.parent().unwrap_or(Path::new("")))?, name.as_bytes()),
    }
}

/// Adds flags to those of a file: all at once, or one by one if the system refuses some. Returns
/// whether the file has them all.
fn add(file: impl AsFd, flags: InodeFlags) -> bool {
    let flags = flags.and(InodeFlags::KEPT);
    let there = || ioctl_getflags(&file).map(|there| InodeFlags::from_bits(there.bits()));
    let set = |more: InodeFlags| -> Result<(), Errno> {
        ioctl_setflags(&file, IFlags::from_bits_retain(there()?.bits() | more.bits()))
    };
    let has_all = || there().is_ok_and(|there| there.contain(flags));
    if flags.is_empty() || has_all() {
        return true;
    }
    if set(flags).is_err() {
        for flag in flags.each() {
            let _ = set(flag);
        }
    }
    // Some file systems accept a flag without setting it.
    has_all()
}

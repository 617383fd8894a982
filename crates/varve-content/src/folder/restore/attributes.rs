//! Sets the attributes of a restored file: everything besides its content.
//!
//! The order matters: a change of owner removes setuid bits and capabilities, and a write changes
//! the time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::entry::INHERITED_BY_ALL;
use super::flag_giver;
use super::locked::LockedEntry;
use crate::folder::source::status::{Status, open_file, open_folder};
use crate::folder::source::xattrs::XattrPlace;
use crate::inode_flags::InodeFlags;
use crate::records::node::{Node, NodeKind};
use varve_image::Xattr;

/// Setuid and setgid.
const RUN_AS_BITS: u16 = 0o6000;
/// Extended attributes that any user may set on own files.
const XATTRS_FOR_ALL: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];

/// Extended attributes that the system sets itself, and that are not restored.
const XATTRS_OF_SYSTEM: &[u8] = b"security.";
/// The exception, which is restored.
const CAPABILITY: &[u8] = b"security.capability";

/// Selects the attributes that are restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    owners: bool,
    may_inherit: bool,
    /// The flags that this process may set.
    permitted: InodeFlags,
}

impl Attributes {
    /// `may_inherit` is set if new files may inherit an ACL from a folder that this restore did not
    /// create.
    pub(super) fn new(owners: bool, may_inherit: bool) -> Self {
        Self { owners, may_inherit, permitted: flag_giver::permitted() }
    }

    /// Sets the attributes of an open file or folder. Sets as many as possible, and returns the
    /// first error.
    pub(super) fn give_open(self, file: impl AsFd, node: &Node, has_times: bool) -> io::Result<()> {
        let owned = self.owner(node).map_or(Ok(()), |owner| give_owner(&file, owner));
        let attributed = self.give_xattrs(&XattrPlace::open(&file), node);
        let permitted = rustix::fs::fchmod(&file, self.mode(node));
        let timed = if has_times { rustix::fs::futimens(&file, &times(node)) } else { Ok(()) };
        owned?;
        attributed?;
        permitted?;
        Ok(timed?)
    }

    /// Sets the attributes of a new node that is not open.
    pub(super) fn give_named(self, folder: &OwnedFd, name: &[u8], node: &Node) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let owned =
            self.owner(node).map_or(Ok(()), |(uid, gid)| rustix::fs::chownat(folder, name, uid, gid, flags));
        let attributed = self.give_xattrs(&XattrPlace::named(folder, name), node);
        let permitted = match node.kind {
            NodeKind::SymbolicLink => Ok(()),
            _ => chmod_named(folder, name, self.mode(node)),
        };
        let timed = rustix::fs::utimensat(folder, name, &times(node), flags);
        owned?;
        attributed?;
        permitted?;
        Ok(timed?)
    }

    /// Sets the attributes of an open file or folder that existed before, and removes those that
    /// the node lacks. A locked file cannot be changed, so it must have them all.
    pub(super) fn give_existing(self, file: impl AsFd, node: &Node) -> io::Result<()> {
        let (place, status) = (XattrPlace::open(&file), Status::of_open(&file)?);
        if let Some(locked) = LockedEntry::entry(&status) {
            let has_all = status.mtime == node.mtime && self.are_given_at(&place, node, &status);
            return if has_all { Ok(()) } else { Err(io::Error::other(locked)) };
        }
        let mut taken = Ok(());
        for xattr in place.read()?.iter().filter(|xattr| self.is_extra(xattr, node)) {
            taken = taken.and(place.remove(&xattr.name));
        }
        self.give_open(&file, node, true)?;
        Ok(taken?)
    }

    /// Returns whether an existing node has all attributes that a restore would set, except its
    /// times.
    pub(super) fn are_given(self, folder: &OwnedFd, name: &[u8], node: &Node, status: &Status) -> bool {
        self.are_given_at(&XattrPlace::named(folder, name), node, status)
            && self.has_flags(folder, name, node)
    }

    /// Flags that this process cannot set are ignored. Otherwise they would be a difference for
    /// ever.
    fn has_flags(self, folder: &OwnedFd, name: &[u8], node: &Node) -> bool {
        let flags = node.inode_flags.and(self.permitted);
        let opened = match node.kind {
            _ if flags.is_empty() => return true,
            NodeKind::Folder => open_folder(folder, name),
            NodeKind::File => open_file(folder, name),
            _ => return true,
        };
        opened.map_or(true, |file| flag_giver::has(file, flags))
    }

    /// Compares all attributes except flags.
    fn are_given_at(self, place: &XattrPlace<'_>, node: &Node, status: &Status) -> bool {
        let has_mode = node.kind == NodeKind::SymbolicLink
            || Mode::from_raw_mode(u32::from(status.mode)) == self.mode(node);
        let has_owner = self.owner(node).is_none_or(|(uid, gid)| {
            uid.is_none_or(|uid| uid.as_raw() == status.uid)
                && gid.is_none_or(|gid| gid.as_raw() == status.gid)
        });
        if !has_mode || !has_owner {
            return false;
        }
        let Ok(there) = place.read() else { return false };
        let is_there = |xattr: &Xattr| there.binary_search(xattr).is_ok();
        node.xattrs.iter().filter(|xattr| self.is_given(xattr)).all(is_there)
            && !there.iter().any(|xattr| self.is_extra(xattr, node))
    }

    fn is_given(self, xattr: &Xattr) -> bool {
        self.owners || XATTRS_FOR_ALL.iter().any(|prefix| xattr.name.starts_with(prefix))
    }

    fn is_extra(self, xattr: &Xattr, node: &Node) -> bool {
        let is_of_system = xattr.name.starts_with(XATTRS_OF_SYSTEM) && xattr.name != CAPABILITY;
        self.is_given(xattr) && !is_of_system && !node.xattrs.iter().any(|own| own.name == xattr.name)
    }

    /// The owner to set. `None` leaves the file to the user who restores.
    fn owner(self, node: &Node) -> Option<(Option<Uid>, Option<Gid>)> {
        // The largest number is no valid id: the system takes it for no change.
        let uid = (node.uid != u32::MAX).then(|| Uid::from_raw(node.uid));
        let gid = (node.gid != u32::MAX).then(|| Gid::from_raw(node.gid));
        self.owners.then_some((uid, gid))
    }

    fn mode(self, node: &Node) -> Mode {
        let is_own = || {
            rustix::process::geteuid().as_raw() == node.uid && rustix::process::getegid().as_raw() == node.gid
        };
        let kept = if self.owners || is_own() { node.mode } else { node.mode & !RUN_AS_BITS };
        Mode::from_raw_mode(u32::from(kept))
    }

    fn give_xattrs(self, place: &XattrPlace<'_>, node: &Node) -> io::Result<()> {
        if self.may_inherit && node.kind != NodeKind::SymbolicLink {
            // Most files have none, and some file systems do not support them.
            let _ = place.remove(INHERITED_BY_ALL);
        }
        let mut given = Ok(());
        for xattr in node.xattrs.iter().filter(|xattr| self.is_given(xattr)) {
            given = given.and(place.write(xattr));
        }
        given
    }
}

/// Sets the owner and the group of an open file, unless it has them: a new file has those of this
/// process, and a change is a write to the journal of the file system.
fn give_owner(file: impl AsFd, (uid, gid): (Option<Uid>, Option<Gid>)) -> Result<(), Errno> {
    let there = rustix::fs::fstat(&file)?;
    let has_user = uid.is_none_or(|uid| uid.as_raw() == there.st_uid);
    let has_group = gid.is_none_or(|gid| gid.as_raw() == there.st_gid);
    if has_user && has_group { Ok(()) } else { rustix::fs::fchown(&file, uid, gid) }
}

/// Sets the mode of a node that is not open. A symbolic link that has replaced it meanwhile is not
/// followed.
fn chmod_named(folder: &OwnedFd, name: &[u8], mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pinned = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&pinned)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    rustix::fs::chmodat(CWD, format!("/proc/self/fd/{}", pinned.as_raw_fd()), mode, AtFlags::empty())
}

fn times(node: &Node) -> Timestamps {
    let (tv_sec, tv_nsec) = (node.mtime.seconds(), i64::from(node.mtime.subsecond_nanoseconds()));
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    }
}

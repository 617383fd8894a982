//! Giving a file all that it had besides its content.
//!
//! The order matters: a change of owner takes away setuid bits and capabilities, and a write changes the time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::super::status::{Status, open_file, open_folder};
use super::super::xattrs::XattrPlace;
use super::flag_giver;
use super::locked::Locked;
use crate::inode_flags::InodeFlags;
use crate::records::node::{Node, NodeKind, Xattr};

/// Setuid and setgid.
const RUN_AS_BITS: u16 = 0o6000;
/// What anybody may set on a file of theirs.
const XATTRS_FOR_ALL: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];

/// What anything may get from the folder that it is made in.
pub(super) const INHERITED_BY_ALL: &[u8] = b"system.posix_acl_access";
/// What the system itself gives to files, and nobody restores.
const XATTRS_OF_SYSTEM: &[u8] = b"security.";
/// But this.
const CAPABILITY: &[u8] = b"security.capability";

/// Which attributes are restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    owners: bool,
    may_inherit: bool,
    /// The flags that this process may set.
    permitted: InodeFlags,
}

impl Attributes {
    /// `may_inherit`: what is made may have got an ACL from a folder that is not ours.
    pub(super) fn new(owners: bool, may_inherit: bool) -> Self {
        Self { owners, may_inherit, permitted: flag_giver::permitted() }
    }

    /// To an open file or folder. The first error that is met is returned; what can be given is given.
    pub(super) fn give_open(self, file: impl AsFd, node: &Node, has_times: bool) -> io::Result<()> {
        let owned = self.owner(node).map_or(Ok(()), |(uid, gid)| rustix::fs::fchown(&file, uid, gid));
        let attributed = self.give_xattrs(&XattrPlace::open(&file), node);
        let permitted = rustix::fs::fchmod(&file, self.mode(node));
        let timed = if has_times { rustix::fs::futimens(&file, &times(node)) } else { Ok(()) };
        owned?;
        attributed?;
        permitted?;
        Ok(timed?)
    }

    /// To what was just made under this name, and is not opened.
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

    /// To an open file or folder that was there before: what it has and the node has not is taken
    /// away. One that is locked must have it all.
    pub(super) fn give_existing(self, file: impl AsFd, node: &Node) -> io::Result<()> {
        let (place, status) = (XattrPlace::open(&file), Status::of_open(&file)?);
        if let Some(locked) = Locked::entry(&status) {
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

    /// Whether something that was there before has all that would be given to it, but for its times.
    pub(super) fn are_given(self, folder: &OwnedFd, name: &[u8], node: &Node, status: &Status) -> bool {
        self.are_given_at(&XattrPlace::named(folder, name), node, status)
            && self.has_flags(folder, name, node)
    }

    /// A flag that this process cannot set is no difference: it would be one forever.
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

    /// All but flags.
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

    /// `None`: stays with whoever restores.
    fn owner(self, node: &Node) -> Option<(Option<Uid>, Option<Gid>)> {
        // The largest number is nobody's: it asks for no change.
        let uid = (node.uid != u32::MAX).then(|| Uid::from_raw(node.uid));
        let gid = (node.gid != u32::MAX).then(|| Gid::from_raw(node.gid));
        self.owners.then_some((uid, gid))
    }

    fn mode(self, node: &Node) -> Mode {
        let is_own = rustix::process::geteuid().as_raw() == node.uid
            && rustix::process::getegid().as_raw() == node.gid;
        let kept = if self.owners || is_own { node.mode } else { node.mode & !RUN_AS_BITS };
        Mode::from_raw_mode(u32::from(kept))
    }

    fn give_xattrs(self, place: &XattrPlace<'_>, node: &Node) -> io::Result<()> {
        if self.may_inherit && node.kind != NodeKind::SymbolicLink {
            // Most have none, and some file systems know of none.
            let _ = place.remove(INHERITED_BY_ALL);
        }
        let mut given = Ok(());
        for xattr in node.xattrs.iter().filter(|xattr| self.is_given(xattr)) {
            given = given.and(place.write(xattr));
        }
        given
    }
}

/// Sets the mode of something that is not opened. A link that somebody has put in its place meanwhile is not followed.
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

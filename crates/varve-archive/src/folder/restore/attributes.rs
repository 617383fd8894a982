//! Giving a file all that it had besides its content.
//!
//! The order matters: a change of owner takes away setuid bits and capabilities, and a write changes the time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid};

use super::super::xattrs::XattrPlace;
use crate::node::{Node, NodeKind, Xattr};

/// Setuid and setgid.
const RUN_AS_BITS: u16 = 0o6000;
/// What anybody may set on a file of theirs.
const XATTRS_FOR_ALL: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];

/// What anything may get from the folder that it is made in.
pub(super) const INHERITED_BY_ALL: &str = "system.posix_acl_access";

/// Which attributes are restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) owners: bool,
    /// Whether what is made may have got an ACL from a folder that is not ours.
    pub(super) may_inherit: bool,
}

impl Attributes {
    /// To an open file or folder. The first error that is met is returned; what can be given is given.
    pub(super) fn give_open(self, file: impl AsFd, node: &Node) -> io::Result<()> {
        let owned = self.owner(node).map_or(Ok(()), |(uid, gid)| rustix::fs::fchown(&file, uid, gid));
        let attributed = self.give_xattrs(&XattrPlace::open(&file), node);
        let permitted = rustix::fs::fchmod(&file, self.mode(node));
        let timed = rustix::fs::futimens(&file, &times(node));
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
            _ => rustix::fs::chmodat(folder, name, self.mode(node), AtFlags::empty()),
        };
        let timed = rustix::fs::utimensat(folder, name, &times(node), flags);
        owned?;
        attributed?;
        permitted?;
        Ok(timed?)
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
        let is_for_all = |xattr: &&Xattr| XATTRS_FOR_ALL.iter().any(|prefix| xattr.name.starts_with(prefix));
        let mut given = Ok(());
        for xattr in node.xattrs.iter().filter(|xattr| self.owners || is_for_all(xattr)) {
            given = given.and(place.write(xattr));
        }
        given
    }
}

fn times(node: &Node) -> Timestamps {
    let (tv_sec, tv_nsec) = (node.mtime.seconds(), i64::from(node.mtime.subsecond_nanoseconds()));
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    }
}

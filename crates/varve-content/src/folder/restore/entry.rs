//! Creates and opens single entries of a folder by one name, and never through a symbolic link.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::records::node::{Node, NodeKind};

/// The extended attribute that any new node may inherit from its folder.
pub(super) const INHERITED_BY_ALL: &[u8] = b"system.posix_acl_access";
/// The extended attributes that a new entry may inherit from its folder.
const INHERITED_XATTRS: [&[u8]; 2] = [b"system.posix_acl_default", INHERITED_BY_ALL];

/// Creates any node other than a file or a folder.
pub(super) fn make_node(parent: &OwnedFd, name: &[u8], node: &Node) -> Result<(), Errno> {
    let device = node.device.map_or(0, |device| rustix::fs::makedev(device.major, device.minor));
    let mknod = |file_type| rustix::fs::mknodat(parent, name, file_type, Mode::RUSR | Mode::WUSR, device);
    match node.kind {
        NodeKind::SymbolicLink => rustix::fs::symlinkat(node.target.as_slice(), parent, name),
        NodeKind::CharacterDevice => mknod(FileType::CharacterDevice),
        NodeKind::BlockDevice => mknod(FileType::BlockDevice),
        NodeKind::Fifo => mknod(FileType::Fifo),
        NodeKind::Socket => mknod(FileType::Socket),
        NodeKind::File | NodeKind::Folder => unreachable!("these are made elsewhere"),
    }
}

/// Removes the attributes that a new folder has inherited from its parent.
pub(super) fn remove_inherited(folder: &OwnedFd) {
    for name in INHERITED_XATTRS {
        // Most folders have none, and some file systems do not support them.
        let _ = rustix::fs::fremovexattr(folder, name);
    }
}

/// Opens a folder, without following a symbolic link.
pub(super) fn open_folder(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Returns whether a file can be copied after a hard link to it was refused. The file may have too
/// many names. Its first name may be out of reach, in a folder that already has its final mode. The
/// file system may have no hard links.
pub(super) fn can_be_copied(error: Errno) -> bool {
    matches!(
        error,
        Errno::ACCESS | Errno::MLINK | Errno::PERM | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS
    )
}

/// Opens a folder step by step, without following symbolic links.
pub(super) fn open_beneath(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let mut folder = rustix::io::dup(root)?;
    for name in path {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
    }
    Ok(folder)
}

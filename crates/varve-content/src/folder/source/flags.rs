//! Inode flags of open files.

use std::os::fd::{AsFd, OwnedFd};

use super::status::{Status, open_file};
use crate::inode_flags::InodeFlags;
use crate::records::node::Node;

/// The flags of an open file or folder. Empty if the file system has no flags.
pub(crate) fn read(file: impl AsFd) -> InodeFlags {
    rustix::fs::ioctl_getflags(file).map_or(InodeFlags::NONE, |flags| InodeFlags::of_system(flags.bits()))
}

/// Returns whether a file with unchanged times may still have its archived flags. A version that
/// did not know flags has archived it with none. Some file systems report flags in a status that
/// `lsattr` does not show, so the file is opened before it counts as changed.
pub(crate) fn may_be_those(status: &Status, folder: &OwnedFd, known: &Node) -> bool {
    status.flags.may_be(known.inode_flags)
        || open_file(folder, &known.name).is_ok_and(|file| read(file) == known.inode_flags)
}

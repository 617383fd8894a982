//! Inode flags of open files, and the flags that a status reports.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Statx;

use super::status::{Status, open_file};
use crate::inode_flags::InodeFlags;
use crate::records::node::Node;

/// The flags of an open file or folder. Empty if the file system has no flags.
pub(super) fn read(file: impl AsFd) -> InodeFlags {
    rustix::fs::ioctl_getflags(file).map_or(InodeFlags::NONE, |flags| InodeFlags::of_system(flags.bits()))
}

/// Returns whether a file with unchanged times may still have its archived flags. A version that
/// did not know flags has archived it with none. Some file systems report flags in a status that
/// `lsattr` does not show, so the file is opened before it counts as changed.
pub(super) fn may_be_those(status: &Status, folder: &OwnedFd, known: &Node) -> bool {
    status.flags.may_be(known.inode_flags)
        || open_file(folder, &known.name).is_ok_and(|file| read(file) == known.inode_flags)
}

/// The flags in a status: compressed, immutable, append-only and no-dump have the same bits there.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusFlags {
    set: InodeFlags,
    /// The flags that the file system supports.
    known: InodeFlags,
}

impl StatusFlags {
    const BITS: u64 = 0x74;

    pub(super) fn new(statx: &Statx) -> Self {
        let flags = |bits: u64| InodeFlags::from_bits(u32::try_from(bits & Self::BITS).unwrap_or(0));
        let known = flags(statx.stx_attributes_mask.bits());
        Self { set: flags(statx.stx_attributes.bits()).and(known), known }
    }

    /// Returns whether a file with this status may have these flags.
    fn may_be(self, flags: InodeFlags) -> bool {
        flags.and(self.known) == self.set
    }

    /// The flags that refuse changes.
    pub(super) fn locks(self) -> InodeFlags {
        self.set.and(InodeFlags::LOCKS)
    }
}

//! The inode flags that a status reports, without opening the file.

use rustix::fs::Statx;

use crate::inode_flags::InodeFlags;

/// The flags in a status: compressed, immutable, append-only and no-dump have the same bits there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusFlags {
    set: InodeFlags,
    /// The flags that the file system supports.
    known: InodeFlags,
}

impl StatusFlags {
    const BITS: u64 = 0x74;

    pub(crate) fn new(statx: &Statx) -> Self {
        let flags = |bits: u64| InodeFlags::from_bits(u32::try_from(bits & Self::BITS).unwrap_or(0));
        let known = flags(statx.stx_attributes_mask.bits());
        Self { set: flags(statx.stx_attributes.bits()).and(known), known }
    }

    /// Returns whether a file with this status may have these flags.
    pub(super) fn may_be(self, flags: InodeFlags) -> bool {
        flags.and(self.known) == self.set
    }

    /// The flags that refuse changes.
    pub(crate) fn locks(self) -> InodeFlags {
        self.set.and(InodeFlags::LOCKS)
    }
}

//! Keys of the items in trees, in their order.
//!
//! | offset | bytes | of a key                                                       |
//! |-------:|------:|----------------------------------------------------------------|
//! |      0 |     8 | the object: an inode, a tree, or a number with a fixed meaning |
//! |      8 |     1 | the kind of the item                                           |
//! |      9 |     8 | an offset: its meaning depends on the kind                     |

use crate::bytes::fields::{u8_at, u64_at};

pub(super) const KEY_BYTES: usize = 17;

/// The kinds of items, as the Linux kernel has them in `btrfs_tree.h`.
pub(super) mod kind {
    /// An inode.
    pub const INODE: u8 = 1;
    /// The names of an inode in one folder, under the folder's inode.
    pub const NAMES_OF_INODE: u8 = 12;
    /// A name of an inode for which the item above has no room, under a hash.
    pub const LONG_NAMES_OF_INODE: u8 = 13;
    /// An extended attribute, under the hash of its name.
    pub const XATTR: u8 = 24;
    /// Only in a log: from its offset on, the log has every entry of the folder, up to a position.
    pub const LOGGED_INDEXES: u8 = 72;
    /// An entry of a folder, under the hash of its name.
    pub const NAME_BY_HASH: u8 = 84;
    /// An entry of a folder, under its position.
    pub const NAME_BY_INDEX: u8 = 96;
    /// A part of a file, under its offset.
    pub const FILE_EXTENT: u8 = 108;
    /// Checksums of data, under the address of the first sector.
    pub const CHECKSUMS: u8 = 128;
    /// The root of a tree.
    pub const ROOT: u8 = 132;
    /// From a subvolume to the folder that it is in.
    pub const ROOT_PARENT: u8 = 144;
    /// A used extent, under its address and length.
    pub const EXTENT: u8 = 168;
    /// A node of a tree, under its address and level.
    pub const TREE_EXTENT: u8 = 169;
    /// A block group, under its address and length.
    pub const BLOCK_GROUP: u8 = 192;
    /// Free space, under its address and length.
    pub const FREE_EXTENT: u8 = 199;
    /// A bit for each sector of a range that is free, under its address and length.
    pub const FREE_BITMAP: u8 = 200;
    /// A part of a device that a chunk has, under its place.
    pub const DEVICE_EXTENT: u8 = 204;
    /// A device of the file system.
    pub const DEVICE: u8 = 216;
    /// A chunk, under its address.
    pub const CHUNK: u8 = 228;
}

/// The objects with fixed numbers.
pub(super) mod object {
    /// The devices in the tree of chunks.
    pub const DEVICES: u64 = 1;
    /// The tree with all used extents.
    pub const EXTENT_TREE: u64 = 2;
    /// The tree with the parts of devices that chunks have.
    pub const DEVICE_TREE: u64 = 4;
    /// The subvolume at the top.
    pub const TOP_SUBVOLUME: u64 = 5;
    /// The tree with the checksums of data.
    pub const CHECKSUM_TREE: u64 = 7;
    /// The tree of free space.
    pub const FREE_SPACE_TREE: u64 = 10;
    /// The tree of block groups, which are in the tree of extents without it.
    pub const BLOCK_GROUP_TREE: u64 = 11;
    /// The roots of logs.
    pub const LOGS: u64 = 6_u64.wrapping_neg();
    /// The first number of an inode, of a subvolume other than the top, and of the chunks.
    pub const FIRST_FREE: u64 = 256;
    /// The object of all checksums of data.
    pub const CHECKSUMS: u64 = 10_u64.wrapping_neg();
}

/// The place of an item in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreeKey {
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
}

impl TreeKey {
    pub(super) const fn new(object: u64, kind: u8, offset: u64) -> Self {
        Self { object, kind, offset }
    }

    /// Reads a key. Bytes beyond the end read as zero.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self::new(u64_at(bytes, 0), u8_at(bytes, 8), u64_at(bytes, 9))
    }

    /// Returns the greatest key before this one.
    pub(super) fn before(self) -> Option<Self> {
        let Self { object, kind, offset } = self;
        if let Some(offset) = offset.checked_sub(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = kind.checked_sub(1) {
            return Some(Self::new(object, kind, u64::MAX));
        }
        Some(Self::new(object.checked_sub(1)?, u8::MAX, u64::MAX))
    }

    /// Returns the least key after this one.
    pub(super) fn next(self) -> Option<Self> {
        let Self { object, kind, offset } = self;
        if let Some(offset) = offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = kind.checked_add(1) {
            return Some(Self::new(object, kind, 0));
        }
        Some(Self::new(object.checked_add(1)?, 0, 0))
    }

    /// Returns true if the key is for the same object and kind.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        (self.object, self.kind) == (other.object, other.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_before_and_one_after_it() {
        let key = TreeKey::new;
        let (first, last) = (key(0, 0, 0), key(u64::MAX, u8::MAX, u64::MAX));
        assert_eq!((first.before(), last.next()), (None, None));
        for (one, next) in [
            (key(5, 6, 7), key(5, 6, 8)),
            (key(5, 6, u64::MAX), key(5, 7, 0)),
            (key(5, u8::MAX, u64::MAX), key(6, 0, 0)),
        ] {
            assert_eq!((one.next(), next.before()), (Some(next), Some(one)));
        }
    }
}

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
    /// An extended attribute, under the hash of its name.
    pub const XATTR: u8 = 24;
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
    /// A device of the file system.
    pub const DEVICE: u8 = 216;
    /// A chunk, under its address.
    pub const CHUNK: u8 = 228;
}

/// The objects with fixed numbers.
pub(super) mod object {
    /// The devices in the tree of chunks.
    pub const DEVICES: u64 = 1;
    /// The subvolume at the top.
    pub const TOP_SUBVOLUME: u64 = 5;
    /// The tree with the checksums of data.
    pub const CHECKSUM_TREE: u64 = 7;
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

    /// Returns true if the key is for the same object and kind.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        (self.object, self.kind) == (other.object, other.kind)
    }
}

//! A node of a tree: a leaf with items, or the keys and addresses of the nodes below.
//!
//! | offset | bytes | of a node                              | offset | bytes | of an item in a leaf     |
//! |-------:|------:|----------------------------------------|-------:|------:|---------------------------|
//! |      0 |    32 | checksum of all bytes after it         |      0 |    17 | key                       |
//! |     32 |    16 | UUID of the file system                |     17 |     4 | place of the data, less 101 |
//! |     48 |     8 | its own address                        |     21 |     4 | bytes of the data         |
//! |     80 |     8 | generation                             |        |       | **of an inner entry**     |
//! |     96 |     4 | number of entries                      |      0 |    17 | first key of the node     |
//! |    100 |     1 | level; 0: a leaf                       |     17 |     8 | address                   |
//! |    101 |       | entries                                |     25 |     8 | generation                |

use std::ops::Range;

use varve_block::to_usize;

use super::checksum::CHECKSUM_ROOM;
use super::key::{KEY_BYTES, TreeKey};
use super::superblock::BtrfsSuperblock;
use crate::bytes::fields::{array_at, u8_at, u32_at, u64_at};

const HEAD_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const POINTER_BYTES: usize = 33;

/// The identity of a node, as its parent knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodePointer {
    pub(super) logical: u64,
    pub(super) level: u8,
    pub(super) generation: u64,
    /// `None` for the root of a tree.
    pub(super) first_key: Option<TreeKey>,
}

/// A checked node: its keys ascend, and its items lie inside it.
pub(super) struct BtrfsNode {
    bytes: Vec<u8>,
    count: usize,
    level: u8,
}

impl BtrfsNode {
    /// Checks the bytes of a node.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn parse(
        bytes: Vec<u8>,
        logical: u64,
        superblock: &BtrfsSuperblock,
    ) -> Result<Self, &'static str> {
        let checked = bytes.get(CHECKSUM_ROOM..).unwrap_or_default();
        if !superblock.checksum.is_of(&bytes, checked) {
            return Err("it does not match its checksum");
        }
        if array_at(&bytes, 32) != superblock.metadata_uuid {
            return Err("it belongs to another file system");
        }
        if u64_at(&bytes, 48) != logical {
            return Err("it belongs to another address");
        }
        let level = u8_at(&bytes, 100);
        let count = to_usize(u32_at(&bytes, 96));
        let entries_bytes = count.saturating_mul(if level == 0 { ITEM_BYTES } else { POINTER_BYTES });
        if entries_bytes > bytes.len().saturating_sub(HEAD_BYTES) {
            return Err("it has more entries than room");
        }
        let node = Self { bytes, count, level };
        if !(1..count).all(|slot| node.key(slot.saturating_sub(1)) < node.key(slot)) {
            return Err("its keys do not ascend");
        }
        let is_inside = |slot| {
            let data = node.data_range(slot);
            data.start >= HEAD_BYTES.saturating_add(entries_bytes) && data.end <= node.bytes.len()
        };
        if level == 0 && !(0..count).all(is_inside) {
            return Err("an item lies outside of it");
        }
        Ok(node)
    }

    /// Checks that this is the node that its parent means.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn check(&self, pointer: &NodePointer) -> Result<(), &'static str> {
        if self.level != pointer.level {
            return Err("it has the wrong level");
        }
        if u64_at(&self.bytes, 80) != pointer.generation {
            return Err("it is of another generation");
        }
        if self.count == 0 && (self.level > 0 || pointer.first_key.is_some()) {
            return Err("it is empty");
        }
        if pointer.first_key.is_some_and(|key| key != self.key(0)) {
            return Err("its first key is not the one in the node above");
        }
        Ok(())
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn entry(&self, slot: usize) -> &[u8] {
        let entry_bytes = if self.is_leaf() { ITEM_BYTES } else { POINTER_BYTES };
        let start = HEAD_BYTES.saturating_add(slot.saturating_mul(entry_bytes));
        self.bytes.get(start..start.saturating_add(entry_bytes)).unwrap_or_default()
    }

    pub(super) fn key(&self, slot: usize) -> TreeKey {
        TreeKey::parse(self.entry(slot))
    }

    /// Returns the number of entries with a key that is not greater.
    pub(super) fn count_up_to(&self, key: &TreeKey) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) <= *key {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }

    fn data_range(&self, slot: usize) -> Range<usize> {
        let entry = self.entry(slot);
        let number = |at| to_usize(u32_at(entry, at));
        let start = number(KEY_BYTES).saturating_add(HEAD_BYTES);
        start..start.saturating_add(number(KEY_BYTES.saturating_add(4)))
    }

    /// Returns the data of an item in a leaf.
    pub(super) fn data(&self, slot: usize) -> &[u8] {
        self.bytes.get(self.data_range(slot)).unwrap_or_default()
    }

    /// Returns the node below an entry.
    pub(super) fn below(&self, slot: usize) -> NodePointer {
        let entry = self.entry(slot);
        NodePointer {
            logical: u64_at(entry, KEY_BYTES),
            level: self.level.saturating_sub(1),
            generation: u64_at(entry, KEY_BYTES.saturating_add(8)),
            first_key: Some(self.key(slot)),
        }
    }
}

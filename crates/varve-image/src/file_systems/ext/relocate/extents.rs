//! The leaves of an extent tree: read strictly, and made anew for blocks that have moved.
//!
//! A node is a head of 12 bytes (magic, entries in use, room, levels below) and entries of 12
//! bytes: extents in a leaf, and the nodes below in an inner node.
//!
//! A leaf stays where it is. Its extents still cover the same blocks of the file, so the nodes
//! above it do not change. Only a leaf in the inode that becomes too full moves to a block of its
//! own.

use super::super::block_map::{DEPTH_MAX, EXTENT_MAGIC, INITIALIZED_MAX, NODE_BYTES, what};
use super::super::inode::ExtInode;
use super::super::{ExtFileSystem, damaged};
use super::MovedRun;
use crate::bytes::fields::{put, u16_at, u32_at};
use crate::file_systems::file_system::FileSystemError;

/// The extents that fit into an inode.
pub(super) const ROOT_EXTENTS_MAX: usize = 4;

/// Contiguous blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileExtent {
    pub(super) logical: u64,
    pub(super) count: u64,
    pub(super) physical: u64,
    /// True if the blocks are preallocated, and read as zeros.
    pub(super) reserved: bool,
}

/// A node without nodes below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExtentLeaf {
    /// Its block; `None` if it is in the inode.
    pub(super) block: Option<u64>,
    /// The number of extents that it has room for.
    pub(super) room: usize,
    pub(super) extents: Vec<FileExtent>,
}

impl ExtFileSystem {
    /// Reads the leaves of an extent tree, in the order of the file. Calls `on_node` with each
    /// block of the tree before it is read.
    pub(super) fn extent_leaves(
        &self,
        inode: &ExtInode,
        on_node: &mut dyn FnMut(u64) -> Result<(), FileSystemError>,
    ) -> Result<Vec<ExtentLeaf>, FileSystemError> {
        let root = inode.map();
        let depth = u16_at(&root, 6);
        if depth > DEPTH_MAX {
            return Err(damaged(what(inode), "its extent tree is too deep"));
        }
        let mut leaves = Vec::new();
        let mut below = Vec::new();
        self.add_node(inode, None, depth, &root, &mut leaves, &mut below)?;
        while let Some((block, depth)) = below.pop() {
            on_node(block)?;
            let node = self.metadata(block, || what(inode))?;
            self.check_extent_block(inode, &node)?;
            self.add_node(inode, Some(block), depth, &node, &mut leaves, &mut below)?;
        }
        let mut end = 0;
        for extent in leaves.iter().flat_map(|leaf| &leaf.extents) {
            if extent.logical < end {
                return Err(damaged(what(inode), "its extents overlap"));
            }
            end = extent.logical.saturating_add(extent.count);
        }
        Ok(leaves)
    }

    fn add_node(
        &self,
        inode: &ExtInode,
        block: Option<u64>,
        depth: u16,
        node: &[u8],
        leaves: &mut Vec<ExtentLeaf>,
        below: &mut Vec<(u64, u16)>,
    ) -> Result<(), FileSystemError> {
        let wrong = |problem: &str| Err(damaged(what(inode), problem));
        let (used, room) = (usize::from(u16_at(node, 2)), usize::from(u16_at(node, 4)));
        let bytes = node.get(NODE_BYTES..).unwrap_or_default();
        let entries = bytes.get(..used.saturating_mul(NODE_BYTES));
        let (Some(entries), true) = (entries, u16_at(node, 0) == EXTENT_MAGIC && u16_at(node, 6) == depth)
        else {
            return wrong("a node of its extent tree is malformed");
        };
        if used > room || room.saturating_mul(NODE_BYTES) > bytes.len() {
            return wrong("a node of its extent tree has an impossible number of entries");
        }
        let (entries, _) = entries.as_chunks::<NODE_BYTES>();
        if let Some(depth) = depth.checked_sub(1) {
            // The last one is read first, so that the leaves come in the order of the file.
            let number =
                |entry: &[u8; NODE_BYTES]| u64::from(u16_at(entry, 8)) << 32 | u64::from(u32_at(entry, 4));
            below.extend(entries.iter().rev().map(|entry| (number(entry), depth)));
            return Ok(());
        }
        let mut extents = Vec::new();
        for entry in entries {
            let length = u16_at(entry, 4);
            let reserved = length > INITIALIZED_MAX;
            let count = if reserved { length.saturating_sub(INITIALIZED_MAX) } else { length };
            let extent = FileExtent {
                logical: u64::from(u32_at(entry, 0)),
                count: u64::from(count),
                physical: u64::from(u16_at(entry, 6)) << 32 | u64::from(u32_at(entry, 8)),
                reserved,
            };
            let end = extent.physical.saturating_add(extent.count);
            if count == 0 || extent.physical == 0 || end > self.block_count() {
                return wrong("an extent of it has blocks that do not exist");
            }
            extents.push(extent);
        }
        leaves.push(ExtentLeaf { block, room, extents });
        Ok(())
    }
}

/// Returns the extents of a leaf after blocks of its file have moved. The moves are sorted by their
/// first block in the file.
pub(super) fn moved_extents(extents: &[FileExtent], moves: &[MovedRun]) -> Vec<FileExtent> {
    let mut new: Vec<FileExtent> = Vec::new();
    let mut add = |extent: FileExtent| {
        let max = u64::from(INITIALIZED_MAX).saturating_sub(u64::from(extent.reserved));
        if let Some(last) = new.last_mut()
            && last.reserved == extent.reserved
            && last.logical.saturating_add(last.count) == extent.logical
            && last.physical.saturating_add(last.count) == extent.physical
            && last.count.saturating_add(extent.count) <= max
        {
            last.count = last.count.saturating_add(extent.count);
        } else if extent.count > 0 {
            new.push(extent);
        }
    };
    for extent in extents {
        let end = extent.logical.saturating_add(extent.count);
        let mut at = extent.logical;
        let first = moves.partition_point(|moved| moved.logical.saturating_add(moved.count) <= at);
        let staying = |from: u64, to: u64| FileExtent {
            logical: from,
            count: to.saturating_sub(from),
            physical: extent.physical.saturating_add(from.saturating_sub(extent.logical)),
            reserved: extent.reserved,
        };
        for moved in moves.iter().skip(first).take_while(|moved| moved.logical < end) {
            let start = moved.logical.max(at);
            add(staying(at, start));
            at = moved.logical.saturating_add(moved.count).min(end);
            let physical = moved.to.saturating_add(start.saturating_sub(moved.logical));
            add(FileExtent {
                logical: start,
                count: at.saturating_sub(start),
                physical,
                reserved: extent.reserved,
            });
        }
        add(staying(at, end));
    }
    new
}

/// Writes the entries of a leaf, and clears the room that is left.
pub(super) fn write_leaf(node: &mut [u8], room: usize, extents: &[FileExtent]) {
    put(node, 2, &u16::try_from(extents.len()).unwrap_or(0).to_le_bytes());
    let (entries, _) = node.get_mut(NODE_BYTES..).unwrap_or_default().as_chunks_mut::<NODE_BYTES>();
    let mut extents = extents.iter();
    for entry in entries.iter_mut().take(room) {
        *entry = extents.next().map_or([0; NODE_BYTES], entry_of);
    }
}

/// Returns a new leaf of a whole block.
pub(super) fn new_leaf(block_bytes: usize, extents: &[FileExtent]) -> Vec<u8> {
    let mut node = vec![0; block_bytes];
    let room = new_leaf_room(block_bytes);
    put(&mut node, 0, &EXTENT_MAGIC.to_le_bytes());
    put(&mut node, 4, &u16::try_from(room).unwrap_or(u16::MAX).to_le_bytes());
    write_leaf(&mut node, room, extents);
    node
}

/// Returns the number of extents that fit into a block.
pub(super) fn new_leaf_room(block_bytes: usize) -> usize {
    block_bytes.saturating_sub(NODE_BYTES).checked_div(NODE_BYTES).unwrap_or(0).min(usize::from(u16::MAX))
}

/// Makes the root in an inode an inner node with one leaf, which begins with block `logical` of the
/// file.
pub(super) fn write_root_above(root: &mut [u8], logical: u64, leaf: u64) {
    let [one, two, three, four, five, six, ..] = leaf.to_le_bytes();
    let [first, second, third, fourth, ..] = logical.to_le_bytes();
    put(root, 2, &[1, 0]);
    put(root, 6, &[1, 0]);
    root.iter_mut().skip(NODE_BYTES).for_each(|byte| *byte = 0);
    put(root, NODE_BYTES, &[first, second, third, fourth, one, two, three, four, five, six]);
}

fn entry_of(extent: &FileExtent) -> [u8; NODE_BYTES] {
    let reserved = if extent.reserved { INITIALIZED_MAX } else { 0 };
    let length = u16::try_from(extent.count).unwrap_or(0).saturating_add(reserved);
    let [a, b, c, d, ..] = extent.logical.to_le_bytes();
    let [e, f] = length.to_le_bytes();
    let [w, x, y, z, g, h, ..] = extent.physical.to_le_bytes();
    [a, b, c, d, e, f, g, h, w, x, y, z]
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::file_systems::file_system::FileId;

    fn blocks(extents: &[FileExtent]) -> BTreeMap<u64, (u64, bool)> {
        let of = |extent: &FileExtent| {
            let FileExtent { logical, count, physical, reserved } = *extent;
            (0..count).map(move |at| (logical + at, (physical + at, reserved)))
        };
        extents.iter().flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn every_block_is_where_it_was_moved_to(
            lengths in prop::collection::vec((0..4_u64, 1..9_u64, any::<bool>()), 1..8),
            moved in prop::collection::vec((0..5_u64, 1..9_u64), 0..8),
        ) {
            let (mut logical, mut physical, mut extents) = (0, 1000, Vec::new());
            for (gap, count, reserved) in lengths {
                logical += gap;
                extents.push(FileExtent { logical, count, physical, reserved });
                (logical, physical) = (logical + count, physical + count + 3);
            }
            let (mut at, mut to, mut moves) = (0, 5000, Vec::new());
            for (gap, count) in moved {
                at += gap;
                moves.push(MovedRun { file: FileId(12), logical: at, from: 0, to, count });
                (at, to) = (at + count, to + count);
            }
            let new = moved_extents(&extents, &moves);
            let expected: BTreeMap<_, _> = blocks(&extents)
                .into_iter()
                .map(|(logical, (physical, reserved))| {
                    let inside = |moved: &&MovedRun| (moved.logical..moved.logical + moved.count).contains(&logical);
                    let to = moves.iter().find(inside).map(|moved| moved.to + logical - moved.logical);
                    (logical, (to.unwrap_or(physical), reserved))
                })
                .collect();
            prop_assert_eq!(blocks(&new), expected);
            prop_assert!(new.is_sorted_by(|one, two| one.logical + one.count <= two.logical));
        }
    }

    #[test]
    fn an_extent_is_never_too_long() {
        let extent =
            |logical, count, reserved| FileExtent { logical, count, physical: 50 + logical, reserved };
        let whole = [extent(0, 20_000, false), extent(20_000, 12_768, false)];
        assert_eq!(moved_extents(&whole, &[]), [extent(0, 32_768, false)]);
        let reserved = whole.map(|extent| FileExtent { reserved: true, ..extent });
        assert_eq!(moved_extents(&reserved, &[]), reserved);
        let entry =
            entry_of(&FileExtent { logical: 7, count: 9, physical: 0x1234_5678_9abc, reserved: true });
        assert_eq!(entry, [7, 0, 0, 0, 9, 0x80, 0x34, 0x12, 0xbc, 0x9a, 0x78, 0x56]);
    }
}

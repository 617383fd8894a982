//! The pointers of ext2 and ext3: read strictly, and rewritten in place.

use super::super::block_map::{BlockRun, DIRECT, what};
use super::super::inode::ExtInode;
use super::super::{ExtFileSystem, damaged};
use crate::bytes::fields::u32_at;
use crate::file_systems::file_system::FileSystemError;

/// The place of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PointerPlace {
    /// The block that has it; `None` if it is in the inode.
    pub(super) node: Option<u64>,
    /// Its number in the block or in the map of the inode.
    pub(super) index: usize,
}

/// A block with pointers to visit.
struct PointerNode {
    block: u64,
    logical: u64,
    /// The number of blocks of the file that each of its pointers covers.
    span: u64,
}

impl ExtFileSystem {
    /// Calls `visit` with each pointer to a block of the file, in the order of the file. Calls
    /// `on_node` with each block of pointers before it is read.
    pub(super) fn for_each_pointer(
        &self,
        inode: &ExtInode,
        on_node: &mut dyn FnMut(u64) -> Result<(), FileSystemError>,
        visit: &mut dyn FnMut(PointerPlace, BlockRun) -> Result<(), FileSystemError>,
    ) -> Result<(), FileSystemError> {
        let map = inode.map();
        let per_block = u64::from(self.superblock.block_bytes >> 2);
        let mut one = |node: Option<u64>, index: usize, logical: u64, pointer: u32| {
            let physical = u64::from(pointer);
            if physical >= self.block_count() {
                return Err(damaged(what(inode), &format!("it has block {physical}, which does not exist")));
            }
            let run = BlockRun { logical, count: 1, physical: Some(physical), reserved: false };
            visit(PointerPlace { node, index }, run)
        };
        for (index, logical) in (0..DIRECT).enumerate() {
            match u32_at(&map, index.saturating_mul(4)) {
                0 => {}
                pointer => one(None, index, logical, pointer)?,
            }
        }
        let (mut logical, mut span) = (DIRECT, 1_u64);
        for at in [48, 52, 56] {
            let mut below = Vec::new();
            if u32_at(&map, at) != 0 {
                below.push(PointerNode { block: u64::from(u32_at(&map, at)), logical, span });
            }
            while let Some(node) = below.pop() {
                on_node(node.block)?;
                let bytes = self.metadata(node.block, || what(inode))?;
                let (pointers, _) = bytes.as_chunks::<4>();
                let place =
                    |index: usize| node.logical.saturating_add(node.span.saturating_mul(index as u64));
                let present = pointers.iter().enumerate().filter(|(_, pointer)| **pointer != [0; 4]);
                if node.span == 1 {
                    for (index, pointer) in present {
                        one(Some(node.block), index, place(index), u32::from_le_bytes(*pointer))?;
                    }
                } else {
                    let span = node.span.checked_div(per_block).unwrap_or(1);
                    below.extend(present.rev().map(|(index, pointer)| PointerNode {
                        block: u64::from(u32::from_le_bytes(*pointer)),
                        logical: place(index),
                        span,
                    }));
                }
            }
            logical = logical.saturating_add(span.saturating_mul(per_block));
            span = span.saturating_mul(per_block);
        }
        Ok(())
    }
}

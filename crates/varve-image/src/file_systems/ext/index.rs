//! The index of a large folder: a tree from the hash of a name to the block that contains the name,
//! so that a lookup need not read all blocks.
//!
//! | block    | where its rows begin | a row                            |
//! |----------|---------------------:|----------------------------------|
//! | the root |                   32 | least hash, block; of the first, room and count of rows in place of the hash |
//! | a node   |                    8 | the same                         |
//!
//! The root has the kind of its hashes at 28, and the number of levels of nodes at 30. An index
//! that is invalid, or that does not match its checksum, is not used: the blocks of names contain
//! all names without it.

use std::ops::ControlFlow;

use super::folder::entry_bytes;
use super::inode::ExtInode;
use super::name_hash::{HashKind, hash};
use super::superblock::compatible;
use super::{ExtFileSystem, MetadataBlock};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{array_at, u8_at, u16_at, u32_at};
use crate::file_systems::bookmarks::ChildCounter;
use crate::file_systems::file_system::{FileSystemError, FolderChild};

const ROOT_ROWS_AT: usize = 32;
const NODE_ROWS_AT: usize = 8;
const ROW_BYTES: usize = 8;
const LEVELS_MAX: u8 = 3;
/// The upper bits of a block number have other meanings.
const BLOCK_MASK: u32 = 0x0fff_ffff;
/// Names with one hash may fill several blocks. More blocks than this are not plausible.
const LEAVES_MAX: usize = 64;

/// The answer of an index to a lookup.
pub(super) enum IndexAnswer {
    /// The child with this name, or none.
    Certain(Option<FolderChild>),
    /// There is no index that can be used.
    Unusable,
}

/// The rows of a node, in ascending order of their hashes.
struct HashRows {
    block: MetadataBlock,
    at: usize,
    count: usize,
}

impl HashRows {
    fn hash(&self, row: usize) -> u32 {
        // The first row has no hash: it covers all names before the second row.
        if row == 0 { 0 } else { u32_at(&self.block, self.place(row)) }
    }

    fn below(&self, row: usize) -> u32 {
        u32_at(&self.block, self.place(row).saturating_add(4)) & BLOCK_MASK
    }

    fn place(&self, row: usize) -> usize {
        row.saturating_mul(ROW_BYTES).saturating_add(self.at)
    }
}

impl ExtFileSystem {
    /// Looks up a name in a folder's index.
    pub(super) fn child_by_index(&self, folder: &ExtInode, name: &[u8]) -> IndexAnswer {
        // An escaped name differs from the stored one, so its hash is useless.
        let is_plain = !name.contains(&b'%');
        if !is_plain || !self.has_index(folder) || folder.has_inline_data() || folder.folds_case() {
            return IndexAnswer::Unusable;
        }
        match self.find_by_index(folder, name) {
            // An index is trusted about a missing name only if a checksum protects it.
            Ok(Some(found)) if found.is_some() || self.has_checksums() => IndexAnswer::Certain(found),
            Ok(_) | Err(_) => IndexAnswer::Unusable,
        }
    }

    fn has_index(&self, folder: &ExtInode) -> bool {
        self.superblock.compatible & compatible::FOLDER_INDEX != 0 && folder.is_indexed()
    }

    /// Returns true if block `number` of a folder belongs to its index and holds no names. The root
    /// is recognised by its `..` entry, which reaches to the end of the block. A node is one empty
    /// entry and matches its checksum: without the checksum it may be a damaged block of names.
    pub(super) fn is_of_index(&self, folder: &ExtInode, number: u64, block: &[u8]) -> bool {
        const PARENT_AT: usize = 12;
        let reaches_end = |at: usize| {
            let entry = block.get(at..).unwrap_or_default();
            entry_bytes(entry) == entry.len()
        };
        self.has_index(folder)
            && if number == 0 {
                reaches_end(PARENT_AT)
            } else {
                let is_node = u32_at(block, 0) == 0 && reaches_end(0);
                is_node && self.matches_checksum(folder, block, NODE_ROWS_AT)
            }
    }

    /// Returns `None` if the index cannot be used.
    fn find_by_index(
        &self,
        folder: &ExtInode,
        name: &[u8],
    ) -> Result<Option<Option<FolderChild>>, FileSystemError> {
        let Some(root) = self.folder_block(folder, 0)? else { return Ok(None) };
        let (kind, levels) = (u8_at(&root, 28), u8_at(&root, 30));
        let kind = HashKind::of(kind, self.superblock.has_unsigned_hashes);
        let is_root = u32_at(&root, 24) == 0 && u8_at(&root, 29) == 8 && levels < LEVELS_MAX;
        let (Some(kind), true) = (kind, is_root) else { return Ok(None) };
        let wanted = hash(name, kind, self.superblock.hash_seed);
        let Some(root) = self.rows(folder, root, ROOT_ROWS_AT) else { return Ok(None) };
        // The path from the root: nodes, and the row that was taken in each.
        let mut way = vec![(root, 0)];
        let Some(mut leaf) = self.descend(folder, &mut way, levels, wanted)? else { return Ok(None) };
        for _ in 0..LEAVES_MAX {
            let Some(block) = self.folder_block(folder, leaf)? else { return Ok(None) };
            if let Some(child) = self.child_in_block(folder, leaf, &block, name)? {
                return Ok(Some(Some(child)));
            }
            match self.next_leaf(folder, &mut way, wanted)? {
                Some(Some(next)) => leaf = next,
                Some(None) => return Ok(Some(None)),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Goes from the last node of `way` down `levels` more levels to the leaf for `wanted`.
    fn descend(
        &self,
        folder: &ExtInode,
        way: &mut Vec<(HashRows, usize)>,
        levels: u8,
        wanted: u32,
    ) -> Result<Option<u32>, FileSystemError> {
        for level in 0..=levels {
            let Some((rows, taken)) = way.last_mut() else { return Ok(None) };
            *taken = (1..rows.count).rev().find(|row| rows.hash(*row) <= wanted).unwrap_or(0);
            let below = rows.below(*taken);
            if level == levels {
                return Ok(Some(below));
            }
            let Some(block) = self.folder_block(folder, below)? else { return Ok(None) };
            let Some(rows) = self.rows(folder, block, NODE_ROWS_AT) else { return Ok(None) };
            way.push((rows, 0));
        }
        Ok(None)
    }

    /// Returns the leaf after the one that `way` leads to, if it continues the names of this hash:
    /// the lowest bit marks that. Returns `None` if the index cannot be used.
    fn next_leaf(
        &self,
        folder: &ExtInode,
        way: &mut Vec<(HashRows, usize)>,
        wanted: u32,
    ) -> Result<Option<Option<u32>>, FileSystemError> {
        let depth = way.len();
        while way.last().is_some_and(|(rows, taken)| taken.saturating_add(1) >= rows.count) {
            way.pop();
        }
        let Some((rows, taken)) = way.last_mut() else { return Ok(Some(None)) };
        *taken = taken.saturating_add(1);
        if rows.hash(*taken) != wanted | 1 {
            return Ok(Some(None));
        }
        let mut below = rows.below(*taken);
        while way.len() < depth {
            let Some(block) = self.folder_block(folder, below)? else { return Ok(None) };
            let Some(rows) = self.rows(folder, block, NODE_ROWS_AT) else { return Ok(None) };
            below = rows.below(0);
            way.push((rows, 0));
        }
        Ok(Some(Some(below)))
    }

    /// Returns a block of a folder; `None` if the folder has no such block.
    fn folder_block(&self, folder: &ExtInode, number: u32) -> Result<Option<MetadataBlock>, FileSystemError> {
        let number = u64::from(number);
        if number >= folder.size.div_ceil(u64::from(self.superblock.block_bytes).max(1)) {
            return Ok(None);
        }
        let run = self.run_at(folder, number)?;
        run.data()
            .map(|physical| self.metadata(physical, || format!("index of folder {}", folder.number)))
            .transpose()
    }

    /// Returns the rows of a node, if they are valid.
    fn rows(&self, folder: &ExtInode, block: MetadataBlock, at: usize) -> Option<HashRows> {
        let (room, count) =
            (usize::from(u16_at(&block, at)), usize::from(u16_at(&block, at.saturating_add(2))));
        let end = room.saturating_mul(ROW_BYTES).saturating_add(at);
        if count == 0 || count > room || end > block.len() {
            return None;
        }
        if self.has_checksums() && !self.matches_checksum(folder, &block, at) {
            return None;
        }
        let rows = HashRows { block, at, count };
        (1..count).all(|row| rows.hash(row.saturating_sub(1)) <= rows.hash(row)).then_some(rows)
    }

    /// Returns true if a node matches the checksum after the room for its rows, which begin at
    /// `at`.
    fn matches_checksum(&self, folder: &ExtInode, block: &[u8], at: usize) -> bool {
        let place = |row: u16| usize::from(row).saturating_mul(ROW_BYTES).saturating_add(at);
        let (end, used) = (place(u16_at(block, at)), place(u16_at(block, at.saturating_add(2))));
        let Some(covered) = block.get(..used).filter(|_| block.len() >= end.saturating_add(8)) else {
            return false;
        };
        let code = crc32c_from(folder.checksum_seed, covered);
        let code = crc32c_from(crc32c_from(code, &array_at::<4>(block, end)), &[0; 4]);
        code == u32_at(block, end.saturating_add(4))
    }

    fn child_in_block(
        &self,
        folder: &ExtInode,
        number: u32,
        block: &MetadataBlock,
        name: &[u8],
    ) -> Result<Option<FolderChild>, FileSystemError> {
        let mut found = None;
        let mut visit = |child: FolderChild| {
            if child.name == name {
                found = Some(child);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        self.check_folder_block(folder, u64::from(number), block)?;
        // The search ends here in either case.
        let _ =
            self.visit_entries(folder, block, &mut ChildCounter { next: 0, first: 0, visit: &mut visit })?;
        Ok(found)
    }
}

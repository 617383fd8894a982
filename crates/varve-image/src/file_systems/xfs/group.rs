//! The allocation groups: each has its own free blocks and inodes, in trees whose blocks lie in the
//! group itself.
//!
//! | sector | offset | field, big-endian (4 bytes each)                                   |
//! |-------:|-------:|--------------------------------------------------------------------|
//! |      0 |        | a copy of the superblock                                           |
//! |      1 |      0 | `XAGF`, 1, number of the group, its blocks                         |
//! |        |     16 | roots of the trees: free blocks by place, by length; owners        |
//! |        |     28 | their levels                                                       |
//! |        |     40 | first, last, number of the reserved blocks                         |
//! |        |     52 | free blocks, longest free extent, blocks of the trees but for roots |
//! |        | 88, 92 | root and levels of the tree of shared extents                      |
//! |      2 |      0 | `XAGI`, 1, number of the group, its blocks                         |
//! |        | 20, 24 | root and levels of the tree of inodes                              |
//! |        | 328, 332 | root and levels of the tree of free inodes                       |
//! |      3 |     36 | the reserved blocks, from 0 in version 4                           |
//!
//! A block of a tree has a magic number, its level (2 bytes), its number of records (2), and from
//! 16 or 56 (version 4, 5) records; or, above level 0, keys and behind the room for them pointers.

use std::collections::BTreeSet;
use std::ops::Range;

use varve_block::to_usize;

use super::seal::{XfsBlockKind, XfsSeal};
use super::{XfsFiles, damaged};
use crate::bytes::fields::{be16_at, be32_at};
use crate::bytes::ranges::Ranges;
use crate::file_systems::file_system::FileSystemError;
use crate::file_systems::metadata_cache::MetadataBlock;

const LEVELS_MAX: u32 = 10;
/// The inodes of a record in their tree.
const INODES_PER_RECORD: u32 = 64;
/// The number that names no block.
const NO_BLOCK: u32 = u32::MAX;

/// A kind of tree in a group.
#[derive(Debug, Clone, Copy)]
struct XfsTreeKind {
    block: XfsBlockKind,
    record_bytes: usize,
    key_bytes: usize,
}

const fn tree(name: &'static str, magics: [u32; 2], record_bytes: usize, key_bytes: usize) -> XfsTreeKind {
    XfsTreeKind { block: XfsBlockKind { name, magics }, record_bytes, key_bytes }
}

const FREE_BY_PLACE: XfsTreeKind = tree("the tree of free blocks by place", [0x4142_5442, 0x4142_3342], 8, 8);
const FREE_BY_LENGTH: XfsTreeKind =
    tree("the tree of free blocks by length", [0x4142_5443, 0x4142_3343], 8, 8);
const INODES: XfsTreeKind = tree("the tree of inodes", [0x4941_4254, 0x4941_4233], 16, 4);
const FREE_INODES: XfsTreeKind = tree("the tree of free inodes", [0x4649_4254, 0x4649_4233], 16, 4);
/// Its keys are the first and the last owner below.
const OWNERS: XfsTreeKind = tree("the tree of owners", [0, 0x524d_4233], 24, 40);
const SHARED: XfsTreeKind = tree("the tree of shared extents", [0, 0x5233_4643], 12, 4);

/// The blocks of one group, as its trees describe them. Blocks count from the first of the group.
pub(super) struct XfsGroup {
    pub(super) number: u32,
    pub(super) blocks: u32,
    /// The free extents, in ascending order.
    pub(super) free: Vec<Range<u64>>,
    /// Blocks that the group's own tables occupy.
    own: Ranges,
    /// The owners of blocks, if the file system records them.
    owned: Option<Ranges>,
    /// Free blocks, reserved blocks, and those of the trees of free blocks but for the roots.
    pub(super) unused_count: u64,
}

fn what(group: u32) -> String {
    format!("allocation group {group}")
}

impl XfsFiles {
    /// Reads a sector of a group's header.
    fn group_sector(&self, group: u32, sector: u32, kind: &XfsBlockKind) -> Result<Vec<u8>, FileSystemError> {
        let superblock = &self.superblock;
        let at = u64::from(sector).saturating_mul(superblock.sector_bytes.into());
        let block_bytes = u64::from(superblock.block_bytes).max(1);
        let block = u32::try_from(at.checked_div(block_bytes).unwrap_or(0)).unwrap_or(u32::MAX);
        let inside = to_usize(at.checked_rem(block_bytes).unwrap_or(0));
        let position = superblock.position_in_group(group, block);
        let position = position.ok_or_else(|| damaged(what(group), "it has no header"))?;
        let bytes = self.block_at(position, || what(group))?;
        let length = to_usize(superblock.sector_bytes);
        let bytes = bytes.get(inside..inside.saturating_add(length)).unwrap_or_default().to_vec();
        let place = position.saturating_mul(block_bytes).saturating_add(inside as u64);
        self.check_block(&bytes, place, std::slice::from_ref(kind), || what(group))?;
        self.check_age(group, &bytes)?;
        let is_own = match sector {
            1 | 2 => be32_at(&bytes, 8) == group && be32_at(&bytes, 12) == superblock.blocks_of_group(group),
            _ => true,
        };
        if is_own { Ok(bytes) } else { Err(damaged(what(group), "its header belongs to another group")) }
    }

    /// Passes the records of a tree of a group, in order. Adds its blocks to `own`.
    fn for_each_record(
        &self,
        group: u32,
        kind: &XfsTreeKind,
        (root, levels): (u32, u32),
        own: &mut Ranges,
        mut visit: impl FnMut(&[u8]) -> Result<(), FileSystemError>,
    ) -> Result<u64, FileSystemError> {
        let wrong = |problem: &str| damaged(what(group), &format!("{}: {problem}", kind.block.name));
        if levels == 0 || levels > LEVELS_MAX {
            return Err(wrong("its number of levels is impossible"));
        }
        let mut seen = BTreeSet::new();
        let mut waiting = vec![(root, levels.saturating_sub(1))];
        while let Some((block, level)) = waiting.pop() {
            if !seen.insert(block) {
                return Err(wrong("its blocks form a circle"));
            }
            let bytes = self.tree_block(group, block, kind)?;
            if u32::from(be16_at(&bytes, 4)) != level {
                return Err(wrong("a block has an impossible level"));
            }
            let count = usize::from(be16_at(&bytes, 6));
            let room = bytes.get(if self.superblock.has_checksums { 56 } else { 16 }..).unwrap_or_default();
            if level == 0 {
                let records = room.chunks_exact(kind.record_bytes);
                if count > records.len() {
                    return Err(wrong("a block has an impossible number of records"));
                }
                records.take(count).try_for_each(&mut visit)?;
                continue;
            }
            let most = room.len().checked_div(kind.key_bytes.saturating_add(4)).unwrap_or(0);
            let pointers = room.get(most.saturating_mul(kind.key_bytes)..).unwrap_or_default();
            if count > most || count == 0 {
                return Err(wrong("a block has an impossible number of records"));
            }
            let pointers = pointers.chunks_exact(4).take(count).map(|pointer| be32_at(pointer, 0));
            let first = waiting.len();
            waiting.extend(pointers.map(|pointer| (pointer, level.saturating_sub(1))));
            waiting.get_mut(first..).unwrap_or_default().reverse();
        }
        let count = seen.len() as u64;
        seen.into_iter().for_each(|block| own.add(u64::from(block)..u64::from(block).saturating_add(1)));
        Ok(count)
    }

    fn tree_block(
        &self,
        group: u32,
        block: u32,
        kind: &XfsTreeKind,
    ) -> Result<MetadataBlock, FileSystemError> {
        let bits = u32::from(self.superblock.group_block_bits);
        let exists = self.superblock.position_in_group(group, block).is_some();
        let number = u64::from(group).checked_shl(bits).unwrap_or(0) | u64::from(block);
        if !exists {
            return Err(damaged(what(group), &format!("{} lies outside of it", kind.block.name)));
        }
        let bytes = self.sealed_block(number, &kind.block, || what(group))?;
        self.check_age(group, &bytes)?;
        Ok(bytes)
    }

    /// Checks that a block has no change after the unmount: the parts of a disk may have been read
    /// at different times.
    fn check_age(&self, group: u32, block: &[u8]) -> Result<(), FileSystemError> {
        let change = XfsSeal::of(block).map_or(0, |seal| seal.change(block));
        let is_known = self.superblock.has_checksums && change != u64::MAX;
        if is_known && self.unmounted_at.is_some_and(|position| change > position) {
            return Err(damaged(what(group), "it has changes that are newer than the log"));
        }
        Ok(())
    }

    /// Reads everything that a group knows of its blocks, and checks that it agrees.
    pub(super) fn group(&self, number: u32) -> Result<XfsGroup, FileSystemError> {
        const SPACE: XfsBlockKind =
            XfsBlockKind { name: "the header of its free blocks", magics: [0x5841_4746; 2] };
        const INODE_HEADER: XfsBlockKind =
            XfsBlockKind { name: "the header of its inodes", magics: [0x5841_4749; 2] };
        let wrong = |problem: &str| damaged(what(number), problem);
        let superblock = &self.superblock;
        let space = self.group_sector(number, 1, &SPACE)?;
        let inodes = self.group_sector(number, 2, &INODE_HEADER)?;
        let blocks = superblock.blocks_of_group(number);
        let header_blocks = u64::from(superblock.sector_bytes).saturating_mul(4);
        let header_blocks = header_blocks.div_ceil(u64::from(superblock.block_bytes).max(1));
        let mut own = Ranges::default();
        own.add(0..header_blocks);
        self.add_reserved(number, &space, &mut own)?;

        let mut free = Vec::new();
        let mut end = 0_u64;
        let place_root = (be32_at(&space, 16), be32_at(&space, 28));
        let place_blocks = self.for_each_record(number, &FREE_BY_PLACE, place_root, &mut own, |record| {
            let start = u64::from(be32_at(record, 0));
            let is_sound = start >= end && be32_at(record, 4) > 0;
            end = start.saturating_add(be32_at(record, 4).into());
            free.push(start..end);
            if is_sound && end <= blocks.into() {
                Ok(())
            } else {
                Err(wrong("its free blocks are not in order"))
            }
        })?;
        let mut by_length = Vec::new();
        let length_root = (be32_at(&space, 20), be32_at(&space, 32));
        let length_blocks =
            self.for_each_record(number, &FREE_BY_LENGTH, length_root, &mut own, |record| {
                let start = u64::from(be32_at(record, 0));
                by_length.push(start..start.saturating_add(be32_at(record, 4).into()));
                Ok(())
            })?;
        by_length.sort_by_key(|extent| extent.start);
        if by_length != free {
            return Err(wrong("its two trees of free blocks differ"));
        }
        let length = |extent: &Range<u64>| extent.end.saturating_sub(extent.start);
        let free_count = free.iter().map(length).fold(0, u64::saturating_add);
        let longest = free.iter().map(length).max().unwrap_or(0);
        if (free_count, longest) != (be32_at(&space, 52).into(), be32_at(&space, 56).into()) {
            return Err(wrong("it counts other free blocks than its trees have"));
        }
        let mut tree_blocks = place_blocks.saturating_add(length_blocks).saturating_sub(2);

        self.add_inodes(number, &inodes, &mut own)?;
        let mut owned = None;
        if superblock.has(super::superblock::read_only::REVERSE_MAP) {
            let mut found = Ranges::default();
            let root = (be32_at(&space, 24), be32_at(&space, 36));
            let count = self.for_each_record(number, &OWNERS, root, &mut own, |record| {
                let start = u64::from(be32_at(record, 0));
                found.add(start..start.saturating_add(be32_at(record, 4).into()));
                Ok(())
            })?;
            tree_blocks = tree_blocks.saturating_add(count).saturating_sub(1);
            owned = Some(found);
        }
        if superblock.has(super::superblock::read_only::SHARED_EXTENTS) {
            let root = (be32_at(&space, 88), be32_at(&space, 92));
            self.for_each_record(number, &SHARED, root, &mut own, |_| Ok(()))?;
        }
        if superblock.has_lazy_counts && tree_blocks != u64::from(be32_at(&space, 60)) {
            return Err(wrong("it counts other blocks of trees than there are"));
        }
        let unused_count =
            free_count.saturating_add(be32_at(&space, 48).into()).saturating_add(be32_at(&space, 60).into());
        Ok(XfsGroup { number, blocks, free, own, owned, unused_count })
    }

    /// Adds the blocks that a group keeps for the growth of its trees.
    fn add_reserved(&self, number: u32, space: &[u8], own: &mut Ranges) -> Result<(), FileSystemError> {
        const RESERVED: XfsBlockKind =
            XfsBlockKind { name: "the list of its reserved blocks", magics: [0, 0x5841_464c] };
        let wrong = |problem: &str| damaged(what(number), problem);
        let sector = if self.superblock.has_checksums {
            self.group_sector(number, 3, &RESERVED)?
        } else {
            self.plain_sector(number, 3)?
        };
        let list = sector.get(if self.superblock.has_checksums { 36 } else { 0 }..).unwrap_or_default();
        let (list, _) = list.as_chunks::<4>();
        let [first, last, count] = [40, 44, 48].map(|at| to_usize(be32_at(space, at)));
        if first >= list.len() || last >= list.len() || count > list.len() {
            return Err(wrong("its reserved blocks are impossible"));
        }
        // The list is a ring. Before Linux 4.5, some systems used one place less of it.
        let span = if first <= last {
            last.saturating_sub(first)
        } else {
            last.saturating_add(list.len()).saturating_sub(first)
        };
        if count > 0 && span.saturating_add(1) != count {
            return Err(wrong("its reserved blocks are impossible"));
        }
        for block in list.iter().cycle().skip(first).take(count).map(|block| u32::from_be_bytes(*block)) {
            if block == NO_BLOCK || block >= self.superblock.blocks_of_group(number) {
                return Err(wrong("its reserved blocks are impossible"));
            }
            own.add(u64::from(block)..u64::from(block).saturating_add(1));
        }
        Ok(())
    }

    fn plain_sector(&self, group: u32, sector: u32) -> Result<Vec<u8>, FileSystemError> {
        let superblock = &self.superblock;
        let position = superblock.position_in_group(group, 0).unwrap_or(0);
        let at = position.saturating_mul(superblock.block_bytes.into());
        let at = at.saturating_add(u64::from(sector).saturating_mul(superblock.sector_bytes.into()));
        let mut bytes = vec![0; to_usize(superblock.sector_bytes)];
        let read = self.volume.read_at(at, &mut bytes);
        read.map_err(|source| FileSystemError::Read { what: what(group), source })?;
        Ok(bytes)
    }

    /// Adds the blocks of inodes, and of their trees.
    fn add_inodes(&self, number: u32, header: &[u8], own: &mut Ranges) -> Result<(), FileSystemError> {
        let bits = u32::from(self.superblock.inodes_per_block_bits);
        let mut chunks = Ranges::default();
        let root = (be32_at(header, 20), be32_at(header, 24));
        self.for_each_record(number, &INODES, root, own, |record| {
            let first = be32_at(record, 0);
            let holes = if self.superblock.needs(super::superblock::incompatible::SPARSE_INODES) {
                be16_at(record, 4)
            } else {
                0
            };
            // Each bit stands for four inodes that do not exist.
            for part in (0..16_u32).filter(|part| holes >> part & 1 == 0) {
                let part_inodes = INODES_PER_RECORD >> 4;
                let inode =
                    u64::from(first).saturating_add(u64::from(part).saturating_mul(part_inodes.into()));
                let end = inode.saturating_add(part_inodes.into());
                let end_block = end.saturating_add((1_u64 << bits.min(16)).saturating_sub(1)) >> bits.min(16);
                chunks.add(inode >> bits.min(16)..end_block);
            }
            Ok(())
        })?;
        if self.superblock.has_free_inode_tree() {
            let root = (be32_at(header, 328), be32_at(header, 332));
            self.for_each_record(number, &FREE_INODES, root, own, |_| Ok(()))?;
        }
        own.extend(chunks);
        Ok(())
    }
}

impl XfsGroup {
    /// Checks that no block is both free and in use.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let free: Ranges = self.free.iter().cloned().collect();
        if free.without(&self.own) != free {
            return Err(format!("{} calls blocks of its own tables free", what(self.number)));
        }
        if let Some(owned) = &self.owned {
            let all: Ranges = std::iter::once(0..u64::from(self.blocks)).collect();
            if all.without(owned) != free {
                return Err(format!(
                    "{} has free blocks with an owner, or others without one",
                    what(self.number)
                ));
            }
        }
        Ok(())
    }
}

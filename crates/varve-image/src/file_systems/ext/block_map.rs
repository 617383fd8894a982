//! Finds the blocks of a file: by extents, or by the pointer blocks of ext2 and ext3.

use super::inode::ExtInode;
use super::{ExtFileSystem, MetadataBlock, damaged};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{u16_at, u32_at};
use crate::file_systems::file_system::FileSystemError;
use varve_block::to_usize;

pub(super) const EXTENT_MAGIC: u16 = 0xf30a;
pub(super) const NODE_BYTES: usize = 12;
/// More levels than 2^32 blocks can need.
pub(super) const DEPTH_MAX: u16 = 5;
/// Longer extents are preallocated: they have blocks, but read as zeros.
pub(super) const INITIALIZED_MAX: u16 = 32768;
pub(super) const DIRECT: u64 = 12;

/// Blocks of a file that are also contiguous on the disk, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRun {
    /// The offset of the first block in the file, in blocks.
    pub logical: u64,
    /// The number of blocks. For the last hole of a file, it may exceed the end of the file.
    pub count: u64,
    /// The first block on the volume; `None` for a hole.
    pub physical: Option<u64>,
    /// True if the blocks are only preallocated and read as zeros.
    pub reserved: bool,
}

impl BlockRun {
    fn hole(logical: u64, count: u64) -> Self {
        Self { logical, count, physical: None, reserved: false }
    }

    /// Returns the first block with data; `None` if the run reads as zeros.
    pub(super) fn data(&self) -> Option<u64> {
        self.physical.filter(|_| !self.reserved)
    }
}

impl ExtFileSystem {
    /// Returns the run that contains `logical`, from there on. It is never empty.
    pub(super) fn run_at(&self, inode: &ExtInode, logical: u64) -> Result<BlockRun, FileSystemError> {
        self.run_before(inode, logical, &mut 0)
    }

    /// Does the same, and sets `end` to the end of the run. After an error, `end` is the known end
    /// of the unreadable part of the map: the blocks after it may be readable.
    pub(super) fn run_before(
        &self,
        inode: &ExtInode,
        logical: u64,
        end: &mut u64,
    ) -> Result<BlockRun, FileSystemError> {
        *end = u64::MAX;
        if inode.has_inline_data() {
            return Ok(BlockRun::hole(logical, u64::MAX.saturating_sub(logical)));
        }
        let run = match u32::try_from(logical) {
            // No file has blocks beyond 2^32.
            Err(_) => BlockRun::hole(logical, u64::MAX.saturating_sub(logical)),
            Ok(logical) if inode.has_extents() => self.run_in_extents(inode, logical, end)?,
            Ok(logical) => self.run_in_pointers(inode, logical, end)?,
        };
        *end = logical.saturating_add(run.count);
        if let Some(physical) = run.physical {
            let end = physical.checked_add(run.count);
            if physical < self.superblock.first_data_block.max(1)
                || end.is_none_or(|end| end > self.superblock.block_count)
            {
                let problem = format!("its block {logical} is block {physical}, which does not exist");
                return Err(damaged(what(inode), &problem));
            }
        }
        Ok(run)
    }

    /// Sets `end` to the end of the branch that was followed: a hole extends no further.
    fn run_in_extents(
        &self,
        inode: &ExtInode,
        logical: u32,
        end: &mut u64,
    ) -> Result<BlockRun, FileSystemError> {
        let root = inode.map();
        let mut node = ExtentNode::parse(&root, inode)?;
        let mut block;
        *end = 1_u64 << 32;
        if node.depth > DEPTH_MAX {
            return Err(damaged(what(inode), "its extent tree is too deep"));
        }
        loop {
            let (entry, next) = node.find(logical);
            if let Some(next) = next {
                *end = u64::min(*end, u64::from(next));
            }
            let hole = BlockRun::hole(u64::from(logical), end.saturating_sub(u64::from(logical)).max(1));
            let Some(entry) = entry else { return Ok(hole) };
            if node.depth == 0 {
                return Ok(leaf_run(entry, logical, *end).unwrap_or(hole));
            }
            let below = u64::from(u16_at(entry, 8)) << 32 | u64::from(u32_at(entry, 4));
            let depth = node.depth;
            block = self.metadata(below, || what(inode))?;
            self.check_extent_block(inode, &block)?;
            node = ExtentNode::parse(&block, inode)?;
            if node.depth.checked_add(1) != Some(depth) {
                return Err(damaged(what(inode), "the levels of its extent tree are inconsistent"));
            }
        }
    }

    pub(super) fn check_extent_block(
        &self,
        inode: &ExtInode,
        block: &MetadataBlock,
    ) -> Result<(), FileSystemError> {
        if !self.has_checksums() {
            return Ok(());
        }
        let (at, code) = extent_block_checksum(inode, block);
        if code != u32_at(block, at) {
            return Err(damaged(what(inode), "a node of its extent tree does not match its checksum"));
        }
        Ok(())
    }

    /// Sets `end` to the end of the range that the followed pointer covers.
    fn run_in_pointers(
        &self,
        inode: &ExtInode,
        logical: u32,
        end: &mut u64,
    ) -> Result<BlockRun, FileSystemError> {
        let logical = u64::from(logical);
        let map = inode.map();
        let per_block = u64::from(self.superblock.block_bytes >> 2);
        if logical < DIRECT {
            let direct = map.get(..48).unwrap_or_default();
            return Ok(pointer_run(direct, logical, logical, 1));
        }
        // The number of blocks that a pointer covers, level by level.
        let (mut place, mut span, mut slot) = (logical.saturating_sub(DIRECT), per_block, 48);
        while place >= span && slot < 56 {
            place = place.saturating_sub(span);
            span = span.saturating_mul(per_block);
            slot = usize::saturating_add(slot, 4);
        }
        let left = span.saturating_sub(place);
        if left == 0 || place >= span {
            return Ok(BlockRun::hole(logical, u64::MAX.saturating_sub(logical)));
        }
        let mut pointer = u32_at(&map, slot);
        if pointer == 0 {
            return Ok(BlockRun::hole(logical, left));
        }
        loop {
            *end = logical.saturating_add(span.saturating_sub(place));
            let block = self.metadata(u64::from(pointer), || what(inode))?;
            span = span.checked_div(per_block).unwrap_or(1).max(1);
            let index = place.checked_div(span).unwrap_or(0);
            place = place.checked_rem(span).unwrap_or(0);
            let run = pointer_run(&block, index, logical, span);
            if span == 1 {
                return Ok(run);
            }
            match run.physical {
                None => return Ok(BlockRun { count: run.count.saturating_sub(place), ..run }),
                Some(below) => pointer = u32::try_from(below).unwrap_or(0),
            }
        }
    }

    /// Calls `visit` with every run of a file that has blocks, in the order of the file.
    pub(super) fn for_each_run(
        &self,
        inode: &ExtInode,
        mut visit: impl FnMut(BlockRun) -> Result<(), FileSystemError>,
    ) -> Result<(), FileSystemError> {
        let (mut logical, mut found) = (0_u64, 0_u64);
        while logical < u64::from(u32::MAX) {
            let run = self.run_at(inode, logical)?;
            if run.physical.is_some() {
                found = found.saturating_add(run.count);
                self.check_amount(inode, found)?;
                visit(run)?;
            }
            logical = logical.saturating_add(run.count);
        }
        Ok(())
    }

    /// A file with more blocks than the file system has a cycle in its map.
    pub(super) fn check_amount(&self, inode: &ExtInode, blocks: u64) -> Result<(), FileSystemError> {
        if blocks > self.superblock.block_count {
            return Err(damaged(what(inode), "it has more blocks than the file system"));
        }
        Ok(())
    }
}

/// Returns the place of the checksum in a block of an extent tree, and the checksum that belongs
/// there.
pub(super) fn extent_block_checksum(inode: &ExtInode, block: &[u8]) -> (usize, u32) {
    let at = NODE_BYTES.saturating_mul(usize::from(u16_at(block, 4))).saturating_add(NODE_BYTES);
    (at, crc32c_from(inode.checksum_seed, block.get(..at).unwrap_or_default()))
}

pub(super) fn what(inode: &ExtInode) -> String {
    format!("map of inode {}", inode.number)
}

/// A node of an extent tree, with its entries in the order of the file.
struct ExtentNode<'a> {
    depth: u16,
    entries: &'a [u8],
}

impl<'a> ExtentNode<'a> {
    fn parse(bytes: &'a [u8], inode: &ExtInode) -> Result<Self, FileSystemError> {
        let used = usize::from(u16_at(bytes, 2)).saturating_mul(NODE_BYTES);
        let entries = bytes.get(NODE_BYTES..).and_then(|entries| entries.get(..used));
        match entries {
            Some(entries) if u16_at(bytes, 0) == EXTENT_MAGIC => {
                Ok(Self { depth: u16_at(bytes, 6), entries })
            }
            _ => Err(damaged(what(inode), "a node of its extent tree is malformed")),
        }
    }

    /// Returns the last entry that begins at or before `logical`, and the start of the next one.
    fn find(&self, logical: u32) -> (Option<&'a [u8]>, Option<u32>) {
        let (entries, _) = self.entries.as_chunks::<NODE_BYTES>();
        let after = entries.partition_point(|entry| u32_at(entry, 0) <= logical);
        let entry = after.checked_sub(1).and_then(|place| entries.get(place));
        (entry.map(<[u8; NODE_BYTES]>::as_slice), entries.get(after).map(|entry| u32_at(entry, 0)))
    }
}

/// Returns the run that an extent has for `logical`; `None` if the extent ends before it.
fn leaf_run(entry: &[u8], logical: u32, end: u64) -> Option<BlockRun> {
    let length = u16_at(entry, 4);
    let reserved = length > INITIALIZED_MAX;
    let length = if reserved { length.saturating_sub(INITIALIZED_MAX) } else { length };
    let inside = logical.saturating_sub(u32_at(entry, 0));
    let count = u32::from(length).checked_sub(inside).filter(|count| *count > 0)?;
    let start = u64::from(u16_at(entry, 6)) << 32 | u64::from(u32_at(entry, 8));
    let logical = u64::from(logical);
    // Overlapping extents are damage. The later one wins, so that reading can continue.
    let count = u64::from(count).min(end.saturating_sub(logical)).max(1);
    Some(BlockRun { logical, count, physical: Some(start.saturating_add(u64::from(inside))), reserved })
}

/// Returns the run of pointers of equal kind that begins at `index`. Each pointer covers `span`
/// blocks.
fn pointer_run(pointers: &[u8], index: u64, logical: u64, span: u64) -> BlockRun {
    let (pointers, _) = pointers.as_chunks::<4>();
    let rest = pointers.get(to_usize(index)..).unwrap_or_default();
    let rest = || rest.iter().map(|pointer| u32::from_le_bytes(*pointer));
    let first = rest().next().unwrap_or(0);
    if first == 0 {
        let count = rest().take_while(|pointer| *pointer == 0).count().max(1);
        return BlockRun::hole(logical, span.saturating_mul(count as u64));
    }
    let follows = |(pointer, expected): &(u32, u64)| u64::from(*pointer) == *expected;
    let count = rest().zip(u64::from(first)..).take_while(follows).count().max(1);
    BlockRun { logical, count: count as u64, physical: Some(u64::from(first)), reserved: false }
}

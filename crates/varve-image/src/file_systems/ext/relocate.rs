//! Moves the blocks that a start reads together, in the order of first access, so that they are
//! read in few and large requests.
//!
//! ```text
//! profile ─▶ claims (who owns a block) ─▶ units (parts of files) ─▶ destination (free runs)
//!                                                                       │
//!            shown: the old volume, moved blocks, changed metadata ◀─ edits (maps, bitmaps, counts)
//! ```
//!
//! Nothing is written: the result is a volume that shows the new blocks over the old ones.
//!
//! Invariants:
//! - A block moves only if exactly one file owns it and the bitmaps agree. A structure that is not
//!   understood stays as it is, or the whole file system is refused.
//! - Moved blocks go to free blocks, so no block that a file keeps is overwritten.
//! - Names, status, attributes and contents stay equal. Only a file whose map needs one block more
//!   occupies that block more.

mod claims;
mod destination;
mod edits;
mod extents;
mod pointers;
pub(crate) mod structure;
mod units;
mod untouchable;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use claims::BlockClaims;
use destination::Handout;
use edits::Edits;
use extents::ExtentLeaf;
use units::HotPart;
pub(crate) use untouchable::loader_with_block_lists;
use varve_block::to_usize;

use super::ExtFileSystem;
use super::inode::ExtInode;
use super::superblock::read_only;
use crate::bytes::overlaid::OverlaidBytes;
use crate::bytes::ranges::Ranges;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::{FileId, FileSystemError};

/// The plan is made anew when the maps of files turn out to need more blocks, at most this often.
const ROUNDS_MAX: usize = 8;
const TOO_FRAGMENTED: &str = "its map has no room for the new places";

/// Where moved blocks may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelocationOptions {
    /// The unit of the disk that moved blocks do not share with others while there is space, in
    /// bytes.
    pub align_bytes: u64,
    /// The offset of the volume on its disk, in bytes.
    pub volume_start: u64,
}

/// Blocks of a file that have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedRun {
    pub file: FileId,
    /// The offset of the first block in the file, in blocks.
    pub logical: u64,
    /// The first block where the data was.
    pub from: u64,
    /// The first block where the data is shown.
    pub to: u64,
    /// The number of blocks.
    pub count: u64,
}

/// A file that the profile reads, and that stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftInPlace {
    pub file: FileId,
    /// The number of its blocks that the profile reads.
    pub blocks: u64,
    pub reason: &'static str,
}

/// The reason why no block of a file system is moved.
#[derive(Debug, thiserror::Error)]
pub enum RelocationError {
    #[error("{0}: check it with e2fsck, or shut its machine down first")]
    Unclean(&'static str),
    #[error("it has the feature {0}, which is not supported here")]
    Feature(String),
    #[error("its boot sector is {0}, which finds its files by lists of blocks")]
    BlockLists(&'static str),
    #[error("block {block} belongs to inode {} and to inode {}: check it with e2fsck", inodes[0], inodes[1])]
    Shared { block: u64, inodes: [u32; 2] },
    #[error("{0}: check it with e2fsck")]
    Inconsistent(String),
    #[error("{needed} free blocks are needed, and {free} can be used")]
    Space { needed: u64, free: u64 },
    #[error("it needs more than {max} {what} at once")]
    TooLarge { what: &'static str, max: usize },
    #[error(transparent)]
    FileSystem(#[from] FileSystemError),
}

/// The new places of the blocks of a file system.
pub struct Relocation {
    block_bytes: u64,
    moved: Vec<MovedRun>,
    /// The same, sorted by the first block where the data was.
    by_old_place: Vec<MovedRun>,
    left: Vec<LeftInPlace>,
    region: Vec<Range<u64>>,
    elsewhere: u64,
    /// The new block of the map of each file that needs one.
    added: BTreeMap<u32, u64>,
    /// Changed metadata.
    changed: BTreeMap<u64, Vec<u8>>,
}

impl Relocation {
    /// Plans new places for the blocks that were read. The reads are ranges of bytes of the volume,
    /// in the order of first access.
    ///
    /// # Errors
    ///
    /// [`RelocationError`] if the file system is not moved, with the reason.
    pub fn plan(
        files: &ExtFileSystem,
        reads: &[Range<u64>],
        options: RelocationOptions,
    ) -> Result<Self, RelocationError> {
        untouchable::check(files)?;
        let claims = BlockClaims::scan(files)?;
        let block_bytes = u64::from(files.block_bytes()).max(1);
        let in_blocks = |read: &Range<u64>| {
            let end = read.end.div_ceil(block_bytes).min(files.block_count());
            read.start.checked_div(block_bytes).unwrap_or(0)..end
        };
        let reads: Vec<_> = reads.iter().map(in_blocks).filter(|read| !read.is_empty()).collect();
        let reads = units::find(&claims, &reads);
        let mut left = Vec::new();
        let mut plan = Plan { files, options, movable: BTreeMap::new(), parts: Vec::new() };
        for (number, reads) in reads.by_inode {
            let inode = untouchable::inode_of(files, number)?;
            if let Some(reason) = untouchable::reason(files, &inode, claims.boot_files.contains(&number)) {
                left.push(left_in_place(number, &reads, reason));
                continue;
            }
            let file = MovableFile::read(files, inode)?;
            let parts = units::parts(number, file.inode.size, &file.present(), reads.clone());
            plan.parts.extend(parts);
            plan.movable.insert(number, (file, reads));
        }
        plan.parts.sort_by_key(|part| part.order);
        let placed = plan.place(&claims.free, &mut left)?;
        let changed = plan.edit(&placed, &claims.layout)?;
        left.sort_by_key(|left| left.file);
        let Placed { moved, added, region } = placed;
        let mut by_old_place = moved.clone();
        by_old_place.sort_by_key(|run| run.from);
        Ok(Self {
            block_bytes,
            moved,
            by_old_place,
            left,
            region,
            elsewhere: reads.elsewhere,
            added,
            changed,
        })
    }

    /// Returns the moved blocks, in the order of their new places.
    #[must_use]
    pub fn moved(&self) -> &[MovedRun] {
        &self.moved
    }

    /// Returns the files that the profile reads and that stay where they are.
    #[must_use]
    pub fn left(&self) -> &[LeftInPlace] {
        &self.left
    }

    /// Returns the blocks that the moved ones go to, in ascending order. Between two ranges of them
    /// lie blocks that were in use.
    #[must_use]
    pub fn region(&self) -> &[Range<u64>] {
        &self.region
    }

    /// Returns the number of blocks that the profile reads and that belong to no file: metadata,
    /// and free blocks.
    #[must_use]
    pub fn blocks_of_no_file(&self) -> u64 {
        self.elsewhere
    }

    /// Returns the files that occupy one block more than before, because their map needs it.
    pub fn grown_files(&self) -> impl Iterator<Item = FileId> {
        self.added.keys().map(|number| FileId(u64::from(*number)))
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the ranges of bytes where a range of the old volume is shown.
    pub(crate) fn new_places(&self, old: &Range<u64>) -> Vec<Range<u64>> {
        let bytes = |block: u64| block.saturating_mul(self.block_bytes);
        let (mut places, mut at) = (Vec::new(), old.start);
        let end_of = |run: &MovedRun| bytes(run.from.saturating_add(run.count));
        let first = self.by_old_place.partition_point(|run| end_of(run) <= old.start);
        let runs = self.by_old_place.iter().skip(first).take_while(|run| bytes(run.from) < old.end);
        for run in runs {
            let start = bytes(run.from).max(at);
            places.push(at..start);
            at = end_of(run).min(old.end);
            let inside = |at: u64| bytes(run.to).saturating_add(at.saturating_sub(bytes(run.from)));
            places.push(inside(start)..inside(at));
        }
        places.push(at..old.end);
        places.retain(|place| !place.is_empty());
        places
    }

    /// Returns the volume with the new places.
    pub(crate) fn shown(&self, volume: &Arc<dyn ReadAt>) -> OverlaidBytes {
        let mut shown = OverlaidBytes::new(Arc::clone(volume));
        let at = |block: u64| block.saturating_mul(self.block_bytes);
        for moved in &self.moved {
            let range = at(moved.to)..at(moved.to.saturating_add(moved.count));
            shown.show(range, Arc::clone(volume), at(moved.from));
        }
        for (block, bytes) in &self.changed {
            let source: Arc<dyn ReadAt> = Arc::new(bytes.clone());
            shown.show(at(*block)..at(block.saturating_add(1)), source, 0);
        }
        shown
    }

    /// Returns a volume that shows the file system with the new places. Nothing is written to
    /// `volume`, which must be the planned one.
    #[must_use]
    pub fn show(&self, volume: &Arc<dyn ReadAt>) -> Arc<dyn ReadAt> {
        Arc::new(self.shown(volume))
    }

    /// Compares the file system before and after, as this crate reads it: the inodes in use, and
    /// the status, attributes, names and content of each.
    ///
    /// # Errors
    ///
    /// The first difference, in words.
    pub fn verify(&self, before: &ExtFileSystem, after: &ExtFileSystem) -> Result<(), String> {
        verify::compare(before, after, &self.added)
    }
}

fn left_in_place(number: u32, reads: &units::FileReads, reason: &'static str) -> LeftInPlace {
    let blocks = reads.iter().map(|(range, _)| range.end.saturating_sub(range.start));
    LeftInPlace { file: FileId(u64::from(number)), blocks: blocks.fold(0, u64::saturating_add), reason }
}

/// A file whose blocks may move, and its map.
struct MovableFile {
    inode: ExtInode,
    /// The runs of its blocks with data, in the order of the file: the first block in the file, on
    /// the volume, and the count.
    runs: Vec<(u64, u64, u64)>,
    /// The leaves of its extent tree; `None` if it has pointers.
    leaves: Option<Vec<ExtentLeaf>>,
}

impl MovableFile {
    fn read(files: &ExtFileSystem, inode: ExtInode) -> Result<Self, RelocationError> {
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        if inode.has_extents() {
            let leaves = files.extent_leaves(&inode, &mut |_| Ok(()))?;
            let extents = leaves.iter().flat_map(|leaf| &leaf.extents).filter(|extent| !extent.reserved);
            runs.extend(extents.map(|extent| (extent.logical, extent.physical, extent.count)));
            return Ok(Self { inode, runs, leaves: Some(leaves) });
        }
        files.for_each_pointer(&inode, &mut |_| Ok(()), &mut |_, run| {
            let physical = run.physical.unwrap_or(0);
            match runs.last_mut() {
                Some((logical, first, count))
                    if logical.saturating_add(*count) == run.logical
                        && first.saturating_add(*count) == physical =>
                {
                    *count = count.saturating_add(1);
                }
                _ => runs.push((run.logical, physical, 1)),
            }
            Ok(())
        })?;
        Ok(Self { inode, runs, leaves: None })
    }

    fn present(&self) -> Ranges {
        self.runs.iter().map(|(logical, _, count)| *logical..logical.saturating_add(*count)).collect()
    }

    /// Returns the runs of a part of the file.
    fn within(&self, blocks: &Range<u64>) -> Vec<(u64, u64, u64)> {
        let first =
            self.runs.partition_point(|(logical, _, count)| logical.saturating_add(*count) <= blocks.start);
        let runs = self.runs.iter().skip(first).take_while(|(logical, _, _)| *logical < blocks.end);
        runs.map(|(logical, physical, count)| {
            let start = (*logical).max(blocks.start);
            let end = logical.saturating_add(*count).min(blocks.end);
            (start, physical.saturating_add(start.saturating_sub(*logical)), end.saturating_sub(start))
        })
        .collect()
    }
}

/// The chosen places.
struct Placed {
    moved: Vec<MovedRun>,
    added: BTreeMap<u32, u64>,
    region: Vec<Range<u64>>,
}

struct Plan<'a> {
    files: &'a ExtFileSystem,
    options: RelocationOptions,
    movable: BTreeMap<u32, (MovableFile, units::FileReads)>,
    parts: Vec<HotPart>,
}

impl Plan<'_> {
    /// Places all parts. A file whose map becomes too large for the inode gets a block for it, or
    /// is left in place.
    fn place(&mut self, free: &Ranges, left: &mut Vec<LeftInPlace>) -> Result<Placed, RelocationError> {
        let mut growing = BTreeSet::new();
        for round in 0.. {
            let placed = self.place_once(free, &growing)?;
            let by_file = by_file(&placed.moved);
            let mut too_large = Vec::new();
            for (number, moves) in &by_file {
                let fits = self.movable.get(number).is_some_and(|(file, _)| self.fits(file, moves, &growing));
                if !fits {
                    too_large.push(*number);
                }
            }
            if too_large.is_empty() {
                return Ok(placed);
            }
            for number in too_large {
                let may_grow = self.may_grow(number) && round < ROUNDS_MAX;
                if may_grow && growing.insert(number) {
                    continue;
                }
                growing.remove(&number);
                self.parts.retain(|part| part.inode != number);
                if let Some((_, reads)) = self.movable.remove(&number) {
                    left.push(left_in_place(number, &reads, TOO_FRAGMENTED));
                }
            }
        }
        Err(RelocationError::TooLarge { what: "rounds", max: ROUNDS_MAX })
    }

    /// Returns true if a file's map may get its first block. A quota would have to count it.
    fn may_grow(&self, number: u32) -> bool {
        let is_in_inode = |file: &MovableFile| {
            file.leaves.as_ref().is_some_and(|leaves| leaves.iter().all(|leaf| leaf.block.is_none()))
        };
        !self.files.superblock.has(read_only::QUOTA | read_only::PROJECTS)
            && self.movable.get(&number).is_some_and(|(file, _)| is_in_inode(file))
    }

    fn fits(&self, file: &MovableFile, moves: &[MovedRun], growing: &BTreeSet<u32>) -> bool {
        let block_bytes = to_usize(self.files.block_bytes());
        let grows = growing.contains(&file.inode.number);
        file.leaves.iter().flatten().all(|leaf| {
            let room = if grows { extents::new_leaf_room(block_bytes) } else { leaf.room };
            let room =
                if leaf.block.is_none() && !grows { room.min(extents::ROOT_EXTENTS_MAX) } else { room };
            extents::moved_extents(&leaf.extents, moves).len() <= room
        })
    }

    fn place_once(&self, free: &Ranges, growing: &BTreeSet<u32>) -> Result<Placed, RelocationError> {
        let runs_of = |part: &HotPart| {
            self.movable.get(&part.inode).map(|(file, _)| file.within(&part.blocks)).unwrap_or_default()
        };
        let data = self.parts.iter().flat_map(runs_of).map(|(_, _, count)| count);
        let needed = data.fold(growing.len() as u64, u64::saturating_add);
        let block_bytes = u64::from(self.files.block_bytes());
        let region = destination::choose(free, needed, block_bytes, self.options)?;
        let mut handout = Handout::new(region.clone());
        let space = || RelocationError::Space { needed, free: free.total() };
        let (mut moved, mut added) = (Vec::<MovedRun>::new(), BTreeMap::new());
        for part in &self.parts {
            if growing.contains(&part.inode) && !added.contains_key(&part.inode) {
                added.insert(part.inode, handout.next(1).ok_or_else(space)?.start);
            }
            for (mut logical, mut from, mut count) in runs_of(part) {
                while count > 0 {
                    let to = handout.next(count).ok_or_else(space)?;
                    let length = to.end.saturating_sub(to.start);
                    let file = FileId(u64::from(part.inode));
                    moved.push(MovedRun { file, logical, from, to: to.start, count: length });
                    logical = logical.saturating_add(length);
                    from = from.saturating_add(length);
                    count = count.saturating_sub(length);
                }
            }
        }
        Ok(Placed { moved, added, region })
    }

    /// Makes the changed metadata.
    fn edit(&self, placed: &Placed, layout: &Ranges) -> Result<BTreeMap<u64, Vec<u8>>, RelocationError> {
        let mut edits = Edits::new(self.files);
        if placed.moved.is_empty() {
            return Ok(edits.into_blocks());
        }
        for (number, moves) in by_file(&placed.moved) {
            let Some((file, _)) = self.movable.get(&number) else { continue };
            match &file.leaves {
                Some(leaves) => {
                    let added = placed.added.get(&number).copied();
                    edit_extents(self.files, &mut edits, &file.inode, leaves, &moves, added)?;
                }
                None => edit_pointers(self.files, &mut edits, &file.inode, &moves)?,
            }
        }
        let range = |start: u64, count: u64| start..start.saturating_add(count);
        let added = placed.added.values().map(|block| range(*block, 1));
        let used = placed.moved.iter().map(|moved| range(moved.to, moved.count)).chain(added).collect();
        let freed = placed.moved.iter().map(|moved| range(moved.from, moved.count)).collect();
        edits.mark(&used, &freed, layout)?;
        if !placed.added.is_empty() {
            edits.take_free(placed.added.len() as u64)?;
        }
        Ok(edits.into_blocks())
    }
}

/// Returns the moves of each file, sorted by their first block in the file.
fn by_file(moved: &[MovedRun]) -> BTreeMap<u32, Vec<MovedRun>> {
    let mut files: BTreeMap<u32, Vec<MovedRun>> = BTreeMap::new();
    for run in moved {
        files.entry(u32::try_from(run.file.0).unwrap_or(0)).or_default().push(*run);
    }
    files.values_mut().for_each(|moves| moves.sort_by_key(|run| run.logical));
    files
}

fn edit_extents(
    files: &ExtFileSystem,
    edits: &mut Edits<'_>,
    inode: &ExtInode,
    leaves: &[ExtentLeaf],
    moves: &[MovedRun],
    added: Option<u64>,
) -> Result<(), RelocationError> {
    for leaf in leaves {
        let extents = extents::moved_extents(&leaf.extents, moves);
        match (leaf.block, added) {
            (Some(block), _) => {
                extents::write_leaf(edits.block(block)?, leaf.room, &extents);
                edits.seal_extent_block(inode, block)?;
            }
            (None, None) => {
                edits.inode(inode, 0, |map| extents::write_leaf(map, extents::ROOT_EXTENTS_MAX, &extents))?;
            }
            (None, Some(block)) => {
                let block_bytes = to_usize(files.block_bytes());
                edits.add(block, extents::new_leaf(block_bytes, &extents))?;
                edits.seal_extent_block(inode, block)?;
                let logical = extents.first().map_or(0, |extent| extent.logical);
                edits.inode(inode, 1, |map| extents::write_root_above(map, logical, block))?;
            }
        }
    }
    Ok(())
}

fn edit_pointers(
    files: &ExtFileSystem,
    edits: &mut Edits<'_>,
    inode: &ExtInode,
    moves: &[MovedRun],
) -> Result<(), RelocationError> {
    let mut pointers = Vec::new();
    files.for_each_pointer(inode, &mut |_| Ok(()), &mut |place, run| {
        let after = moves.partition_point(|moved| moved.logical <= run.logical);
        let moved = after.checked_sub(1).and_then(|at| moves.get(at));
        let inside = |moved: &MovedRun| run.logical.checked_sub(moved.logical).filter(|at| *at < moved.count);
        if let Some((moved, at)) = moved.and_then(|moved| Some((moved, inside(moved)?))) {
            pointers.push((place, u32::try_from(moved.to.saturating_add(at)).unwrap_or(0)));
        }
        Ok(())
    })?;
    let set = |bytes: &mut [u8], index: usize, pointer: u32| {
        crate::bytes::fields::put(bytes, index.saturating_mul(4), &pointer.to_le_bytes());
    };
    for (place, pointer) in pointers {
        match place.node {
            Some(block) => set(edits.block(block)?, place.index, pointer),
            None => edits.inode(inode, 0, |map| set(map, place.index, pointer))?,
        }
    }
    Ok(())
}

//! Finds ranges of a disk again on a later state of the same disk, by the files that hold them. An
//! update writes a file anew at another place, and what reads the file then reads that place.
//!
//! Only files of ext2, ext3 and ext4 are followed. Everything else is expected where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use super::disk::Disk;
use super::volume::Volume;
use crate::file_systems::ext::{BlockOwners, BlockRun, ExtFileSystem};
use crate::file_systems::file_system::{FileId, FileKind, FileSystem, FolderChild};

/// The files of an earlier disk, and their places on a later one.
pub struct MovedFiles {
    volumes: Vec<MovedVolume>,
}

/// A volume that both disks have at the same place.
struct MovedVolume {
    /// The ranges of the disk that make up the volume, in its order.
    pieces: Vec<Range<u64>>,
    block_bytes: u64,
    owners: BlockOwners,
    /// The runs on the later disk of the files with these numbers on the earlier one.
    runs: BTreeMap<FileId, Vec<BlockRun>>,
}

impl MovedFiles {
    /// Compares two states of a disk. Reads the inodes of the earlier one, and the folders of both.
    /// A volume that cannot be read counts as unchanged.
    #[must_use]
    pub fn new(from: &Disk, to: &Disk) -> Self {
        let pairs = from.volumes().iter().filter_map(|volume| {
            let later = to.volume(volume.name())?;
            (later.pieces() == volume.pieces()).then_some((volume, later))
        });
        Self { volumes: pairs.filter_map(|(from, to)| MovedVolume::new(from, to)).collect() }
    }

    /// Returns the ranges of the later disk with the contents that a range of the earlier one had,
    /// in order. The contents of files that are gone have none.
    #[must_use]
    pub fn find(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let mut position = range.start;
        while position < range.end {
            let held = self.volumes.iter().find_map(|volume| volume.block_at(position));
            let end = match &held {
                Some((_, in_block, _)) => in_block.end.min(range.end),
                None => self.next_volume_after(position).min(range.end),
            };
            let place = match held {
                Some((volume, in_block, block)) => {
                    let before = position - in_block.start;
                    volume.find(block).map(|start| start.saturating_add(before))
                }
                None => Some(position),
            };
            if let Some(start) = place {
                push(&mut found, start..start.saturating_add(end - position));
            }
            position = end;
        }
        found
    }

    /// Returns the first byte behind `position` at which a volume begins.
    fn next_volume_after(&self, position: u64) -> u64 {
        let starts = self.volumes.iter().flat_map(|volume| &volume.pieces).map(|piece| piece.start);
        starts.filter(|start| *start > position).min().unwrap_or(u64::MAX)
    }
}

fn push(found: &mut Vec<Range<u64>>, next: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => found.push(next),
    }
}

impl MovedVolume {
    fn new(from: &Volume, to: &Volume) -> Option<Self> {
        let (earlier, later) = (ExtFileSystem::open(from.read()).ok()?, ExtFileSystem::open(to.read()).ok()?);
        if earlier.block_bytes() != later.block_bytes() {
            return None;
        }
        let owners = BlockOwners::scan(&earlier).ok()?;
        let mut runs = BTreeMap::new();
        same_paths(&earlier, &later, &mut |before, after| {
            if let Ok(found) = later.runs(after) {
                runs.insert(before, found);
            }
        });
        Some(Self {
            pieces: from.pieces().to_vec(),
            block_bytes: u64::from(earlier.block_bytes()),
            owners,
            runs,
        })
    }

    /// Returns the volume, the range on the disk and the number of the block at a position of the
    /// disk; `None` if it is not in the volume.
    fn block_at(&self, position: u64) -> Option<(&Self, Range<u64>, u64)> {
        let mut before = 0_u64;
        for piece in &self.pieces {
            if piece.contains(&position) {
                let block = before.saturating_add(position - piece.start) / self.block_bytes;
                let start = block.saturating_mul(self.block_bytes);
                // A block may lie in two pieces.
                let on_disk = |at: u64| piece.start.saturating_add(at.saturating_sub(before));
                let range = on_disk(start)..on_disk(start.saturating_add(self.block_bytes)).min(piece.end);
                return Some((self, range, block));
            }
            before = before.saturating_add(piece.end - piece.start);
        }
        None
    }

    /// Returns the place on the later disk of a block of the earlier volume; `None` if its file is
    /// gone.
    fn find(&self, block: u64) -> Option<u64> {
        let later = match self.owners.of(block) {
            None => block,
            Some(owner) => {
                let logical = owner.logical.saturating_add(block - owner.blocks.start);
                let runs = self.runs.get(&owner.file)?;
                let after = runs.partition_point(|run| run.logical <= logical);
                let run = runs.get(after.checked_sub(1)?)?;
                let offset = logical - run.logical;
                (offset < run.count).then_some(run.physical?.checked_add(offset)?)?
            }
        };
        let mut offset = later.checked_mul(self.block_bytes)?;
        for piece in &self.pieces {
            let length = piece.end - piece.start;
            if offset < length {
                return piece.start.checked_add(offset);
            }
            offset -= length;
        }
        None
    }
}

/// Passes the numbers of each file and folder that both file systems have at the same path.
fn same_paths(earlier: &ExtFileSystem, later: &ExtFileSystem, found: &mut dyn FnMut(FileId, FileId)) {
    let mut folders = vec![(earlier.root(), later.root())];
    // A damaged file system may have a folder in itself.
    let mut seen = BTreeSet::new();
    while let Some((before, after)) = folders.pop() {
        if !seen.insert(before) {
            continue;
        }
        found(before, after);
        let names: BTreeMap<Vec<u8>, FolderChild> =
            children(later, after).into_iter().map(|child| (child.name.clone(), child)).collect();
        for child in children(earlier, before) {
            match names.get(&child.name) {
                Some(same) if same.kind != child.kind => {}
                Some(same) if child.kind == FileKind::Folder => folders.push((child.id, same.id)),
                Some(same) if child.kind == FileKind::File => found(child.id, same.id),
                _ => {}
            }
        }
    }
}

/// Returns the children of a folder; those that can be read, if it is damaged.
fn children(files: &ExtFileSystem, folder: FileId) -> Vec<FolderChild> {
    let mut children = Vec::new();
    let _ = files.children(folder, 0, &mut |child| {
        children.push(child);
        ControlFlow::Continue(())
    });
    children
}

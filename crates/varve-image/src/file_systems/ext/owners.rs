//! Maps blocks to the files that own them.

use std::ops::Range;

use varve_block::to_usize;

use super::{BlockRun, ExtFileSystem};
use crate::file_systems::file_system::{FileId, FileSystemError};

/// Blocks that belong to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOwner {
    /// Blocks of the volume.
    pub blocks: Range<u64>,
    pub file: FileId,
    /// The offset of the first block in the file, in blocks.
    pub logical: u64,
}

/// The owners of all blocks that hold content of files or names of folders.
#[derive(Debug, Clone, Default)]
pub struct BlockOwners {
    /// Sorted by their first block.
    owners: Vec<BlockOwner>,
}

impl BlockOwners {
    /// Reads every inode. Costs a read of all metadata, and memory for each run of each file.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`] if the inodes in use cannot be determined. The blocks of a damaged inode
    /// have no owner.
    pub fn scan(files: &ExtFileSystem) -> Result<Self, FileSystemError> {
        let mut owners = Vec::new();
        // A valid file system has at most as many runs as blocks.
        let runs_max = to_usize(files.block_count());
        files.for_each_inode_in_use(|number| {
            let file = FileId(u64::from(number));
            let runs = files.runs(file).unwrap_or_default();
            owners.extend(
                runs.into_iter()
                    .take(runs_max.saturating_sub(owners.len()))
                    .filter_map(|run| owner(file, &run)),
            );
            Ok(())
        })?;
        owners.sort_by_key(|owner| (owner.blocks.start, owner.file, owner.logical));
        Ok(Self { owners })
    }

    /// Returns the owner of a block; `None` if it is free or belongs to the file system itself.
    #[must_use]
    pub fn of(&self, block: u64) -> Option<&BlockOwner> {
        let after = self.owners.partition_point(|owner| owner.blocks.start <= block);
        let owner = self.owners.get(after.checked_sub(1)?)?;
        owner.blocks.contains(&block).then_some(owner)
    }

    /// Returns all owners, sorted by their first block.
    #[must_use]
    pub fn all(&self) -> &[BlockOwner] {
        &self.owners
    }
}

fn owner(file: FileId, run: &BlockRun) -> Option<BlockOwner> {
    let start = run.physical?;
    Some(BlockOwner { blocks: start..start.checked_add(run.count)?, file, logical: run.logical })
}

//! Whose a block is.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use super::{ExtFileSystem, Run};
use crate::{FileId, FileSystemError};

/// Blocks that belong to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOwner {
    /// The blocks, on the volume.
    pub blocks: Range<u64>,
    /// The file.
    pub file: FileId,
    /// The place of the first of them in the file, in blocks.
    pub logical: u64,
}

/// The owners of all blocks that hold content of files or names of folders.
#[derive(Debug, Clone, Default)]
pub struct BlockOwners {
    /// By their first block.
    owners: Vec<BlockOwner>,
}

impl BlockOwners {
    /// Asks every inode. Costs a reading of all metadata, and memory for each run of each file.
    ///
    /// # Errors
    ///
    /// [`FileSystemError`] if the inodes in use cannot be told. Of an inode that is damaged, the blocks have no owner.
    pub fn scan(files: &ExtFileSystem) -> Result<Self, FileSystemError> {
        let mut owners = Vec::new();
        // No honest file system has more runs than blocks.
        let runs_max = usize::try_from(files.block_count()).unwrap_or(usize::MAX);
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

    /// Whose a block is; `None` if it is free, or the file system's own.
    #[must_use]
    pub fn of(&self, block: u64) -> Option<&BlockOwner> {
        let after = self.owners.partition_point(|owner| owner.blocks.start <= block);
        let owner = self.owners.get(after.checked_sub(1)?)?;
        owner.blocks.contains(&block).then_some(owner)
    }

    /// All of them, by their first block.
    #[must_use]
    pub fn all(&self) -> &[BlockOwner] {
        &self.owners
    }
}

fn owner(file: FileId, run: &Run) -> Option<BlockOwner> {
    let start = run.physical?;
    Some(BlockOwner { blocks: start..start.checked_add(run.count)?, file, logical: run.logical })
}

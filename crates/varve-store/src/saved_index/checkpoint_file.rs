//! The checkpoint of an index in memory: the file that the index is loaded from.

use std::io;

use varve_index::{MemoryIndex, OpenDiskIndexError, ReadCheckpointError};
use varve_log::LogKeys;
use varve_world::{FileName, Storage};

use super::coverage::Coverage;

/// The reason why there is no checkpoint to start from.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadCheckpointError {
    #[error("there is no checkpoint")]
    Missing,
    #[error("{0}")]
    Disk(#[from] OpenDiskIndexError),
    #[error("the checkpoint is damaged, or belongs to another store")]
    Damaged(#[from] ReadCheckpointError),
    #[error("the checkpoint's note is invalid")]
    Note,
    #[error("the checkpoint covers a part of the log that a crash has cut off")]
    Stale,
    #[error("the checkpoint cannot be read")]
    Storage(#[from] io::Error),
}

impl LoadCheckpointError {
    /// Returns true if there was nothing to load, as in a new store.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing | Self::Disk(OpenDiskIndexError::Missing))
    }
}

pub(crate) fn file() -> FileName {
    FileName::new("index/checkpoint").expect("a plain name")
}

/// Reads the checkpoint.
pub(crate) fn load(
    storage: &dyn Storage,
    key: &[u8; 32],
) -> Result<(MemoryIndex, Coverage), LoadCheckpointError> {
    let file = file();
    let bytes_total = match storage.length(&file) {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(LoadCheckpointError::Missing),
        Err(error) => return Err(error.into()),
    };
    let mut offset = 0_u64;
    let mut read = |into: &mut [u8]| {
        storage.read_at(&file, offset, into)?;
        offset = offset.saturating_add(into.len() as u64);
        Ok(())
    };
    let (index, note) = MemoryIndex::read_checkpoint(key, bytes_total, &mut read)?;
    let coverage = Coverage::decode(&note).ok_or(LoadCheckpointError::Note)?;
    Ok((index, coverage))
}

pub(crate) fn checkpoint_key(keys: &LogKeys) -> [u8; 32] {
    keys.derive("varve 1 index checkpoint")
}

//! The index on disk: opened with the store, or made anew in its place.

use std::io;
use std::sync::Arc;

use varve_index::{DiskIndex, DiskIndexSettings, OpenDiskIndexError, ScoreIndex};
use varve_log::LogKeys;
use varve_world::{FileName, Storage, World};

use super::checkpoint_file::LoadCheckpointError;
use super::coverage::Coverage;
use super::index_folders;
use crate::config::StoreConfig;

/// The file that names the current file of entries.
pub(crate) fn summary_file() -> FileName {
    FileName::new("index/disk").expect("a plain name")
}

/// Makes the identifier of the files that one writer writes.
pub(crate) fn session(world: &World) -> io::Result<[u8; 16]> {
    let mut session = [0; 16];
    world.random.fill(&mut session)?;
    Ok(session)
}

fn settings(config: &StoreConfig) -> DiskIndexSettings {
    DiskIndexSettings {
        memory_bytes: config.disk_index.memory_bytes,
        expected_blocks: config.disk_index.expected_blocks,
        fingerprint_bits: config.disk_index.fingerprint_bits,
    }
}

fn key(keys: &LogKeys) -> [u8; 32] {
    keys.derive("varve 1 index on disk")
}

/// Removes all files of an index on disk. On failure returns the file that could not be removed,
/// and the reason.
pub(crate) fn remove_files(storage: &dyn Storage) -> Result<(), (FileName, io::Error)> {
    let is_ours = |file: &FileName| *file == summary_file() || file.as_str().starts_with("index/disk-");
    let listed = storage.list("index").map_err(|error| (summary_file(), error))?;
    for file in listed.iter().filter(|file| is_ours(file)) {
        storage.remove(file).map_err(|error| (file.clone(), error))?;
    }
    Ok(())
}

/// Opens the existing index. A writer has a session.
pub(crate) fn load(
    world: &World,
    config: &StoreConfig,
    keys: &LogKeys,
    session: Option<[u8; 16]>,
) -> Result<(ScoreIndex, Coverage), LoadCheckpointError> {
    index_folders::tell_of_missing(world, config);
    let storage = index_folders::index_storage(world, config);
    let open = || DiskIndex::open(Arc::clone(&storage), key(keys), settings(config), session);
    let (index, note) = match open() {
        Err(error) if !matches!(error, OpenDiskIndexError::Missing) => {
            // One bad reading is no proof of damage, and making the index anew takes long.
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the index on disk is read a second time"
            );
            open()?
        }
        opened => opened?,
    };
    let coverage = Coverage::decode(&note).ok_or(LoadCheckpointError::Note)?;
    let outdated: Vec<_> = coverage.outdated().map(|id| config.arena_map.granules_of(id)).collect();
    index.outdate(&outdated);
    Ok((index.into(), coverage))
}

/// Makes an empty index in its place.
pub(crate) fn empty(
    world: &World,
    config: &StoreConfig,
    keys: &LogKeys,
    session: Option<[u8; 16]>,
) -> ScoreIndex {
    DiskIndex::new(index_folders::index_storage(world, config), key(keys), settings(config), session).into()
}

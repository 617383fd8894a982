//! The store and an index on disk: it is opened with the store, told which part of the log it holds, and saved behind a sync.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use varve_index::{DiskIndex, DiskIndexSettings, OpenDiskIndexError, Ready, ScoreIndex};
use varve_log::{Appender, LogKeys};
use varve_world::{FileName, Storage, World};

use crate::checkpoint::{Coverage, LoadCheckpointError};
use crate::config::StoreConfig;
use crate::places;
use crate::store::{Store, Writer};

/// The file that says which file of entries holds.
pub(crate) fn summary_file() -> FileName {
    FileName::new("index/disk").expect("a plain name")
}

/// Names what one writer writes.
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

/// Removes all that an index on disk has written; or the file that could not be removed, and why.
pub(crate) fn remove_files(storage: &dyn Storage) -> Result<(), (FileName, io::Error)> {
    let is_ours = |file: &FileName| *file == summary_file() || file.as_str().starts_with("index/disk-");
    let listed = storage.list("index").map_err(|error| (summary_file(), error))?;
    for file in listed.iter().filter(|file| is_ours(file)) {
        storage.remove(file).map_err(|error| (file.clone(), error))?;
    }
    Ok(())
}

/// The index that is there; a writer has a session.
pub(crate) fn load(
    world: &World,
    config: &StoreConfig,
    keys: &LogKeys,
    session: Option<[u8; 16]>,
) -> Result<(ScoreIndex, Coverage), LoadCheckpointError> {
    places::tell_of_missing(world, config);
    let storage = places::index_storage(world, config);
    let open = || DiskIndex::open(Arc::clone(&storage), key(keys), settings(config), session);
    let (index, note) = match open() {
        Err(error) if !matches!(error, OpenDiskIndexError::Missing) => {
            // One bad reading is no damage, and to make it anew takes long.
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the index on disk is read a second time"
            );
            open()?
        }
        opened => opened?,
    };
    let coverage = Coverage::decode(&note).ok_or(LoadCheckpointError::Note)?;
    let index = if config.disk_index.is_plain { index.plain() } else { index };
    Ok((index.into(), coverage))
}

/// An empty one in its place.
pub(crate) fn empty(
    world: &World,
    config: &StoreConfig,
    keys: &LogKeys,
    session: Option<[u8; 16]>,
) -> ScoreIndex {
    let index = DiskIndex::new(places::index_storage(world, config), key(keys), settings(config), session);
    if config.disk_index.is_plain { index.plain().into() } else { index.into() }
}

impl Store {
    /// Lets the index write what it holds in memory, if that has become too much. The index has all that the log has now; what it writes
    /// is saved behind a sync that begins later.
    pub(crate) fn begin_index_pass(&self, writer: &Writer, appender: &Appender) {
        if let Some(index) = self.index.disk().filter(|index| index.is_due()) {
            let is_known = !writer.is_replacing.load(Ordering::Relaxed) && !self.withheld.is_any();
            index.begin(is_known.then(|| self.coverage_once_synced(appender).encode()));
        }
    }

    /// Saves what the index had written when the sync began that has just ended. That it cannot be saved is no failure of the sync.
    pub(crate) fn save_index_run(&self, run: Option<Ready>) {
        if let (Some(index), Some(run)) = (self.index.disk(), run)
            && let Err(error) = index.save_ready(run)
        {
            warn_not_saved(&error);
        }
    }
}

/// The store goes on without it: what the saved index lacks is read from the directories.
pub(crate) fn warn_not_saved(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, "the index on disk cannot be saved; the next opening takes longer");
}

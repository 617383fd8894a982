//! Saving the index: when it is due, and how it is written. The caller says which part of the log the index covers.

use std::io;
use std::sync::atomic::Ordering;

use varve_index::{DiskIndex, Ready};
use varve_world::FileName;

use super::Finder;
use crate::saved_index::{Coverage, checkpoint_file, checkpoint_key, summary_file};

/// A checkpoint is due once this share of the index is in none.
const UNSAVED_SHARE: u64 = 32;
/// Fewer than this many are read from the log's directories as fast as from a checkpoint.
const UNSAVED_BLOCKS_MIN: u64 = 100_000;

/// Why a checkpoint was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {file}")]
pub struct SaveCheckpointError {
    file: FileName,
    source: io::Error,
}

impl Finder {
    /// Whether enough of the index is in no checkpoint.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let unsaved = match self.index.disk() {
            Some(index) => index.unsaved(),
            None => self.unsaved_blocks.load(Ordering::Relaxed),
        };
        let due = UNSAVED_BLOCKS_MIN.max(self.index.len().checked_div(UNSAVED_SHARE).unwrap_or_default());
        unsaved >= due || self.index.disk().is_some_and(DiskIndex::has_unsaved_run)
    }

    /// Writes the checkpoint of an index that covers all of this. Nothing may be taken in meanwhile.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint is then there still.
    pub(crate) fn save(&self, coverage: &Coverage) -> Result<(), SaveCheckpointError> {
        if let Some(index) = self.index.disk() {
            return index.save(coverage.encode()).map_err(|error| SaveCheckpointError {
                file: summary_file(),
                source: io::Error::other(error),
            });
        }
        let Some(index) = self.index.memory() else { return Ok(()) };
        let key = checkpoint_key(self.vault.log().keys());
        self.vault
            .storage()
            .replace_with(&checkpoint_file(), |append| {
                index.write_checkpoint(&coverage.encode(), &key, append)
            })
            .map_err(|source| SaveCheckpointError { file: checkpoint_file(), source })?;
        self.unsaved_blocks.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the index is on disk: then the store goes on if it cannot be saved.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.index.disk().is_some()
    }

    /// Lets an index on disk write out what it holds in memory, if that has become too much. `coverage`: of the index now,
    /// if that is known. The index saves the run behind a sync that begins later.
    pub(crate) fn begin_pass_if_due(&self, coverage: impl FnOnce() -> Option<Coverage>) {
        if let Some(index) = self.index.disk().filter(|index| index.is_due()) {
            index.begin(coverage().map(|coverage| coverage.encode()));
        }
    }

    /// The run that an index on disk has written, to be saved once a sync that begins now has ended.
    pub(crate) fn ready_run(&self) -> Option<Ready> {
        self.index.disk().and_then(DiskIndex::ready)
    }

    /// Saves a run. A failure is no failure of the sync.
    pub(crate) fn save_run(&self, run: Option<Ready>) {
        if let (Some(index), Some(run)) = (self.index.disk(), run)
            && let Err(error) = index.save_ready(run)
        {
            warn_not_saved(&error);
        }
    }

    /// What an index on disk was told of the log does not hold any more.
    pub(crate) fn forget_notes(&self) {
        if let Some(index) = self.index.disk() {
            index.forget_notes();
        }
    }

    /// Ends the work of an index on disk that is not saved.
    pub(crate) fn abandon_run(&self) {
        if let Some(index) = self.index.disk() {
            index.abandon();
        }
    }
}

/// The store goes on without it: what the saved index lacks is read from the directories.
pub(crate) fn warn_not_saved(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, "the index on disk cannot be saved; the next opening takes longer");
}

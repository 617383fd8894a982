//! Saves the index: decides when that is due, and writes it. The caller says which part of the log
//! the index covers.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;

use varve_index::{DiskIndex, ReadyRun};
use varve_log::ArenaId;
use varve_world::FileName;

use super::Finder;
use crate::saved_index::{Coverage, checkpoint_file, checkpoint_key, remove_saved_index, summary_file};

/// A checkpoint is due once this share of the index is in none.
const UNSAVED_SHARE: u64 = 32;
/// Fewer blocks than this are read from the log's directories as fast as from a checkpoint.
const UNSAVED_BLOCKS_MIN: u64 = 100_000;
/// An arena that no checkpoint covers takes about as long to read as the names of so many blocks,
/// even if it has none.
const UNSAVED_ARENA_BLOCKS: u64 = 1000;

/// A checkpoint was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {file}")]
pub struct SaveCheckpointError {
    file: FileName,
    source: io::Error,
}

impl Finder {
    /// Returns true if a large enough part of the index is in no checkpoint.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let unsaved = match self.index.disk() {
            Some(index) => index.unsaved(),
            None => self.unsaved_blocks.load(Ordering::Relaxed),
        };
        let read_arenas = self.taken.lock().len() as u64;
        let unsaved = unsaved.saturating_add(read_arenas.saturating_mul(UNSAVED_ARENA_BLOCKS));
        let due = UNSAVED_BLOCKS_MIN.max(self.index.len().checked_div(UNSAVED_SHARE).unwrap_or_default());
        let has_none = self.is_saved_index_gone.load(Ordering::Relaxed) && !self.index.is_empty();
        has_none || unsaved >= due || self.index.disk().is_some_and(DiskIndex::has_unsaved_run)
    }

    /// Writes the checkpoint of an index that covers `coverage`. No page may be added meanwhile.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint then remains.
    pub(crate) fn save(&self, coverage: &Coverage) -> Result<(), SaveCheckpointError> {
        if let Some(index) = self.index.disk() {
            index.save(coverage.encode()).map_err(|error| SaveCheckpointError {
                file: summary_file(),
                source: io::Error::other(error),
            })?;
        } else if let Some(index) = self.index.memory() {
            let key = checkpoint_key(self.vault.log().keys());
            self.vault
                .storage()
                .replace_with(&checkpoint_file(), |append| {
                    index.write_checkpoint(&coverage.encode(), &key, append)
                })
                .map_err(|source| SaveCheckpointError { file: checkpoint_file(), source })?;
            self.unsaved_blocks.store(0, Ordering::Relaxed);
        }
        self.is_saved_index_gone.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Lets go of what the saved index has of arenas that are about to be replaced. An index on
    /// disk stays and covers them no longer; that of an index in memory is removed, and saved anew
    /// when the store is closed. Durable when this returns.
    ///
    /// # Errors
    /// The file that cannot be removed, and the reason.
    pub(crate) fn let_go_of_saved(&self, arenas: &BTreeSet<ArenaId>) -> Result<(), (FileName, io::Error)> {
        if let Some(index) = self.index.disk() {
            let rewritten = index.rewrite_note(|note| {
                let mut coverage = Coverage::decode(note)?;
                coverage.let_go_of(arenas, self.vault.map());
                Some(coverage.encode())
            });
            match rewritten {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => warn_not_saved(&error),
            }
        }
        self.is_saved_index_gone.store(true, Ordering::Relaxed);
        remove_saved_index(self.vault.storage())
    }

    /// Returns true if the index is on disk. A store with such an index continues if the index
    /// cannot be saved.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.index.disk().is_some()
    }

    /// Lets an index on disk write out the entries that it holds in memory, if they have become too
    /// many. `coverage` is that of the index now, if it is known. The index saves the run after a
    /// sync that begins later.
    pub(crate) fn begin_pass_if_due(&self, coverage: impl FnOnce() -> Option<Coverage>) {
        if let Some(index) = self.index.disk().filter(|index| index.is_due()) {
            index.begin(coverage().map(|coverage| coverage.encode()));
        }
    }

    /// Returns the run that an index on disk has written. It is to be saved once a sync that begins
    /// now has ended.
    pub(crate) fn ready_run(&self) -> Option<ReadyRun> {
        self.index.disk().and_then(DiskIndex::ready)
    }

    /// Saves a run. A failure does not fail the sync.
    pub(crate) fn save_run(&self, run: Option<ReadyRun>) {
        if let (Some(index), Some(run)) = (self.index.disk(), run)
            && let Err(error) = index.save_ready(run)
        {
            warn_not_saved(&error);
        }
    }

    /// Drops the coverage that an index on disk was given, since it no longer holds.
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

/// The store continues without it. Entries that the saved index lacks are read from the
/// directories.
pub(crate) fn warn_not_saved(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, "the index on disk cannot be saved; the next opening takes longer");
}

//! Closes a store.

use varve_block::SyncError;
use varve_log::{AppendError, SyncLogError};

use super::Intake;
use crate::finder::SaveCheckpointError;

/// The store was not closed well. No synced block is lost.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// The last sync failed.
    #[error("the store could not be closed")]
    Sync(#[from] SyncError),
    /// The last seals could not be made durable.
    #[error("the store could not be closed")]
    Seals(#[from] SyncLogError),
    /// The mark of durability could not be written.
    #[error("the store could not be closed")]
    Mark(#[from] AppendError),
    /// The index's checkpoint could not be written; the next opening takes longer.
    #[error("the index could not be saved; the next opening reads it from the log")]
    Checkpoint(#[from] SaveCheckpointError),
}

impl Intake {
    /// Syncs, saves the index if that is worth the time, and leaves a mark of durability, which
    /// saves the next opening some work.
    ///
    /// # Errors
    /// [`CloseError`].
    pub(crate) fn close(self) -> Result<(), CloseError> {
        self.make_durable().map_err(|error| SyncError { source: error.into() })?;
        self.make_seals_durable()?;
        self.catch_up_parity();
        self.tail.note_newest();
        self.reader.lost().save();
        // The checkpoint is saved before the mark is written. No sync makes the mark durable, and a
        // checkpoint covers only what a crash cannot take back.
        let saved = self.save_checkpoint_if_due();
        self.finder.abandon_run();
        saved?;
        if self.vault.log().keys().can_read() {
            self.appender.lock().mark_durable()?;
        } else {
            // A later session with this key could neither continue the arena nor tell whether it is
            // complete, so it is sealed now.
            self.appender.lock().seal_open()?;
        }
        Ok(())
    }
}

//! Saving the index: only what no crash takes back is covered.

use std::sync::atomic::Ordering;

use varve_log::Appender;

use super::Intake;
use crate::finder::{SaveCheckpointError, warn_not_saved};
use crate::saved_index::Coverage;

impl Intake {
    /// Lets the index write what it holds in memory, if that has become too much. The index has all that the log has now;
    /// the run is saved behind a sync that begins later.
    pub(super) fn begin_index_pass(&self, appender: &Appender) {
        self.finder.begin_pass_if_due(|| {
            let is_known = !self.is_replacing.load(Ordering::Relaxed) && self.tail.is_log_given();
            is_known.then(|| Coverage::once_synced(appender, self.finder.catalogs()))
        });
    }

    /// Writes the checkpoint, if enough of the index is in none.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint is then there still.
    pub(super) fn save_checkpoint_if_due(&self) -> Result<(), SaveCheckpointError> {
        if !self.finder.is_checkpoint_due() {
            return Ok(());
        }
        match self.save_checkpoint() {
            Err(error) if self.finder.is_on_disk() => {
                warn_not_saved(&error);
                Ok(())
            }
            saved => saved,
        }
    }

    /// Writes the checkpoint. Everything put must have been synced.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint is then there still.
    pub(crate) fn save_checkpoint(&self) -> Result<(), SaveCheckpointError> {
        if self.is_replacing.load(Ordering::Relaxed) {
            // Replacing arenas has failed; the next opening sees how far it came.
            return Ok(());
        }
        if !self.tail.is_log_given() {
            // It would be taken for all that there is, when the disk gives the rest again.
            return Ok(());
        }
        // Held throughout, so that the index and what it covers stay as they are.
        let appender = self.appender.lock();
        self.finder.save(&Coverage::durable(&appender, self.finder.catalogs()))
    }

    /// Saves no index until [`end_replacing`](Self::end_replacing), and forgets what was noted for one.
    pub(super) fn stop_saving_index(&self) {
        self.is_replacing.store(true, Ordering::Relaxed);
        self.forget_index_notes();
    }

    pub(super) fn forget_index_notes(&self) {
        // Held so that nobody else notes now what is known until now.
        let _appender = self.appender.lock();
        self.finder.forget_notes();
    }
}

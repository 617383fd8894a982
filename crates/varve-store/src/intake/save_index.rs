//! Saves the index. It covers only the part of the log that no crash takes back.

use std::sync::atomic::Ordering;

use varve_log::Appender;

use super::Intake;
use crate::finder::{SaveCheckpointError, warn_not_saved};
use crate::saved_index::Coverage;

impl Intake {
    /// Lets the index write out the entries that it holds in memory, if they have become too many.
    /// The index has everything that the log has now. The run is saved after a sync that begins
    /// later.
    pub(super) fn begin_index_pass(&self, appender: &Appender) {
        self.finder.begin_pass_if_due(|| {
            let is_known = !self.is_replacing.load(Ordering::Relaxed) && self.tail.is_log_given();
            is_known.then(|| Coverage::once_synced(appender, self.finder.in_sight()))
        });
    }

    /// Writes the checkpoint, if a large enough part of the index is in none.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint then remains.
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

    /// Writes the checkpoint. Every block that was put must have been synced.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint then remains.
    pub(crate) fn save_checkpoint(&self) -> Result<(), SaveCheckpointError> {
        if self.is_replacing.load(Ordering::Relaxed) {
            // Replacing arenas has failed. The next opening finds out how far it came.
            return Ok(());
        }
        if !self.tail.is_log_given() {
            // The saved index would count as complete when the disk returns the missing part again.
            return Ok(());
        }
        // Held throughout, so that the index and its coverage do not change.
        let appender = self.appender.lock();
        self.finder.save(&Coverage::durable(&appender, self.finder.in_sight()))
    }

    /// Saves no index until [`end_replacing`](Self::end_replacing), and drops the coverage that was
    /// recorded for one.
    pub(super) fn stop_saving_index(&self) {
        self.is_replacing.store(true, Ordering::Relaxed);
        self.forget_index_notes();
    }

    pub(super) fn forget_index_notes(&self) {
        // Held so that no other thread records the old coverage meanwhile.
        let _appender = self.appender.lock();
        self.finder.forget_notes();
    }
}

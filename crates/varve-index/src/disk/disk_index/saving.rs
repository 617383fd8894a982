//! Makes runs durable. A saved run becomes the one with which the index opens, and replaces the one
//! saved before only when it is complete.

use std::io;

use varve_block::with_causes;
use varve_world::FileName;

use super::super::pass::{MergePass, PassError};
use super::super::summary::{Summary, summary_file};
use super::DiskIndex;

/// A run that may be saved once all of the log at the time of the call is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyRun(u64);

/// The reason why the index was not saved. The run that was saved before is still there.
#[derive(Debug, thiserror::Error)]
pub enum SaveDiskIndexError {
    /// The next run could not be made.
    #[error("the index cannot be written: {reason}")]
    Pass { reason: String },
    /// A file could not be written.
    #[error("cannot write {file}")]
    Storage { file: FileName, source: io::Error },
}

impl DiskIndex {
    /// Returns the run that may be saved as soon as the present contents of the log are durable.
    #[must_use]
    pub fn ready(&self) -> Option<ReadyRun> {
        let state = self.state.read();
        let named = state.run.as_ref().filter(|named| named.note.is_some() && !state.is_saved(named))?;
        (!state.is_incomplete).then_some(ReadyRun(named.identity.generation))
    }

    /// Makes a run durable, so that the index opens with it. Insertions continue meanwhile.
    ///
    /// # Errors
    /// [`SaveDiskIndexError`]; the run that was saved before is still there.
    pub fn save_ready(&self, ready: ReadyRun) -> Result<(), SaveDiskIndexError> {
        // The lock is held so that neither the run nor the filter is replaced.
        let _slot = self.pass.lock();
        self.save_run(ready)
    }

    fn save_run(&self, ReadyRun(generation): ReadyRun) -> Result<(), SaveDiskIndexError> {
        let run = self.state.read().run.clone();
        let Some(named) = run.filter(|named| named.identity.generation == generation) else { return Ok(()) };
        let (filter_capacity, filter_keys) = self.filter_size();
        let Some(note) = named.note.clone() else { return Ok(()) };
        let failed = |file: FileName| move |source| SaveDiskIndexError::Storage { file, source };
        self.storage.sync(&named.run.file).map_err(failed(named.run.file.clone()))?;
        let summary = Summary {
            identity: named.identity.clone(),
            entry_count: named.run.entry_count,
            filter_capacity,
            filter_keys,
            note,
            fences: named.run.fences.clone(),
        };
        self.write_summary(&summary)?;
        let old = self.state.write().saved.replace(named.identity.clone());
        if let Some(old) = old.filter(|old| *old != named.identity) {
            // A file that cannot be removed is removed when the index is opened again.
            let _ = self.storage.remove_and_free_soon(&old.file());
        }
        Ok(())
    }

    /// Writes all entries durably. `note` names the part of the log that they cover, which must be
    /// durable.
    ///
    /// # Errors
    /// [`SaveDiskIndexError`]; the run that was saved before is still there, unless it can no
    /// longer be read: then the next opening rebuilds the index.
    pub fn save(&self, note: Vec<u8>) -> Result<(), SaveDiskIndexError> {
        if self.session.is_none() {
            return Ok(());
        }
        let mut slot = self.pass.lock();
        let mut passed = self.pass_all(&mut slot, note.clone());
        if passed.as_ref().is_err_and(PassError::is_unreadable) {
            // One failed read is not damage yet, and a rebuild takes long.
            passed = self.pass_all(&mut slot, note);
            if passed.as_ref().is_err_and(PassError::is_unreadable) {
                self.let_go_of_saved();
            }
        }
        passed.map_err(|error| SaveDiskIndexError::Pass { reason: with_causes(&error) })?;
        let state = self.state.read();
        if let Some(reason) = state.trouble.clone().filter(|_| state.is_incomplete || state.frozen.is_some())
        {
            return Err(SaveDiskIndexError::Pass { reason });
        }
        if state.is_incomplete {
            return Err(SaveDiskIndexError::Pass { reason: "entries were dropped from it".into() });
        }
        let ready = state.run.as_ref().map(|named| ReadyRun(named.identity.generation));
        drop(state);
        ready.map_or(Ok(()), |ready| self.save_run(ready))
    }

    /// Finishes the current pass, and makes another one for all entries inserted since.
    fn pass_all(&self, slot: &mut Option<MergePass>, note: Vec<u8>) -> Result<(), PassError> {
        let unfinished = self.state.read().frozen.is_some();
        if unfinished {
            self.begin_in(slot, None);
            self.step(slot, u64::MAX)?;
        }
        self.begin_in(slot, Some(note));
        self.step(slot, u64::MAX)
    }

    /// Discards the notes of the runs that were written or are being written: the part of the log
    /// that they name has changed. These runs are used but not saved. The next run with a note
    /// contains their entries.
    pub fn forget_notes(&self) {
        // The lock is held so that nothing is being saved.
        let _slot = self.pass.lock();
        let mut state = self.state.write();
        if let Some(run) = &mut state.run {
            run.note = None;
        }
        if let Some(frozen) = &mut state.frozen {
            frozen.note = None;
        }
    }

    /// Replaces the note of the saved run. The part of the log that the new note names must not be
    /// larger. `change` gets the present note, and returns the new one. Returns false, and writes
    /// nothing, if there is no saved run whose summary can be read, or `change` returns `None`.
    ///
    /// # Errors
    /// [`SaveDiskIndexError::Storage`]; the saved run has the old note then.
    pub fn rewrite_note(
        &self,
        change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<bool, SaveDiskIndexError> {
        // The lock is held so that neither the saved run nor the filter is replaced.
        let _slot = self.pass.lock();
        let saved = self.state.read().saved.clone();
        let read = Summary::read_without_filter(self.storage.as_ref(), &self.key).ok();
        let ours = read.filter(|summary| self.session.is_some() && Some(&summary.identity) == saved.as_ref());
        let Some(mut summary) = ours else { return Ok(false) };
        let Some(note) = change(&summary.note) else { return Ok(false) };
        summary.note = note;
        (summary.filter_capacity, summary.filter_keys) = self.filter_size();
        self.write_summary(&summary)?;
        Ok(true)
    }

    fn filter_size(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.filter.capacity(), state.filter.key_count())
    }

    /// Writes a summary, and the present filter with it. The filter has every key of each run,
    /// except those of outdated entries.
    fn write_summary(&self, summary: &Summary) -> Result<(), SaveDiskIndexError> {
        let mut filter_bytes = |first, count| self.state.read().filter.lines_as_bytes(first, count);
        summary
            .write(self.storage.as_ref(), &self.key, &mut filter_bytes)
            .map_err(|source| SaveDiskIndexError::Storage { file: summary_file(), source })
    }

    /// Drops the unsaved run and removes its files. The index must not be used afterwards.
    pub fn abandon(&self) {
        let mut slot = self.pass.lock();
        if self.session.is_some() {
            *slot = None;
            self.remove_leftovers();
        }
    }
}

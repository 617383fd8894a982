//! A run that no summary names, and that the next one has replaced: its file is cut away a piece at a time, with insertions, since removing
//! a gigabyte at once takes a disk's time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::run::Run;

/// So much is cut away at a time; a file that is no longer is removed at once.
const CUT_BYTES: u64 = 2 << 20;

/// What is left of such a run, and how long its file is now. Whatever cannot be removed is removed when the index is opened again.
#[derive(Default)]
pub(super) struct Outdated(Mutex<Option<(Arc<Run>, u64)>>);

impl Outdated {
    /// Takes the file of a run that is looked up no more.
    pub(super) fn add(&self, run: Arc<Run>) {
        let bytes = run.file_bytes();
        let before = self.lock().replace((run, bytes));
        if let Some((before, _)) = before {
            let _ = before.storage.remove(&before.file);
        }
        if bytes <= CUT_BYTES {
            self.remove();
        }
    }

    /// Cuts a piece away, if there is something.
    pub(super) fn cut(&self) {
        let mut slot = self.lock();
        let Some((run, bytes)) = slot.as_mut() else { return };
        *bytes = bytes.saturating_sub(CUT_BYTES);
        let is_cut = *bytes > 0 && run.storage.truncate(&run.file, *bytes).is_ok();
        drop(slot);
        if !is_cut {
            self.remove();
        }
    }

    /// Removes what is left.
    pub(super) fn remove(&self) {
        if let Some((run, _)) = self.lock().take() {
            let _ = run.storage.remove(&run.file);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Run>, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

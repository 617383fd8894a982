//! Makes parity: soon after an arena is sealed, while the arena is still in the machine's memory.
//! For arenas without parity, a bounded share is made up for whenever the store is closed.

use std::collections::VecDeque;
use std::io;

use parking_lot::Mutex;
use varve_log::{ArenaId, ParityPercent, ReadLogError, WriteFailure};
use varve_world::FileName;

use super::Intake;

/// The most bytes of the log that one closing reads to make up for missing parity: some seconds of
/// reading.
const CATCH_UP_BYTES: u64 = 4 << 30;

/// The parity that a writer still has to make.
#[derive(Default)]
pub(super) struct ParityDue {
    /// In the order of their seals. Parity proves that its arena's seal was durable, so all seals
    /// before it must be durable too.
    arenas: Mutex<VecDeque<ArenaId>>,
    /// Held by the thread that makes parity, so that no more memory than for one group is used.
    gate: Mutex<()>,
}

/// An arena has got no parity.
#[derive(Debug, thiserror::Error)]
pub enum WriteParityError {
    /// The store has none: `parity_percent` is 0.
    #[error("the store has no parity: `parity_percent` in config.toml is 0")]
    Off,
    /// The arena is not sealed, or not whole: parity of it would preserve the damage.
    #[error("the arena is not sealed, or damaged: parity is made only of whole arenas")]
    NotWhole(#[from] ReadLogError),
    /// The arena's seal could not be made durable. The store accepts no more blocks until it is
    /// opened again.
    #[error("cannot make {file} durable")]
    Sync { file: FileName, source: io::Error },
    #[error("cannot write {file}")]
    Storage { file: FileName, source: io::Error },
}

impl Intake {
    /// Makes the parity file of a sealed arena, and replaces the one that it may have.
    ///
    /// # Errors
    /// [`WriteParityError`].
    pub fn write_parity(&self, id: ArenaId) -> Result<(), WriteParityError> {
        let percent = self.vault.config().parity_percent.ok_or(WriteParityError::Off)?;
        let _alone = self.parity_due.gate.lock();
        self.write_parity_alone(id, percent)
    }

    /// Makes parity for arenas that have none, for at most about `bytes_max` of the log, and
    /// returns the number of arenas that still have none. An arena that is not whole is skipped:
    /// parity of it would preserve the damage.
    ///
    /// # Errors
    /// [`WriteParityError`].
    pub fn write_missing_parity(&self, bytes_max: u64) -> Result<u64, WriteParityError> {
        if self.vault.config().parity_percent.is_none() {
            return Err(WriteParityError::Off);
        }
        let (storage, parity) = (self.vault.storage(), self.vault.parity());
        let seals = self.appender.lock().seals().clone();
        let mut missing = Vec::new();
        for (id, seal) in seals.iter() {
            let is_there = parity.is_there(id, seal.generation);
            if !is_there.map_err(|(file, source)| WriteParityError::Storage { file, source })? {
                missing.push(id);
            }
        }
        let (mut left, mut read_bytes) = (missing.len() as u64, 0);
        for id in missing {
            if read_bytes >= bytes_max {
                break;
            }
            read_bytes += storage.length(&id.file_name()).unwrap_or_default();
            match self.write_parity(id) {
                Ok(()) => left -= 1,
                Err(WriteParityError::NotWhole(error)) => {
                    tracing::warn!(arena = %id, %error, "an arena is damaged, and gets no parity");
                }
                Err(other) => return Err(other),
            }
        }
        Ok(left)
    }

    /// Records the arenas that the writer has sealed, in that order.
    pub(super) fn note_parity_due(&self, sealed: Vec<ArenaId>) {
        if self.vault.config().parity_percent.is_some() {
            self.parity_due.arenas().extend(sealed);
        }
    }

    /// Makes the parity that is due. If another thread is doing that, returns at once, or waits for
    /// it if `wait` is true. Parity that cannot be made now is made up for when the store is closed
    /// again. Nothing depends on it.
    pub(super) fn write_due_parity(&self, wait: bool) {
        let Some(percent) = self.vault.config().parity_percent else { return };
        let _alone = match self.parity_due.gate.try_lock() {
            Some(alone) => alone,
            None if !wait => return,
            None => self.parity_due.gate.lock(),
        };
        while let Some(id) = self.parity_due.first() {
            if let Err(error) = self.write_parity_alone(id, percent) {
                tracing::warn!(arena = %id, error = &error as &dyn std::error::Error, "the parity of an arena could not be made; it is tried again later");
                if matches!(error, WriteParityError::Sync { .. }) {
                    // A power cut may take this seal, so no parity may vouch for the seals after
                    // it.
                    self.parity_due.arenas().clear();
                }
            }
        }
    }

    /// Makes up for a share of the missing parity of earlier sessions, when the store is closed.
    pub(super) fn catch_up_parity(&self) {
        if self.vault.config().parity_percent.is_none() {
            return;
        }
        match self.write_missing_parity(CATCH_UP_BYTES) {
            Ok(0) => {}
            Ok(left) => tracing::info!(left, "some arenas still have no parity; the next session continues"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "missing parity could not be made");
            }
        }
    }

    fn write_parity_alone(&self, id: ArenaId, percent: ParityPercent) -> Result<(), WriteParityError> {
        // A crash must not leave the parity of a seal that it takes back: the arena would grow on,
        // and its parity would be that of another arena. Nor may it leave the parity of an arena
        // whose file name it takes: the arena would seem to be lost. So both are made durable
        // first.
        let arena_file = id.file_name();
        let has_new_names = self.appender.lock().has_new_names();
        let named = || if has_new_names { self.vault.log().sync_names() } else { Ok(()) };
        if let Err(source) = self.vault.log().sync_file(&arena_file).and_then(|()| named()) {
            // The system reports this failure only once. If the writer did not fail here, it would
            // rely on data that is lost.
            let reason =
                WriteFailure::of_call(format!("cannot make {arena_file} durable: {source}"), &source);
            self.appender.lock().fail(reason.clone());
            self.drafts.fail_with(|| reason);
            return Err(WriteParityError::Sync { file: arena_file, source });
        }
        // The arena is checked before. Parity of damaged bytes would bring the damage back.
        let whole = self.vault.log().check_whole(id)?;
        let written = self.vault.parity().write(&whole, percent, self.vault.world().workers.as_ref());
        written.map_err(|(file, source)| WriteParityError::Storage { file, source })
    }
}

impl ParityDue {
    fn arenas(&self) -> parking_lot::MutexGuard<'_, VecDeque<ArenaId>> {
        self.arenas.lock()
    }

    fn first(&self) -> Option<ArenaId> {
        self.arenas().pop_front()
    }
}

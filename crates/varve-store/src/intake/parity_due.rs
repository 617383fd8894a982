//! Making parity: soon after an arena is sealed, while it is still in the machine's memory; and for those that have none,
//! a bounded share whenever the store is closed.

use std::collections::VecDeque;
use std::io;

use parking_lot::Mutex;
use varve_log::{ArenaId, ParityPercent, ReadLogError, WriteFailure};
use varve_world::FileName;

use super::Intake;

/// How much of the log is read at one closing to make up for parity that is missing: some seconds' worth.
const CATCH_UP_BYTES: u64 = 4 << 30;

/// What a writer knows of parity that is still to be made.
#[derive(Default)]
pub(super) struct ParityDue {
    /// In the order of their seals: what has parity was durable, and so must be all seals before it.
    arenas: Mutex<VecDeque<ArenaId>>,
    /// Held by the one who makes it, so that it takes the memory of one group.
    gate: Mutex<()>,
}

/// Why an arena has got no parity.
#[derive(Debug, thiserror::Error)]
pub enum WriteParityError {
    /// The store has none: `parity_percent` is 0.
    #[error("the store has no parity: `parity_percent` in config.toml is 0")]
    Off,
    /// The arena is not sealed, or not whole: parity of it would keep the damage.
    #[error("parity can be made only of a whole arena")]
    NotWhole(#[from] ReadLogError),
    /// The arena's seal could not be made durable; the store takes nothing more until it is opened again.
    #[error("cannot make {file} durable")]
    Sync {
        /// The arena's file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// The parity file could not be written.
    #[error("cannot write {file}")]
    Storage {
        /// The parity file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
}

impl Intake {
    /// Makes the parity file of a sealed arena, in place of the one that it may have.
    ///
    /// # Errors
    /// [`WriteParityError`].
    pub fn write_parity(&self, id: ArenaId) -> Result<(), WriteParityError> {
        let percent = self.vault.config().parity_percent.ok_or(WriteParityError::Off)?;
        let _alone = self.parity_due.gate.lock();
        self.write_parity_alone(id, percent)
    }

    /// Makes parity for arenas that have none, of at most about `bytes_max` of the log, and says how many still have none. An arena that
    /// is not whole is left out: parity of it would keep the damage.
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
                    tracing::warn!(arena = %id, %error, "an arena that is not whole gets no parity");
                }
                Err(other) => return Err(other),
            }
        }
        Ok(left)
    }

    /// Notes the arenas that the writer has sealed, in that order.
    pub(super) fn note_parity_due(&self, sealed: Vec<ArenaId>) {
        if self.vault.config().parity_percent.is_some() {
            self.parity_due.arenas().extend(sealed);
        }
    }

    /// Makes the parity that is due, unless somebody else does and `wait` is not asked for. What cannot be made now is made up for when
    /// the store is closed again; nothing depends on it.
    pub(super) fn write_due_parity(&self, wait: bool) {
        let Some(percent) = self.vault.config().parity_percent else { return };
        let _alone = match self.parity_due.gate.try_lock() {
            Some(alone) => alone,
            None if !wait => return,
            None => self.parity_due.gate.lock(),
        };
        while let Some(id) = self.parity_due.first() {
            if let Err(error) = self.write_parity_alone(id, percent) {
                tracing::warn!(arena = %id, error = &error as &dyn std::error::Error, "an arena has got no parity yet");
                if matches!(error, WriteParityError::Sync { .. }) {
                    // A power cut may take this seal, and those after it must not be vouched for then.
                    self.parity_due.arenas().clear();
                }
            }
        }
    }

    /// What closing does for the arenas of earlier sessions.
    pub(super) fn catch_up_parity(&self) {
        if self.vault.config().parity_percent.is_none() {
            return;
        }
        match self.write_missing_parity(CATCH_UP_BYTES) {
            Ok(0) => {}
            Ok(left) => tracing::info!(left, "arenas without parity are left for the next time"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "parity is still missing");
            }
        }
    }

    fn write_parity_alone(&self, id: ArenaId, percent: ParityPercent) -> Result<(), WriteParityError> {
        // A crash must not leave parity of a seal that it takes back, or of an arena whose name it takes: the arena would grow on, and its
        // parity be of another one; or it would seem to be lost.
        let arena_file = id.file_name();
        let has_new_names = self.appender.lock().has_new_names();
        let named = || if has_new_names { self.vault.log().sync_names() } else { Ok(()) };
        if let Err(source) = self.vault.log().sync_file(&arena_file).and_then(|()| named()) {
            // The system tells this only once: without a word here the writer would believe what is lost.
            let reason =
                WriteFailure::of_call(format!("cannot make {arena_file} durable: {source}"), &source);
            self.appender.lock().fail(reason.clone());
            self.drafts.fail_with(|| reason);
            return Err(WriteParityError::Sync { file: arena_file, source });
        }
        // What an arena holds is checked before: parity of damage would bring the damage back.
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

//! Carries out a batch of a reclaim plan: writes the successors of its arenas, commits them
//! together, and puts them in place.

use std::collections::VecDeque;

use varve_log::ArenaId;
use varve_store::{Intake, Permission, ReadySuccessor, ReplacedSeal, Store};
use varve_world::{Timestamp, read_each};

use super::live_clump::IsLive;
use super::reclaim_error::ReclaimError;
use super::successor::SuccessorWriter;

/// The bounds of one batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// No further arena is begun after this many bytes were written.
    pub written_bytes: u64,
    /// No further arena is begun after this time.
    pub until: Timestamp,
}

/// The result of a batch.
#[derive(Debug, Default)]
pub struct ReclaimedBatch {
    /// The replaced arenas, with their lengths before and after in bytes.
    pub replaced: Vec<ReclaimedArena>,
    /// The arenas that could not be rewritten, and stay as they are.
    pub failed: Vec<(ArenaId, ReclaimError)>,
    /// True if the batch ended before its last arena because it was told to stop.
    pub is_stopped: bool,
    /// True if the disk became full: the arenas from the failed one on were not rewritten.
    pub is_disk_full: bool,
}

/// An arena that was replaced by a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimedArena {
    pub arena: ArenaId,
    pub old_bytes: u64,
    pub new_bytes: u64,
}

/// Rewrites arenas of a store that is open for writing.
#[derive(Clone, Copy)]
pub struct Reclaimer<'a> {
    store: &'a Store,
    intake: &'a Intake,
}

impl<'a> Reclaimer<'a> {
    /// Makes a reclaimer of this store.
    ///
    /// # Errors
    /// [`ReclaimError::ReadOnly`] or [`ReclaimError::NotPermitted`].
    pub fn of(store: &'a Store) -> Result<Self, ReclaimError> {
        store.role().require(Permission::Destroy)?;
        let intake = store.intake().ok_or(ReclaimError::ReadOnly)?;
        Ok(Self { store, intake })
    }

    /// Records the barren blocks: the structure that stays in the log though no snapshot needs it.
    /// Must be durable before the first arena is replaced.
    ///
    /// # Errors
    /// [`ReclaimError::Replace`].
    pub fn note_barren(&self, fingerprints: &[u64]) -> Result<(), ReclaimError> {
        Ok(self.intake.note_barren(fingerprints)?)
    }

    /// Replaces arenas by successors with their live blocks, in one commit. `is_live` must know
    /// every block that any snapshot of this very moment needs. Ends early when a limit is reached,
    /// or `should_stop` returns true; the arenas that are ready by then are committed.
    ///
    /// # Errors
    /// [`ReclaimError`] when nothing more can be done. The failure of a single arena is a result.
    pub fn replace(
        &self,
        arenas: &[ArenaId],
        is_live: IsLive<'_>,
        limits: BatchLimits,
        should_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<ReclaimedBatch, ReclaimError> {
        self.intake.begin_reclaiming()?;
        let writer = SuccessorWriter { store: self.store, intake: self.intake, is_live, should_stop };
        let (mut batch, mut ready, mut written_bytes) = (ReclaimedBatch::default(), Vec::new(), 0);
        // Several at a time: while one is read back from the disk, others are packed. A batch may
        // become longer by the successors that are written beside the last one.
        let workers = self.store.world().workers.as_ref();
        let mut width = workers.width().max(1);
        let mut left: VecDeque<ArenaId> = arenas.iter().take(ReplacedSeal::COUNT_MAX).copied().collect();
        while !left.is_empty() && !batch.is_stopped && !batch.is_disk_full {
            if written_bytes >= limits.written_bytes || self.store.world().clock.now() >= limits.until {
                break;
            }
            let ids: Vec<ArenaId> = left.drain(..width.min(left.len())).collect();
            for (id, written) in ids.iter().zip(read_each(workers, &ids, |id| writer.write(*id))) {
                match written {
                    Ok(Some(successor)) => {
                        written_bytes += successor.new.file_bytes;
                        ready.push(successor);
                    }
                    Ok(None) => batch.is_stopped = true,
                    // There may be room for one alone.
                    Err(error) if error.is_disk_full() && ids.len() > 1 => {
                        width = 1;
                        left.push_back(*id);
                    }
                    Err(error) if error.is_disk_full() => {
                        batch.failed.push((*id, error));
                        batch.is_disk_full = true;
                    }
                    Err(error) if error.is_of_one_arena() => batch.failed.push((*id, error)),
                    Err(error) => return Err(error),
                }
            }
        }
        batch.replaced = self.sizes(&ready);
        self.intake.commit_successors(ready)?;
        self.intake.end_reclaiming();
        Ok(batch)
    }

    fn sizes(&self, ready: &[ReadySuccessor]) -> Vec<ReclaimedArena> {
        let log = self.store.vault().log();
        let size = |ready: &ReadySuccessor| ReclaimedArena {
            arena: ready.arena,
            old_bytes: log.file_bytes(ready.arena).unwrap_or_default(),
            new_bytes: ready.new.file_bytes,
        };
        ready.iter().map(size).collect()
    }
}

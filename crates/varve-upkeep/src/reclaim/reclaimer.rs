//! Carries out a batch of a reclaim plan: writes the successors of its arenas, commits them
//! together, and puts them in place.

use std::collections::VecDeque;

use parking_lot::Mutex;
use varve_log::ArenaId;
use varve_store::{Intake, Permission, ReadySuccessor, ReplacedSeal, Store};
use varve_world::{Task, Timestamp};

use super::live_clump::IsLive;
use super::merger::ArenaMerger;
use super::reclaim_error::ReclaimError;
use super::successor::SuccessorWriter;

/// The arenas that are read or written beside those for which there is a core. Each takes some
/// megabytes of memory.
const WAITING_COUNT: usize = 3;

/// The most arenas of a batch. A rename and a look into the directory of each come after the
/// commit, and a note has room for all of them.
const ARENAS_MAX: usize = 512;
const _: () = assert!(ARENAS_MAX <= ReplacedSeal::COUNT_MAX);

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
    /// The bytes that were copied from these arenas to the end of the log.
    pub copied_bytes: u64,
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
        let (store, intake) = (self.store, self.intake);
        let writer = SuccessorWriter { store, intake, is_live, should_stop, keeps_only_notes: false };
        self.write_successors(&writer, arenas, limits, ReclaimedBatch::default())
    }

    /// Copies the live blocks of small arenas to the end of the log, and replaces the arenas by
    /// successors without blocks, in one commit. For a store that names blocks by their contents.
    ///
    /// A crash before the commit leaves each block in two places. If this is told to stop, arenas
    /// whose blocks were copied by then are still replaced.
    ///
    /// # Errors
    /// As for [`replace`](Self::replace).
    pub fn merge(
        &self,
        arenas: &[ArenaId],
        is_live: IsLive<'_>,
        limits: BatchLimits,
        should_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<ReclaimedBatch, ReclaimError> {
        self.intake.begin_reclaiming()?;
        let merger = ArenaMerger::new(self.store, self.intake, is_live, should_stop);
        let mut batch = ReclaimedBatch::default();
        let copied = self
            .run(arenas, limits, &mut batch, |id| Ok(merger.copy(id)?.map(|bytes| (bytes, (id, bytes)))))?;
        merger.finish()?;
        batch.copied_bytes = copied.iter().map(|(_, bytes)| bytes).sum();
        let copied: Vec<ArenaId> = copied.into_iter().map(|(id, _)| id).collect();
        let never = || false;
        let writer = SuccessorWriter {
            store: self.store,
            intake: self.intake,
            is_live,
            should_stop: &never,
            keeps_only_notes: true,
        };
        let unlimited = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };
        self.write_successors(&writer, &copied, unlimited, batch)
    }

    /// Writes successors of arenas, and commits those that are ready.
    fn write_successors(
        &self,
        writer: &SuccessorWriter<'_>,
        arenas: &[ArenaId],
        limits: BatchLimits,
        mut batch: ReclaimedBatch,
    ) -> Result<ReclaimedBatch, ReclaimError> {
        let ready = self.run(arenas, limits, &mut batch, |id| {
            Ok(writer.write(id)?.map(|ready| (ready.new.file_bytes, ready)))
        })?;
        batch.replaced = self.sizes(&ready);
        self.intake.commit_successors(ready)?;
        self.intake.end_reclaiming();
        Ok(batch)
    }

    /// Does something with arenas, several at a time, and returns the results. `work` returns the
    /// bytes that it wrote beside a result, or `None` if it was told to stop.
    fn run<T: Send>(
        &self,
        arenas: &[ArenaId],
        limits: BatchLimits,
        batch: &mut ReclaimedBatch,
        work: impl Fn(ArenaId) -> Result<Option<(u64, T)>, ReclaimError> + Sync,
    ) -> Result<Vec<T>, ReclaimError> {
        let workers = self.store.world().workers.as_ref();
        // While some wait for the disk, others encrypt and check.
        let lanes_max = (workers.width() + WAITING_COUNT).min(workers.reading_width());
        let lane_count = lanes_max.min(arenas.len());
        let left = arenas.iter().take(ARENAS_MAX).copied().collect();
        let queue = Mutex::new(ArenaQueue::new(left, lane_count < 2));
        let work_off = || {
            loop {
                let now = self.store.world().clock.now();
                let Some(id) = queue.lock().take(limits, now) else { return };
                let done = work(id);
                queue.lock().note(id, done);
            }
        };
        workers.run_reading((0..lane_count).map(|_| Box::new(work_off) as Task<'_>).collect());
        let has_crowded = queue.lock().retry_alone();
        if has_crowded {
            work_off();
        }
        let done = queue.into_inner();
        batch.failed.extend(done.failed);
        batch.is_stopped |= done.is_stopped;
        batch.is_disk_full |= done.is_disk_full;
        done.failure.map_or(Ok(done.results), Err)
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

/// Arenas that several workers take, and the results.
struct ArenaQueue<T> {
    left: VecDeque<ArenaId>,
    results: Vec<T>,
    written_bytes: u64,
    failed: Vec<(ArenaId, ReclaimError)>,
    is_stopped: bool,
    is_disk_full: bool,
    /// The arenas for which the disk had no room while others were written.
    crowded: Vec<ArenaId>,
    is_alone: bool,
    failure: Option<ReclaimError>,
}

impl<T> ArenaQueue<T> {
    fn new(left: VecDeque<ArenaId>, is_alone: bool) -> Self {
        Self {
            left,
            results: Vec::new(),
            written_bytes: 0,
            failed: Vec::new(),
            is_stopped: false,
            is_disk_full: false,
            crowded: Vec::new(),
            is_alone,
            failure: None,
        }
    }

    /// Returns the next arena; `None` if no more should be begun.
    fn take(&mut self, limits: BatchLimits, now: Timestamp) -> Option<ArenaId> {
        let is_over = self.is_stopped
            || self.is_disk_full
            || self.failure.is_some()
            || !self.crowded.is_empty()
            || self.written_bytes >= limits.written_bytes
            || now >= limits.until;
        if is_over { None } else { self.left.pop_front() }
    }

    fn note(&mut self, id: ArenaId, done: Result<Option<(u64, T)>, ReclaimError>) {
        match done {
            Ok(Some((written_bytes, result))) => {
                self.written_bytes += written_bytes;
                self.results.push(result);
            }
            Ok(None) => self.is_stopped = true,
            Err(error) if error.is_disk_full() && !self.is_alone => self.crowded.push(id),
            Err(error) if error.is_disk_full() => {
                self.failed.push((id, error));
                self.is_disk_full = true;
            }
            Err(error) if error.is_of_one_arena() => self.failed.push((id, error)),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Prepares another try, one arena at a time, for those that had no room beside others. Returns
    /// false if there were none.
    fn retry_alone(&mut self) -> bool {
        self.is_alone = true;
        let crowded = std::mem::take(&mut self.crowded);
        let has_crowded = !crowded.is_empty();
        self.left.extend(crowded);
        has_crowded
    }
}

//! A write buffer: acknowledges writes and syncs from a log on this machine, and sends the blocks
//! to a slow or unreachable target in the background.
//!
//! ```text
//! put, sync ─▶ open segment ─▶ closed segments, oldest first ─▶ (in small steps) ─▶ target
//! get ──────▶ all of these, and for blocks that they lack ────────────────────────▶ target
//! ```
//!
//! Blocks gather in a *segment*: a small store in a folder. A closed segment never changes. Its
//! blocks are sent to the target in the log's order. When the target has synced all of them, the
//! segment is removed, and its space is free again.
//!
//! In front of shards, each shard has a *route* (`BufferRoute`) with its own segments. Blocks for
//! an unreachable shard wait without delaying others.
//!
//! Invariants:
//! - A block that a sync has covered survives power loss on this machine until the target has
//!   synced it. A crash of either side, at any time, does not lose it.
//! - A segment is removed only after a sync of the target that began when all blocks of the segment
//!   had been sent. A block that the target refuses, or that has become unreadable, keeps its
//!   segment in place, and delays nothing else.
//! - Blocks that are marked as delivered are not sent again. After a crash, only blocks that were
//!   sent after the last mark are sent twice, as the same block under the same name.
//! - Space is bounded. When it is full, a writer waits for a while, and is then refused.
//! - A blocked route does not delay the others, and leaves each of them space.
//!
//! The buffer starts no thread: [`WriteBuffer::step`] does one unit of background work, and is
//! called by the caller's threads.

mod cursor;
mod segment;
mod target;
mod trickle;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use varve_block::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, Score, SyncError, with_causes,
};
use varve_world::{Task, Timestamp, World};

use crate::checked::is_sha1;
use crate::segments::{BeginError, OpenSegmentsError, SegmentFolder, SegmentPurpose};
use segment::{BufferSegment, BufferSegments};
pub use target::BufferTarget;
use target::{BufferRoute, way_of, way_of_all};
pub use trickle::TrickleStep;

/// The smallest size of a buffer, in bytes.
pub const BUFFER_BYTES_MIN: u64 = 8 << 20;
/// The number of segments into which the space of a route is divided, and the limit for all routes
/// together. A segment's space is freed as a whole, and the limit leaves slots for many smaller
/// segments.
const SEGMENTS: [u64; 2] = [8, 32];
/// The largest overhead of a block, in bytes.
const BLOCK_OVERHEAD_BYTES: u64 = 128;
/// The maximum number of callers that wait for space. Others are refused at once, so that threads
/// remain for readers.
const WAITING_MAX: usize = 48;
/// A waiting caller looks again at least this often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The settings of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSettings {
    /// The bytes that it may take on the disk. Blocks that are being written may exceed it
    /// slightly.
    pub bytes_max: u64,
    /// The time that a writer waits for space before it is refused. If a full route has made no
    /// progress for as long, further writers are refused at once.
    pub patience: Duration,
    /// The time that the first block of a segment waits for others before the segment is sent.
    pub linger: Duration,
}

impl Default for BufferSettings {
    fn default() -> Self {
        Self { bytes_max: 1 << 30, patience: Duration::from_secs(20), linger: Duration::from_secs(1) }
    }
}

/// Why a write buffer could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenBufferError {
    #[error("{0}")]
    Segments(#[from] OpenSegmentsError),
    /// The log's scores are SHA-1, so the target's must be, too.
    #[error("a write buffer needs a store with SHA-1 scores behind it")]
    NotSha1,
    #[error("a write buffer of {bytes} bytes is too small: it needs at least {BUFFER_BYTES_MIN}")]
    TooSmall { bytes: u64 },
}

/// The buffer has no space left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the write buffer is full: {used} bytes of {bytes_max} wait for the store behind it{}",
    .trouble.as_ref().map_or(String::new(), |trouble| format!(", which cannot be reached: {trouble}"))
)]
pub struct BufferFull {
    /// The bytes waiting on the same route.
    pub used: u64,
    /// The limit for this route, given the space that the other routes take.
    pub bytes_max: u64,
    /// Why the target accepts nothing, if it is blocked.
    pub trouble: Option<String>,
}

/// The state of a buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BufferStatus {
    /// Bytes of waiting blocks on the disk.
    pub waiting_bytes: u64,
    /// The size of the buffer.
    pub bytes_max: u64,
    /// Segments in use.
    pub segment_count: u64,
    /// Blocks sent since the buffer was opened.
    pub sent_blocks: u64,
    pub sent_bytes: u64,
    /// Blocks that the target refuses, or that are unreadable.
    pub held_blocks: u64,
    /// Writes that were refused because the buffer was full.
    pub refused_writes: u64,
    /// Routes that are blocked.
    pub blocked_ways: u64,
    /// Why routes are blocked, if any is.
    pub trouble: Option<String>,
    /// Why nothing is buffered any more, if there was a fault.
    pub fault: Option<String>,
}

/// A write buffer; see the module.
pub struct WriteBuffer {
    folder: SegmentFolder,
    world: World,
    target: Arc<dyn BlockStore>,
    ways: Vec<BufferRoute>,
    settings: BufferSettings,
    segment_bytes: u64,
    segments: RwLock<BufferSegments>,
    /// Serialises changes of the list by holders of a shared lock on `segments`.
    list: Mutex<()>,
    /// Why no more writes are accepted. After a disk failure, only reopening the buffer can tell
    /// what it holds.
    fault: Mutex<Option<String>>,
    /// Signalled when space has been freed.
    room: (Mutex<()>, Condvar),
    waiting: AtomicUsize,
    counters: BufferCounters,
}

#[derive(Default)]
struct BufferCounters {
    sent_blocks: AtomicU64,
    sent_bytes: AtomicU64,
    held_blocks: AtomicU64,
    refused_writes: AtomicU64,
}

/// A block with its name.
type BlockWithName<'a> = (Block<'a>, BlockName);

enum NotPut {
    Full(BufferFull),
    Put(PutError),
}

impl From<PutError> for NotPut {
    fn from(error: PutError) -> Self {
        Self::Put(error)
    }
}

fn put_failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> PutError {
    PutError::Failed { source: error.into() }
}

impl WriteBuffer {
    /// Opens the buffer in the world's folder, or creates one. Recovers from a crash. Its blocks
    /// will be sent to `target`, which need not be reachable.
    ///
    /// # Errors
    /// [`OpenBufferError`].
    pub fn open(
        world: World,
        target: impl Into<BufferTarget>,
        settings: BufferSettings,
        holder: &str,
    ) -> Result<Self, OpenBufferError> {
        let target = target.into();
        let (ways, target) = (target.ways(), target.blocks());
        if !is_sha1(&*target) {
            return Err(OpenBufferError::NotSha1);
        }
        if settings.bytes_max < BUFFER_BYTES_MIN {
            return Err(OpenBufferError::TooSmall { bytes: settings.bytes_max });
        }
        let (folder, entries) = SegmentFolder::open(world.clone(), SegmentPurpose::WriteBuffer, holder)?;
        let mut segments = BufferSegments {
            closed: Vec::new(),
            open: ways.iter().map(|_| None).collect(),
            gone: Vec::new(),
            next_number: 1,
            sharing: ways.len().saturating_sub(1).max(1),
            bytes_max: settings.bytes_max,
        };
        for entry in entries {
            let slot = entry.slot;
            let store = folder
                .open_store(slot)
                .map_err(|source| OpenSegmentsError::Segment { slot, source: Box::new(source) })?;
            segments.next_number = entry.number + 1;
            segments.closed.push(Arc::new(BufferSegment {
                number: entry.number,
                slot,
                way: way_of_all(&ways, &entry.scores),
                scores: entry.scores,
                through: AtomicU64::new(entry.through),
                store,
                bytes: AtomicU64::new(folder.bytes_in(slot).unwrap_or(0)),
                first_put: Mutex::new(Some(world.clock.now())),
            }));
        }
        // If nothing of a route's last segment has been sent yet, continue that segment. Otherwise
        // each start would leave a small one.
        for (way, BufferRoute { scores, .. }) in ways.iter().enumerate().take(segments.sharing) {
            let last = segments.closed.iter().rposition(|segment| segment.scores == *scores);
            let is_unsent = |place: &usize| segments.closed[*place].through.load(Ordering::SeqCst) == 0;
            segments.open[way] = last.filter(is_unsent).map(|place| segments.closed.remove(place));
        }
        let [of_a_way, in_all] = SEGMENTS;
        let segment_bytes = settings.bytes_max / (of_a_way * segments.sharing as u64).min(in_all);
        Ok(Self {
            folder,
            world,
            target,
            ways,
            settings,
            segment_bytes,
            segments: RwLock::new(segments),
            list: Mutex::default(),
            fault: Mutex::default(),
            room: Default::default(),
            waiting: AtomicUsize::new(0),
            counters: BufferCounters::default(),
        })
    }

    /// The current state.
    #[must_use]
    pub fn status(&self) -> BufferStatus {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let troubles: Vec<String> = self.ways.iter().filter_map(|way| way.trouble.lock().clone()).collect();
        let segments = self.segments.read();
        BufferStatus {
            waiting_bytes: segments.used(),
            bytes_max: self.settings.bytes_max,
            segment_count: segments.live().count() as u64,
            sent_blocks: get(&self.counters.sent_blocks),
            sent_bytes: get(&self.counters.sent_bytes),
            held_blocks: get(&self.counters.held_blocks),
            refused_writes: get(&self.counters.refused_writes),
            blocked_ways: troubles.len() as u64,
            trouble: (!troubles.is_empty()).then(|| troubles.join("; ")),
            fault: self.fault.lock().clone(),
        }
    }

    /// The number of routes. Each is blocked independently.
    #[must_use]
    pub fn way_count(&self) -> usize {
        self.ways.len()
    }

    /// From here on, no writes are accepted, and syncs fail.
    fn note_fault(&self, text: &str) {
        let mut fault = self.fault.lock();
        if fault.is_none() {
            tracing::error!(
                reason = text,
                "a write to the write buffer failed: it takes no more blocks until it is opened again; the blocks in it are sent on"
            );
            *fault = Some(text.to_owned());
        }
    }

    fn check_fault(&self) -> Result<(), String> {
        match &*self.fault.lock() {
            Some(fault) => {
                Err(format!("the write buffer takes no more blocks, because a write to it failed: {fault}"))
            }
            None => Ok(()),
        }
    }

    /// The error for a writer that finds no space on this route.
    fn full(&self, segments: &BufferSegments, way: usize) -> BufferFull {
        let trouble = self.ways[way].trouble.lock().clone();
        BufferFull { used: segments.used_by(way), bytes_max: segments.room_of(way), trouble }
    }

    /// Puts blocks into the open segment of their route, except for those that wait in a closed
    /// one.
    fn try_put(&self, way: usize, blocks: &[BlockWithName<'_>]) -> Result<(), NotPut> {
        loop {
            self.check_fault().map_err(|reason| PutError::ReadOnly { reason })?;
            let segments = self.segments.read();
            let mut fresh = Vec::with_capacity(blocks.len());
            for (block, name) in blocks {
                if !is_waiting(&segments.closed, block, name)? {
                    fresh.push((*block, *name));
                }
            }
            if fresh.is_empty() {
                return Ok(());
            }
            let open = segments.open[way].as_ref().filter(|open| open.bytes() < self.segment_bytes);
            let is_there = match open {
                Some(open) => {
                    let names: Vec<BlockName> = fresh.iter().map(|(_, name)| *name).collect();
                    open.store.has_batch(&names).map_err(put_failed)?
                }
                None => vec![false; fresh.len()],
            };
            let added: u64 = fresh
                .iter()
                .zip(is_there)
                .filter(|(_, is_there)| !is_there)
                .map(|((block, _), _)| block.bytes.len() as u64 + BLOCK_OVERHEAD_BYTES)
                .sum();
            if added > 0 && segments.used_by(way) + added > segments.room_of(way) {
                return Err(NotPut::Full(self.full(&segments, way)));
            }
            if let Some(open) = open {
                let fresh: Vec<Block<'_>> = fresh.into_iter().map(|(block, _)| block).collect();
                let put = open.store.put_batch(&fresh);
                if let Err(error @ PutError::Failed { .. }) = &put {
                    self.note_fault(&with_causes(error));
                }
                put?;
                open.bytes.fetch_add(added, Ordering::SeqCst);
                open.first_put.lock().get_or_insert_with(|| self.world.clock.now());
                return Ok(());
            }
            drop(segments);
            self.turn(way)?;
        }
    }

    /// Makes sure that a route has an open segment with space.
    fn turn(&self, way: usize) -> Result<(), NotPut> {
        // Sync while others can still read and write. Little is left to sync under the lock.
        self.sync_open(way).map_err(put_failed)?;
        let mut segments = self.segments.write();
        if segments.open[way].as_ref().is_some_and(|open| open.bytes() < self.segment_bytes) {
            // Another thread has done it meanwhile.
            return Ok(());
        }
        self.close_open(&mut segments, way).map_err(put_failed)?;
        segments.clear_gone(&self.folder);
        let Some(slot) = segments.free_slot(way) else {
            return Err(NotPut::Full(self.full(&segments, way)));
        };
        let failed = |error: BeginError| put_failed(error);
        let store = self.folder.begin_store(slot).map_err(failed)?;
        let opened = Arc::new(BufferSegment {
            number: segments.next_number,
            slot,
            way,
            scores: self.ways[way].scores,
            through: AtomicU64::new(0),
            store,
            bytes: AtomicU64::new(0),
            first_put: Mutex::default(),
        });
        segments.next_number += 1;
        let mut entries = segments.entries();
        entries.push(opened.entry());
        self.folder.note(&entries).map_err(put_failed)?;
        segments.open[way] = Some(opened);
        Ok(())
    }

    /// Makes the open segment of a route durable.
    fn sync_open(&self, way: usize) -> Result<(), SyncError> {
        let open = self.segments.read().open[way].clone();
        let Some(open) = open else { return Ok(()) };
        open.store.sync().inspect_err(|error| self.note_fault(&with_causes(error)))
    }

    /// Makes the open segment of a route durable, and closes it.
    fn close_open(&self, segments: &mut BufferSegments, way: usize) -> Result<(), SyncError> {
        let Some(open) = &segments.open[way] else { return Ok(()) };
        open.store.sync().inspect_err(|error| self.note_fault(&with_causes(error)))?;
        if let Ok(bytes) = self.folder.bytes_in(open.slot) {
            open.bytes.store(bytes, Ordering::SeqCst);
        }
        let closed = segments.open[way].take();
        segments.closed.extend(closed);
        Ok(())
    }

    /// Waits, for a bounded time, until space may have been freed.
    fn wait_for_room(&self) {
        let (mutex, freed) = &self.room;
        freed.wait_for(&mut mutex.lock(), LOOK_AGAIN);
    }

    /// Puts the blocks of each route. Only the blocks of a full route wait for space.
    fn put_when_there_is_room(&self, blocks: &[Block<'_>], names: &[BlockName]) -> Result<(), PutError> {
        let mut waiting: Vec<(usize, Vec<BlockWithName<'_>>)> = Vec::new();
        for named in blocks.iter().copied().zip(names.iter().copied()) {
            let way = way_of(&self.ways, &named.1.score);
            match waiting.iter_mut().find(|(other, _)| *other == way) {
                Some((_, those)) => those.push(named),
                None => waiting.push((way, vec![named])),
            }
        }
        let started = self.world.clock.now();
        let mut place = None;
        loop {
            let mut full = None;
            let mut still = Vec::new();
            for (way, blocks) in waiting {
                match self.try_put(way, &blocks) {
                    Ok(()) => *self.ways[way].full_since.lock() = None,
                    Err(NotPut::Put(error)) => return Err(error),
                    Err(NotPut::Full(found)) => {
                        full = Some((way, found));
                        still.push((way, blocks));
                    }
                }
            }
            let Some((way, full)) = full else { return Ok(()) };
            waiting = still;
            if place.is_none() {
                place = WaitingCaller::begin(&self.waiting);
            }
            let full_since = *self.ways[way].full_since.lock().get_or_insert_with(|| self.world.clock.now());
            if place.is_none() || self.is_too_long_ago(started) || self.is_too_long_ago(full_since) {
                self.counters.refused_writes.fetch_add(1, Ordering::Relaxed);
                return Err(put_failed(full));
            }
            self.wait_for_room();
        }
    }

    /// Reports whether a wait that began at this time has lasted too long. A clock that was set
    /// back counts as too long.
    fn is_too_long_ago(&self, moment: Timestamp) -> bool {
        let now = self.world.clock.now();
        now < moment || now.since(moment) >= self.settings.patience
    }
}

/// A slot among the waiting callers.
struct WaitingCaller<'a>(&'a AtomicUsize);

impl<'a> WaitingCaller<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let more = |count: usize| (count < WAITING_MAX).then_some(count + 1);
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Self(count))
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reports whether a block waits in one of these segments.
///
/// # Errors
/// [`PutError::Collision`] if a block with this name waits and has other bytes.
fn is_waiting(closed: &[Arc<BufferSegment>], block: &Block<'_>, name: &BlockName) -> Result<bool, PutError> {
    for segment in closed.iter().filter(|segment| segment.scores.contains(&name.score)) {
        if segment.store.has_batch(std::slice::from_ref(name)).map_err(put_failed)? != [true] {
            continue;
        }
        match segment.store.get(name) {
            Ok(bytes) if bytes == block.bytes => return Ok(true),
            Ok(_) => return Err(PutError::Collision { name: *name }),
            // Put an unreadable block again.
            Err(error) => tracing::warn!(%error, "a waiting block cannot be read"),
        }
    }
    Ok(false)
}

impl BlockStore for WriteBuffer {
    varve_block::forward_block_store!(target: score_bytes, empty_score);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let scores = self.put_batch(&[block])?;
        Ok(scores[0])
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_batch(std::slice::from_ref(name)).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        let open: Vec<Arc<BufferSegment>> = {
            // A segment that has been closed by now was made durable then, or the fault is set.
            let segments = self.segments.read();
            self.check_fault().map_err(|text| SyncError { source: text.into() })?;
            segments.open.iter().flatten().cloned().collect()
        };
        let mut synced: Vec<Result<(), SyncError>> = open.iter().map(|_| Ok(())).collect();
        let sync = |(segment, synced): (_, &mut _)| {
            let segment: &Arc<BufferSegment> = segment;
            *synced = segment.store.sync();
        };
        match open.len() {
            0 | 1 => open.iter().zip(&mut synced).for_each(sync),
            _ => {
                let task = |both| Box::new(move || sync(both)) as Task<'_>;
                self.world.workers.run_all(open.iter().zip(&mut synced).map(task).collect());
            }
        }
        synced
            .into_iter()
            .collect::<Result<(), _>>()
            .inspect_err(|error| self.note_fault(&with_causes(error)))
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        if let Some(large) = blocks.iter().find(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            return Err(PutError::TooLarge { bytes: large.bytes.len() });
        }
        let scores = Score::sha1_of_each(blocks.iter().map(|block| block.bytes));
        let name =
            |(score, block): (&Score, &Block<'_>)| BlockName { score: *score, block_type: block.block_type };
        let names: Vec<BlockName> = scores.iter().zip(blocks).map(name).collect();
        self.put_when_there_is_room(blocks, &names)?;
        Ok(scores)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        // Blocks of a segment that is removed meanwhile are at the target, which is asked last.
        let segments: Vec<Arc<BufferSegment>> = self.segments.read().live().cloned().collect();
        let missing = |name: &BlockName| GetError::NotFound { name: *name };
        let mut found: Vec<Result<Bytes, GetError>> = names.iter().map(|name| Err(missing(name))).collect();
        for segment in &segments {
            let is_open =
                |place: &usize| found[*place].is_err() && segment.scores.contains(&names[*place].score);
            let open: Vec<usize> = (0..names.len()).filter(is_open).collect();
            let asked: Vec<BlockName> = open.iter().map(|place| names[*place]).collect();
            for (place, answer) in open.into_iter().zip(segment.store.get_batch(&asked)) {
                if !matches!(answer, Err(GetError::NotFound { .. })) {
                    found[place] = answer;
                }
            }
        }
        drop(segments);
        let open: Vec<usize> = (0..names.len()).filter(|place| found[*place].is_err()).collect();
        if open.is_empty() {
            return found;
        }
        let asked: Vec<BlockName> = open.iter().map(|place| names[*place]).collect();
        for (place, answer) in open.into_iter().zip(self.target.get_batch(&asked)) {
            // Local damage is a more useful error than a missing block.
            if answer.is_ok() || matches!(found[place], Err(GetError::NotFound { .. })) {
                found[place] = answer;
            }
        }
        found
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        let segments: Vec<Arc<BufferSegment>> = self.segments.read().live().cloned().collect();
        let mut present = vec![false; names.len()];
        for segment in &segments {
            for (present, is_there) in present.iter_mut().zip(segment.store.has_batch(names)?) {
                *present |= is_there;
            }
        }
        drop(segments);
        let asked: Vec<BlockName> =
            names.iter().zip(&present).filter(|(_, present)| !**present).map(|(name, _)| *name).collect();
        if asked.is_empty() {
            return Ok(present);
        }
        let mut answers = self.target.has_batch(&asked)?.into_iter();
        for present in present.iter_mut().filter(|present| !**present) {
            *present = answers.next().unwrap_or(false);
        }
        Ok(present)
    }
}

impl fmt::Debug for WriteBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBuffer").field("status", &self.status()).finish_non_exhaustive()
    }
}

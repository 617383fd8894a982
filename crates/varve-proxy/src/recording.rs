//! A recorder: passes all calls on to the store behind it, and writes a trace of them.
//!
//! ```text
//! put ─▶ the store behind ─▶ score ─▶ BlockIds ─▶ number ─▶ run ─▶ TraceWriter
//! ```
//!
//! Invariants:
//! - The store behind gets the same calls as without a recorder, and the caller gets its results.
//! - A trace that cannot be written ends the recording, and never a put or a get.
//! - The memory is bounded: by the table of numbers, and a buffer.
//!
//! Only calls that succeed are recorded. `has_batch` and `expect` return no block, and are not.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{
    Block, BlockName, BlockStore, BlockType, GetError, PutError, PutHints, Score, SyncError,
    forward_block_store,
};
use varve_trace::{
    BlockIds, BlockUse, SizeClass, SizeMeter, SnapshotBegin, SourceKind, TraceHeader, TraceMaker,
    TraceRecord, TraceRun, TraceWriter, WaitingRun, WriteTraceError,
};
use varve_world::{Clock, Random, Timestamp};

/// The limit for the memory of the table of numbers. It takes as much only for 29 million blocks.
const IDS_BYTES_MAX: usize = 400 << 20;
/// Pauses that are shorter are not recorded.
const IDLE_MILLISECONDS_MIN: u64 = 1000;

/// The reason why a recording was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartRecordingError {
    #[error("the system provides no random bytes")]
    Random { source: io::Error },
    #[error(transparent)]
    Trace(#[from] WriteTraceError),
}

/// A store whose work is recorded.
pub struct RecordingStore {
    inner: Arc<dyn BlockStore>,
    clock: Arc<dyn Clock>,
    state: Mutex<RecordingState>,
}

struct RecordingState {
    ids: BlockIds,
    /// `None` after the end of the recording.
    writer: Option<TraceWriter<Box<dyn Write + Send>>>,
    failure: Option<WriteTraceError>,
    /// The last run, which the next may continue.
    waiting: WaitingRun,
    /// Bytes since the beginning of the snapshot.
    place: u64,
    is_full_noted: bool,
    last_call: Timestamp,
    /// The numbers of series, by their names.
    series: BTreeMap<String, u64>,
}

/// Makes the record of a run: [`TraceRecord::Put`] or [`TraceRecord::Get`].
type RunVerb = fn(TraceRun) -> TraceRecord;

/// A block of a successful call.
struct UsedBlock<'a> {
    name: BlockName,
    bytes: &'a [u8],
}

impl RecordingState {
    fn write(&mut self, record: &TraceRecord) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(failure) = writer.write(record) {
            self.writer = None;
            self.failure = Some(failure);
        }
    }

    fn note(&mut self, record: TraceRecord) {
        for record in self.waiting.add(record).into_iter().flatten() {
            self.write(&record);
        }
    }

    fn flush(&mut self) {
        if let Some(Err(failure)) = self.writer.as_mut().map(TraceWriter::flush) {
            self.writer = None;
            self.failure = Some(failure);
        }
    }

    fn note_block(&mut self, verb: RunVerb, name: &BlockName, bytes: usize, class: SizeClass) {
        if self.ids.is_full() && !self.is_full_noted {
            self.is_full_noted = true;
            self.note(TraceRecord::IdsFull);
        }
        let (first_id, size_class) = match self.ids.id_of(name) {
            BlockUse::First(id) => (id, class),
            BlockUse::Again(id) => (id, SizeClass::UNKNOWN),
        };
        let run = TraceRun {
            place: self.place,
            first_id,
            block_count: 1,
            block_type: name.block_type,
            // The store has accepted the block, so its size is below the limit.
            block_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            size_class,
        };
        self.place = self.place.saturating_add(bytes as u64);
        self.note(verb(run));
    }
}

impl RecordingStore {
    /// Records the work of `inner`. `maker` names the program and its version. `block_bytes` is the
    /// size into which the source is cut, if it is one size.
    ///
    /// # Errors
    /// [`StartRecordingError`].
    pub fn new(
        inner: Arc<dyn BlockStore>,
        output: Box<dyn Write + Send>,
        maker: &str,
        block_bytes: Option<u32>,
        random: &dyn Random,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartRecordingError> {
        let ids =
            BlockIds::new(random, IDS_BYTES_MAX).map_err(|source| StartRecordingError::Random { source })?;
        let header = TraceHeader { maker: TraceMaker::Recorder, name: maker.into(), block_bytes };
        let mut writer = TraceWriter::new(output, &header)?;
        writer.write(&TraceRecord::Open)?;
        writer.flush()?;
        let state = RecordingState {
            ids,
            writer: Some(writer),
            failure: None,
            waiting: WaitingRun::default(),
            place: 0,
            is_full_noted: false,
            last_call: clock.now(),
            series: BTreeMap::new(),
        };
        Ok(Self { inner, clock, state: Mutex::new(state) })
    }

    /// Records that a snapshot begins. The trace has a number in place of `series`.
    pub fn begin_snapshot(&self, series: &str, source: SourceKind) {
        self.note_pause();
        let now = self.clock.now();
        let mut state = self.state.lock();
        let next = state.series.len() as u64;
        let series = *state.series.entry(series.to_owned()).or_insert(next);
        state.place = 0;
        let begin = SnapshotBegin { time: now.0.div_euclid(1_000_000_000), series, source };
        state.note(TraceRecord::Snapshot(begin));
    }

    /// Records that the store behind has made all blocks durable, without a sync through the
    /// recorder.
    pub fn note_sync(&self) {
        let mut state = self.state.lock();
        state.note(TraceRecord::Sync);
        state.flush();
    }

    /// Ends the recording. Later calls are only passed on.
    ///
    /// # Errors
    /// [`WriteTraceError`]: the trace lacks the calls since the error.
    pub fn finish(&self) -> Result<(), WriteTraceError> {
        let mut state = self.state.lock();
        state.note(TraceRecord::Close);
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.writer.take().map_or(Ok(()), |writer| writer.finish().map(drop))
    }

    /// Records a pause before a call.
    fn note_pause(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let milliseconds = u64::try_from(now.since(state.last_call).as_millis()).unwrap_or(u64::MAX);
        state.last_call = now;
        if milliseconds >= IDLE_MILLISECONDS_MIN {
            state.note(TraceRecord::Idle { milliseconds });
            state.flush();
        }
    }

    fn note_blocks(&self, verb: RunVerb, used: &[UsedBlock<'_>]) {
        // Only new blocks are compressed, and others may record meanwhile.
        let is_known: Vec<bool> = {
            let state = self.state.lock();
            if state.writer.is_none() {
                return;
            }
            used.iter().map(|block| state.ids.knows(&block.name)).collect()
        };
        let mut meter = SizeMeter::new();
        let classes: Vec<_> = used
            .iter()
            .zip(is_known)
            .map(|(block, is_known)| if is_known { SizeClass::UNKNOWN } else { meter.class(block.bytes) })
            .collect();
        let mut state = self.state.lock();
        for (block, class) in used.iter().zip(classes) {
            state.note_block(verb, &block.name, block.bytes.len(), class);
        }
        state.last_call = self.clock.now();
    }

    fn note_put(&self, block: &Block<'_>, score: Score) {
        let name = BlockName { score, block_type: block.block_type };
        self.note_blocks(TraceRecord::Put, &[UsedBlock { name, bytes: block.bytes }]);
    }

    fn note_puts(&self, blocks: &[Block<'_>], scores: &[Score]) {
        let name = |block_type: BlockType, score: &Score| BlockName { score: *score, block_type };
        let used = blocks.iter().zip(scores);
        let used: Vec<_> = used
            .map(|(block, score)| UsedBlock { name: name(block.block_type, score), bytes: block.bytes })
            .collect();
        self.note_blocks(TraceRecord::Put, &used);
    }
}

impl BlockStore for RecordingStore {
    forward_block_store!(inner: score_bytes, empty_score, expect, has_batch);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        self.note_pause();
        let score = self.inner.put(block)?;
        self.note_put(&block, score);
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.note_pause();
        let bytes = self.inner.get(name)?;
        self.note_blocks(TraceRecord::Get, &[UsedBlock { name: *name, bytes: &bytes }]);
        Ok(bytes)
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.note_pause();
        self.inner.sync()?;
        let mut state = self.state.lock();
        state.note(TraceRecord::Sync);
        state.flush();
        state.last_call = self.clock.now();
        Ok(())
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.note_pause();
        let scores = self.inner.put_batch(blocks)?;
        self.note_puts(blocks, &scores);
        Ok(scores)
    }

    fn put_batch_with(&self, blocks: &[Block<'_>], hints: PutHints<'_>) -> Result<Vec<Score>, PutError> {
        self.note_pause();
        let scores = self.inner.put_batch_with(blocks, hints)?;
        self.note_puts(blocks, &scores);
        Ok(scores)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        self.note_pause();
        let found = self.inner.get_batch(names);
        let used = names.iter().zip(&found);
        let used: Vec<_> = used
            .filter_map(|(name, bytes)| bytes.as_ref().ok().map(|bytes| UsedBlock { name: *name, bytes }))
            .collect();
        self.note_blocks(TraceRecord::Get, &used);
        found
    }
}

//! A store of copies with bounded size. It evicts the blocks that have not been used for the
//! longest time.
//!
//! Blocks gather in segments, each a small store. When the space is used up, the oldest segment is
//! dropped as a whole. A block that is read from one of the older half is put into the newest
//! segment again. Blocks in use therefore stay, and the others vanish with their segment.
//!
//! Invariants:
//! - It takes no more space than configured, except for blocks that are being written, and for
//!   dropped segments that are still being read.
//! - Its contents are dispensable: blocks that are lost, damaged or cannot be opened are dropped. A
//!   sync therefore promises nothing; callers that need durability sync the store behind.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use varve_block::{BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};
use varve_store::Store;
use varve_world::World;

use crate::segments::{OpenSegmentsError, SEGMENTS_MAX, SegmentEntry, SegmentFolder, SegmentPurpose};
use crate::shards::ScoreRange;

/// The smallest size that can be configured.
pub const BOUNDED_BYTES_MIN: u64 = 8 << 20;
/// The number of segments. One of them is dropped at a time.
const SEGMENTS: u64 = 8;
/// The largest overhead of a block, in bytes.
const BLOCK_OVERHEAD_BYTES: u64 = 128;
/// The maximum number of dropped segments that slow readers may keep in use.
const GONE_MAX: usize = 2;
/// New blocks are made durable after this many bytes, which bounds the loss when the process is
/// killed.
const SYNC_BYTES: u64 = 16 << 20;

/// Why a bounded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenBoundedError {
    #[error("{0}")]
    Segments(#[from] OpenSegmentsError),
    #[error("a look-aside of {bytes} bytes is too small: it needs at least {BOUNDED_BYTES_MIN}")]
    TooSmall { bytes: u64 },
}

struct BoundedSegment {
    number: u64,
    slot: u32,
    store: Store,
    bytes: AtomicU64,
}

impl BoundedSegment {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct BoundedSegments {
    /// Oldest first. Blocks are put into the last one.
    live: Vec<Arc<BoundedSegment>>,
    /// Dropped segments that may still be read.
    gone: Vec<Arc<BoundedSegment>>,
    next_number: u64,
}

impl BoundedSegments {
    fn entries(&self) -> Vec<SegmentEntry> {
        self.live
            .iter()
            .map(|segment| SegmentEntry {
                number: segment.number,
                slot: segment.slot,
                through: 0,
                scores: ScoreRange::ALL,
            })
            .collect()
    }

    fn live_bytes(&self) -> u64 {
        self.live.iter().map(|segment| segment.bytes()).sum()
    }

    fn used(&self) -> u64 {
        self.live.iter().chain(&self.gone).map(|segment| segment.bytes()).sum()
    }

    fn free_slot(&self) -> Option<u32> {
        (0..SEGMENTS_MAX).find(|slot| self.live.iter().chain(&self.gone).all(|segment| segment.slot != *slot))
    }
}

/// A bounded store of copies; see the module. Its scores are SHA-1.
pub struct BoundedStore {
    folder: SegmentFolder,
    bytes_max: u64,
    segment_bytes: u64,
    segments: RwLock<BoundedSegments>,
    unsynced_bytes: AtomicU64,
    empty: Score,
}

impl BoundedStore {
    /// Opens the store in the world's folder, or creates it. It may take `bytes_max` bytes.
    ///
    /// # Errors
    /// [`OpenBoundedError`].
    pub fn open(world: World, bytes_max: u64, holder: &str) -> Result<Self, OpenBoundedError> {
        if bytes_max < BOUNDED_BYTES_MIN {
            return Err(OpenBoundedError::TooSmall { bytes: bytes_max });
        }
        let (folder, entries) = SegmentFolder::open(world, SegmentPurpose::LookAside, holder)?;
        let mut segments = BoundedSegments { next_number: 1, ..BoundedSegments::default() };
        for entry in entries {
            segments.next_number = entry.number + 1;
            match folder.open_store(entry.slot) {
                Ok(store) => segments.live.push(Arc::new(BoundedSegment {
                    number: entry.number,
                    slot: entry.slot,
                    store,
                    bytes: AtomicU64::new(folder.bytes_in(entry.slot).unwrap_or(0)),
                })),
                Err(error) => {
                    tracing::warn!(%error, slot = entry.slot, "a part of the look-aside cannot be opened, and is dropped");
                }
            }
        }
        Ok(Self {
            folder,
            bytes_max,
            segment_bytes: bytes_max / SEGMENTS,
            segments: RwLock::new(segments),
            unsynced_bytes: AtomicU64::new(0),
            empty: Score::sha1(&[]),
        })
    }

    /// The bytes in use now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.segments.read().used()
    }

    /// Puts blocks into the newest segment, except for those that are in the newer half of the
    /// segments.
    fn put_fresh(&self, blocks: &[(BlockName, &[u8])]) -> Result<(), PutError> {
        loop {
            let segments = self.segments.read();
            let Some(newest) = segments.live.last().filter(|newest| newest.bytes() < self.segment_bytes)
            else {
                drop(segments);
                self.turn()?;
                continue;
            };
            let half = segments.live.len() / 2;
            let mut fresh = Vec::new();
            for (name, bytes) in blocks {
                let is_near = |segment: &Arc<BoundedSegment>| {
                    matches!(segment.store.has_batch(std::slice::from_ref(name)).as_deref(), Ok([true]))
                };
                if !segments.live[half..].iter().any(is_near) {
                    fresh.push(Block { block_type: name.block_type, bytes });
                }
            }
            newest.store.put_batch(&fresh)?;
            let added: usize = fresh.iter().map(|block| block.bytes.len()).sum();
            let added = added as u64 + fresh.len() as u64 * BLOCK_OVERHEAD_BYTES;
            newest.bytes.fetch_add(added, Ordering::SeqCst);
            let newest = Arc::clone(newest);
            drop(segments);
            if self.unsynced_bytes.fetch_add(added, Ordering::SeqCst) + added >= SYNC_BYTES {
                self.unsynced_bytes.store(0, Ordering::SeqCst);
                if let Err(error) = newest.store.sync() {
                    tracing::warn!(%error, "the newest blocks of a look-aside are not durable, and may have to be fetched again");
                }
            }
            return Ok(());
        }
    }

    /// Drops the oldest segments until there is space for a new one, and begins that.
    fn turn(&self) -> Result<(), PutError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| PutError::Failed { source };
        let mut segments = self.segments.write();
        if segments.live.last().is_some_and(|newest| newest.bytes() < self.segment_bytes) {
            return Ok(());
        }
        if let Some(full) = segments.live.last() {
            // Make the full segment durable, so that it is complete when it is opened again. A
            // failure is harmless.
            if let Err(error) = full.store.sync() {
                tracing::warn!(%error, "a part of the look-aside could not be made durable");
            }
            if let Ok(bytes) = self.folder.bytes_in(full.slot) {
                full.bytes.store(bytes, Ordering::SeqCst);
            }
        }
        while !segments.live.is_empty() && segments.live_bytes() + self.segment_bytes > self.bytes_max {
            let oldest = segments.live.remove(0);
            self.folder.note(&segments.entries()).map_err(|error| failed(error.into()))?;
            segments.gone.push(oldest);
        }
        self.folder.clear_unread(&mut segments.gone, |segment| (segment.slot, segment.store));
        if segments.gone.len() > GONE_MAX {
            return Err(failed("too many evicted parts of the look-aside are still being read".into()));
        }
        let slot = segments.free_slot().ok_or_else(|| failed("there is no free slot".into()))?;
        let store = self.folder.begin_store(slot).map_err(|error| failed(error.into()))?;
        let (number, bytes) = (segments.next_number, AtomicU64::new(0));
        segments.next_number += 1;
        segments.live.push(Arc::new(BoundedSegment { number, slot, store, bytes }));
        self.folder.note(&segments.entries()).map_err(|error| failed(error.into()))
    }
}

impl BlockStore for BoundedStore {
    fn score_bytes(&self) -> usize {
        self.empty.as_bytes().len()
    }

    fn empty_score(&self) -> Score {
        self.empty
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let scores = self.put_batch(&[block])?;
        Ok(scores[0])
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_batch(std::slice::from_ref(name)).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        let newest = self.segments.read().live.last().cloned();
        newest.map_or(Ok(()), |newest| newest.store.sync())
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        if let Some(large) = blocks.iter().find(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            return Err(PutError::TooLarge { bytes: large.bytes.len() });
        }
        let scores = Score::sha1_of_each(blocks.iter().map(|block| block.bytes));
        let name =
            |score: &Score, block: &Block<'_>| BlockName { score: *score, block_type: block.block_type };
        let named: Vec<(BlockName, &[u8])> =
            scores.iter().zip(blocks).map(|(score, block)| (name(score, block), block.bytes)).collect();
        self.put_fresh(&named)?;
        Ok(scores)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let segments: Vec<Arc<BoundedSegment>> = self.segments.read().live.iter().rev().cloned().collect();
        let old_from = segments.len().div_ceil(2);
        let missing = |name: &BlockName| GetError::NotFound { name: *name };
        let mut found: Vec<Result<Bytes, GetError>> = names.iter().map(|name| Err(missing(name))).collect();
        let mut old = Vec::new();
        for (age, segment) in segments.iter().enumerate() {
            let open: Vec<usize> = (0..names.len()).filter(|place| found[*place].is_err()).collect();
            let asked: Vec<BlockName> = open.iter().map(|place| names[*place]).collect();
            for (place, answer) in open.into_iter().zip(segment.store.get_batch(&asked)) {
                match &answer {
                    Err(GetError::NotFound { .. }) => continue,
                    Ok(_) if age >= old_from => old.push(place),
                    _ => {}
                }
                found[place] = answer;
            }
        }
        drop(segments);
        let used: Vec<(BlockName, &[u8])> =
            old.iter().filter_map(|place| Some((names[*place], &**found[*place].as_ref().ok()?))).collect();
        if !used.is_empty()
            && let Err(error) = self.put_fresh(&used)
        {
            tracing::debug!(%error, "recently used blocks could not be moved to the newest part");
        }
        found
    }
}

impl fmt::Debug for BoundedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedStore").field("used", &self.used()).finish_non_exhaustive()
    }
}

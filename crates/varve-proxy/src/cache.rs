//! A cache in front of another store (vcache: Lukkien 2008, chapter 9).
//!
//! ```text
//! get ─▶ memory ─▶ look-aside ─▶ source            blocks from further away are kept nearer
//! put ─▶ source, and the look-aside if enabled     sync likewise
//! ```
//!
//! Invariants:
//! - Only the source decides what is stored. A write or a sync is complete when the source has
//!   completed it. A block is missing if neither the source nor a nearer cache has it.
//! - Every returned block has the requested score. If the look-aside returns other bytes, the
//!   source is asked.
//! - A look-aside that fails only costs time. It is then not used for a while, which is counted in
//!   requests and not in seconds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};

use crate::checked::{WrongBytes, is_right};
use crate::recent_blocks::RecentBlocks;

/// A look-aside that has failed is skipped for this many requests. The number doubles with each
/// further failure, up to the second value.
const REST_QUESTIONS: [u64; 2] = [16, 4096];

/// A second store, usually near and small.
pub struct LookAside {
    pub blocks: Arc<dyn BlockStore>,
    /// Written blocks go into the look-aside, too, not only blocks that were read.
    pub takes_writes: bool,
}

/// Counters of a cache, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Read from memory.
    pub from_memory: u64,
    /// Read from the look-aside.
    pub from_look_aside: u64,
    /// Read from the source.
    pub from_source: u64,
    /// Requests to the look-aside that failed or returned wrong bytes.
    pub look_aside_failures: u64,
}

#[derive(Default)]
struct CacheCounters {
    from_memory: AtomicU64,
    from_look_aside: AtomicU64,
    from_source: AtomicU64,
    look_aside_failures: AtomicU64,
}

/// A cache: memory and an optional look-aside in front of a source.
pub struct Cache {
    source: Arc<dyn BlockStore>,
    look_aside: Option<LookAside>,
    memory: RecentBlocks,
    counters: CacheCounters,
    /// The number of requests for which the look-aside will still be skipped, and the number after
    /// its next failure.
    spared: AtomicU64,
    rest: AtomicU64,
}

/// The scores of the look-aside are not those of the source.
#[derive(Debug, thiserror::Error)]
#[error("a look-aside must name blocks like the store behind the cache")]
pub struct OtherScores;

impl Cache {
    /// Makes a cache of `memory_bytes` in front of `source`.
    ///
    /// # Errors
    /// [`OtherScores`].
    pub fn new(
        source: Arc<dyn BlockStore>,
        look_aside: Option<LookAside>,
        memory_bytes: u64,
    ) -> Result<Self, OtherScores> {
        if look_aside.as_ref().is_some_and(|aside| aside.blocks.empty_score() != source.empty_score()) {
            return Err(OtherScores);
        }
        Ok(Self {
            source,
            look_aside,
            memory: RecentBlocks::new(memory_bytes),
            counters: CacheCounters::default(),
            spared: AtomicU64::new(0),
            rest: AtomicU64::new(REST_QUESTIONS[0]),
        })
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            from_memory: get(&self.counters.from_memory),
            from_look_aside: get(&self.counters.from_look_aside),
            from_source: get(&self.counters.from_source),
            look_aside_failures: get(&self.counters.look_aside_failures),
        }
    }

    /// The look-aside, unless it is being skipped.
    fn look_aside(&self) -> Option<&LookAside> {
        let look_aside = self.look_aside.as_ref()?;
        let spare = |left: u64| left.checked_sub(1);
        let is_spared = self.spared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spare).is_ok();
        (!is_spared).then_some(look_aside)
    }

    fn note_failure(&self, error: &dyn std::error::Error) {
        let count = self.counters.look_aside_failures.fetch_add(1, Ordering::Relaxed);
        let rest = self.rest.load(Ordering::Relaxed);
        self.spared.store(rest, Ordering::Relaxed);
        self.rest.store((2 * rest).min(REST_QUESTIONS[1]), Ordering::Relaxed);
        if count == 0 || count.is_power_of_two() {
            tracing::warn!(%error, "the look-aside fails: blocks are read from the store behind it");
        }
    }

    /// Fills `found` with blocks from memory and from the look-aside.
    fn read_near(&self, names: &[BlockName], found: &mut [Option<Bytes>]) {
        let mut hits = 0;
        for (name, found) in names.iter().zip(found.iter_mut()) {
            *found = self.memory.get(name);
            hits += u64::from(found.is_some());
        }
        self.counters.from_memory.fetch_add(hits, Ordering::Relaxed);
        let wanted: Vec<usize> = (0..names.len()).filter(|place| found[*place].is_none()).collect();
        if wanted.is_empty() {
            return;
        }
        let Some(look_aside) = self.look_aside() else { return };
        let asked: Vec<BlockName> = wanted.iter().map(|place| names[*place]).collect();
        let mut failure: Option<GetError> = None;
        for ((place, name), answer) in wanted.into_iter().zip(&asked).zip(look_aside.blocks.get_batch(&asked))
        {
            match answer {
                Ok(block) if is_right(name, &block) => {
                    self.memory.insert(*name, &block);
                    found[place] = Some(block);
                    self.counters.from_look_aside.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {
                    let source = Box::new(WrongBytes { store: "the look-aside" });
                    failure = Some(GetError::Damaged { name: *name, source });
                }
                Err(GetError::NotFound { .. }) => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            // A few damaged blocks are no reason to skip the look-aside.
            Some(error @ GetError::Damaged { .. }) => {
                self.counters.look_aside_failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "a block in the look-aside is damaged, and is read again");
            }
            Some(error) => self.note_failure(&error),
            None => self.rest.store(REST_QUESTIONS[0], Ordering::Relaxed),
        }
    }

    fn fill_look_aside(&self, blocks: &[Block<'_>]) {
        if blocks.is_empty() {
            return;
        }
        let Some(look_aside) = self.look_aside() else { return };
        if let Err(error) = look_aside.blocks.put_batch(blocks) {
            self.note_failure(&error);
        }
    }
}

impl BlockStore for Cache {
    varve_block::forward_block_store!(source: score_bytes, empty_score);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let score = self.source.put(block)?;
        if self.look_aside.as_ref().is_some_and(|aside| aside.takes_writes) {
            self.fill_look_aside(&[block]);
        }
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_batch(std::slice::from_ref(name)).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.source.sync()?;
        if let Some(look_aside) = self.look_aside.as_ref().filter(|aside| aside.takes_writes)
            && let Err(error) = look_aside.blocks.sync()
        {
            self.note_failure(&error);
        }
        Ok(())
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        let scores = self.source.put_batch(blocks)?;
        if self.look_aside.as_ref().is_some_and(|aside| aside.takes_writes) {
            self.fill_look_aside(blocks);
        }
        Ok(scores)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let mut found: Vec<Option<Bytes>> = vec![None; names.len()];
        self.read_near(names, &mut found);
        let far: Vec<BlockName> =
            names.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(name, _)| *name).collect();
        if far.is_empty() {
            let missing = |name: &BlockName| GetError::NotFound { name: *name };
            return names.iter().zip(found).map(|(name, found)| found.ok_or_else(|| missing(name))).collect();
        }
        let mut fetched = Vec::with_capacity(far.len());
        for (name, answer) in far.iter().zip(self.source.get_batch(&far)) {
            fetched.push(answer.and_then(|block| {
                if is_right(name, &block) {
                    return Ok(block);
                }
                let source = Box::new(WrongBytes { store: "the store behind the cache" });
                Err(GetError::Damaged { name: *name, source })
            }));
        }
        let mut fresh = Vec::new();
        for (name, block) in far.iter().zip(&fetched) {
            if let Ok(block) = block {
                self.counters.from_source.fetch_add(1, Ordering::Relaxed);
                self.memory.insert(*name, block);
                fresh.push(Block { block_type: name.block_type, bytes: block });
            }
        }
        self.fill_look_aside(&fresh);
        let mut fetched = fetched.into_iter();
        names
            .iter()
            .zip(found)
            .map(|(name, found)| match found {
                Some(block) => Ok(block),
                None => fetched.next().unwrap_or(Err(GetError::NotFound { name: *name })),
            })
            .collect()
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        // Only the source knows what is stored now; cached blocks only show what was stored once.
        self.source.has_batch(names)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

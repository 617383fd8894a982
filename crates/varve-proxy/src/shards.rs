//! Distributes blocks over several stores by the leading bits of their scores (memventi's load
//! balancing: Lukkien 2008, chapter 9).
//!
//! The leading 32 bits of a score, as a fraction of 2^32, select one of N stores. Of 4 stores, the
//! first has the scores that begin with the bits 00, and so on. The order of the stores therefore
//! determines where blocks are.
//!
//! Invariants:
//! - An unreachable store fails only the reads and writes of its own blocks, with an error that
//!   names it.
//! - A sync involves only the stores that were written to since their last successful sync.

mod group;
mod range;

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use varve_block::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, Score, SyncError, to_usize,
};
use varve_world::{Task, Workers};

use crate::checked::is_sha1;
pub(crate) use group::ShardGroup;
pub(crate) use range::ScoreRange;
use range::leading_bits;

/// The maximum number of shards.
pub(crate) const SHARDS_MAX: usize = 256;

/// One of the stores.
pub struct Shard {
    /// Its name in messages.
    pub name: String,
    pub blocks: Arc<dyn BlockStore>,
}

/// Why blocks cannot be distributed.
#[derive(Debug, thiserror::Error)]
pub enum ShardsError {
    /// There are no stores, or too many.
    #[error("blocks can be spread over 1 to {SHARDS_MAX} stores, not over {count}")]
    Count { count: usize },
    /// The shard of a block is derived from its score before it is stored, so scores must be SHA-1.
    #[error("{name}: blocks can be spread only over stores with SHA-1 scores")]
    NotSha1 {
        /// The store with other scores.
        name: String,
    },
}

/// An error of one shard.
#[derive(Debug, thiserror::Error)]
#[error(
    "shard {number} of {count}, {name}, with the scores from {first:08x}… to {last:08x}…, fails; the other shards continue"
)]
pub struct ShardFailed {
    number: usize,
    count: usize,
    name: String,
    first: u32,
    last: u32,
    source: Box<dyn Error + Send + Sync>,
}

struct ShardState {
    name: String,
    blocks: Arc<dyn BlockStore>,
    /// Set while blocks were written that no sync has covered.
    is_dirty: AtomicBool,
    /// Held during a sync: a concurrent sync waits, and does not take the shard for clean.
    gate: Mutex<()>,
    /// The last request has failed.
    is_failing: AtomicBool,
    failures: AtomicU64,
}

/// The state of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// Its name in messages.
    pub name: String,
    /// The last request has failed.
    pub is_failing: bool,
    /// The number of failed requests.
    pub failures: u64,
}

/// Blocks that are distributed over several stores.
pub struct ShardedStore {
    parts: Vec<ShardState>,
    workers: Arc<dyn Workers>,
    empty: Score,
}

impl ShardedStore {
    /// Distributes blocks over these stores, in this order. `workers` run concurrent requests.
    ///
    /// # Errors
    /// [`ShardsError`].
    pub fn new(shards: Vec<Shard>, workers: Arc<dyn Workers>) -> Result<Self, ShardsError> {
        if shards.is_empty() || shards.len() > SHARDS_MAX {
            return Err(ShardsError::Count { count: shards.len() });
        }
        if let Some(other) = shards.iter().find(|shard| !is_sha1(&*shard.blocks)) {
            return Err(ShardsError::NotSha1 { name: other.name.clone() });
        }
        let part = |Shard { name, blocks }| ShardState {
            name,
            blocks,
            is_dirty: AtomicBool::new(false),
            gate: Mutex::default(),
            is_failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        };
        Ok(Self { parts: shards.into_iter().map(part).collect(), workers, empty: Score::sha1(&[]) })
    }

    /// The number of stores.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// The state of each store, in order.
    #[must_use]
    pub fn status(&self) -> Vec<ShardStatus> {
        let status = |part: &ShardState| ShardStatus {
            name: part.name.clone(),
            is_failing: part.is_failing.load(Ordering::Relaxed),
            failures: part.failures.load(Ordering::Relaxed),
        };
        self.parts.iter().map(status).collect()
    }

    /// The number of the store that a score belongs to, counted from 0.
    #[must_use]
    pub fn shard_of(&self, score: &Score) -> usize {
        let leading = u64::from(leading_bits(score));
        to_usize((leading * self.parts.len() as u64) >> 32)
    }

    fn failed(&self, number: usize, source: Box<dyn Error + Send + Sync>) -> Box<ShardFailed> {
        let ScoreRange { first, last } = ScoreRange::part(number..number + 1, self.parts.len());
        Box::new(ShardFailed {
            number: number + 1,
            count: self.parts.len(),
            name: self.parts[number].name.clone(),
            first,
            last,
            source,
        })
    }

    fn put_failed(&self, number: usize, error: PutError) -> PutError {
        match error {
            PutError::Failed { source } => PutError::Failed { source: self.failed(number, source) },
            PutError::ReadOnly { reason } => {
                PutError::ReadOnly { reason: format!("{}: {reason}", self.parts[number].name) }
            }
            other => other,
        }
    }

    fn get_failed(&self, number: usize, error: GetError) -> GetError {
        match error {
            GetError::Failed { name, source } => {
                GetError::Failed { name, source: self.failed(number, source) }
            }
            GetError::Damaged { name, source } => {
                GetError::Damaged { name, source: self.failed(number, source) }
            }
            missing @ GetError::NotFound { .. } => missing,
        }
    }

    fn sync_those(&self, numbers: &Range<usize>) -> Result<(), SyncError> {
        // Sync all shards, even if one fails, to make as much as possible durable.
        let asked = |number| if numbers.contains(&number) { vec![0] } else { Vec::new() };
        let asked: Vec<Vec<usize>> = (0..self.parts.len()).map(asked).collect();
        let answers = self.ask_each(&asked, |number, part, _| {
            part.sync().map_err(|error| SyncError { source: self.failed(number, error.source) })
        });
        answers.into_iter().try_for_each(|(_, answer)| answer)
    }

    /// Groups scores by store: for each store, their positions in `scores`.
    fn places(&self, scores: impl Iterator<Item = Score>) -> Vec<Vec<usize>> {
        let mut places = vec![Vec::new(); self.parts.len()];
        for (place, score) in scores.enumerate() {
            places[self.shard_of(&score)].push(place);
        }
        places
    }

    /// Calls `ask` concurrently for each store that has something to do.
    fn ask_each<T: Send>(
        &self,
        places: &[Vec<usize>],
        ask: impl Fn(usize, &ShardState, &[usize]) -> T + Sync,
    ) -> Vec<(usize, T)> {
        let busy: Vec<usize> = (0..places.len()).filter(|number| !places[*number].is_empty()).collect();
        let mut answers: Vec<Option<T>> = busy.iter().map(|_| None).collect();
        let ask = &ask;
        let tasks = busy.iter().zip(&mut answers).map(|(&number, answer)| {
            Box::new(move || *answer = Some(ask(number, &self.parts[number], &places[number]))) as Task<'_>
        });
        let tasks: Vec<Task<'_>> = tasks.collect();
        match tasks.len() {
            // A single request needs no worker.
            0 | 1 => tasks.into_iter().for_each(|task| task()),
            _ => self.workers.run_all(tasks),
        }
        busy.into_iter().zip(answers.into_iter().flatten()).collect()
    }

    /// Puts blocks with the given scores.
    fn put_named(&self, blocks: &[Block<'_>], scores: Vec<Score>) -> Result<Vec<Score>, PutError> {
        if let Some(large) = blocks.iter().find(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            return Err(PutError::TooLarge { bytes: large.bytes.len() });
        }
        let places = self.places(scores.iter().copied());
        let answers = self.ask_each(&places, |number, part, own| {
            let blocks: Vec<Block<'_>> = own.iter().map(|place| blocks[*place]).collect();
            let put = part.blocks.put_batch(&blocks);
            // A failed put may have stored some of the blocks.
            part.is_dirty.store(true, Ordering::SeqCst);
            part.note(matches!(put, Err(PutError::Failed { .. })));
            let named = put.map_err(|error| self.put_failed(number, error))?;
            if named.iter().zip(own).all(|(named, place)| *named == scores[*place]) {
                return Ok(());
            }
            Err(PutError::Failed {
                source: self.failed(number, "it returned a wrong score for a block".into()),
            })
        });
        answers.into_iter().try_for_each(|(_, answer)| answer)?;
        Ok(scores)
    }
}

impl BlockStore for ShardedStore {
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
        let number = self.shard_of(&name.score);
        let answer = self.parts[number].blocks.get(name);
        self.parts[number].note(matches!(answer, Err(GetError::Failed { .. })));
        answer.map_err(|error| self.get_failed(number, error))
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.sync_those(&(0..self.parts.len()))
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.put_named(blocks, Score::sha1_of_each(blocks.iter().map(|block| block.bytes)))
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let places = self.places(names.iter().map(|name| name.score));
        let answers = self.ask_each(&places, |_, part, own| {
            let names: Vec<BlockName> = own.iter().map(|place| names[*place]).collect();
            let found = part.blocks.get_batch(&names);
            part.note(found.iter().any(|answer| matches!(answer, Err(GetError::Failed { .. }))));
            found
        });
        let mut found: Vec<Option<Result<Bytes, GetError>>> = names.iter().map(|_| None).collect();
        for (number, answer) in answers {
            for (place, answer) in places[number].iter().zip(answer) {
                found[*place] = Some(answer.map_err(|error| self.get_failed(number, error)));
            }
        }
        let missing = |name: &BlockName| Err(GetError::NotFound { name: *name });
        names.iter().zip(found).map(|(name, found)| found.unwrap_or_else(|| missing(name))).collect()
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        let places = self.places(names.iter().map(|name| name.score));
        let answers = self.ask_each(&places, |number, part, own| {
            let names: Vec<BlockName> = own.iter().map(|place| names[*place]).collect();
            let present = part.blocks.has_batch(&names);
            part.note(present.is_err());
            present.map_err(|error| self.get_failed(number, error))
        });
        let mut present = vec![false; names.len()];
        for (number, answer) in answers {
            for (place, is_there) in places[number].iter().zip(answer?) {
                present[*place] = is_there;
            }
        }
        Ok(present)
    }
}

impl ShardState {
    /// Records the outcome of a request.
    fn note(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
        self.failures.fetch_add(is_failing.into(), Ordering::Relaxed);
    }

    fn sync(&self) -> Result<(), SyncError> {
        let _gate: MutexGuard<'_, ()> = self.gate.lock();
        if !self.is_dirty.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let synced = self.blocks.sync().inspect_err(|_| self.is_dirty.store(true, Ordering::SeqCst));
        self.note(synced.is_err());
        synced
    }
}

impl fmt::Debug for ShardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|part| &part.name)).finish()
    }
}

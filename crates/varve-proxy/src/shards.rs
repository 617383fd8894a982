//! Blocks spread over several stores by the leading bits of their scores (memventi's load balancing: Lukkien 2008, chapter 9).
//!
//! The leading 32 bits of a score, as a fraction of all there are, say which of N stores has the block: of 4 stores the first has the scores
//! that begin with the bits 00, and so on. So the order of the stores is part of where things are.
//!
//! What must always be true:
//! - A store that is down fails reads and writes of its own blocks, with an error that names it, and nothing else.
//! - A sync asks only those stores to which something was written since their last sync that succeeded.

mod group;
mod range;

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use varve_block::{BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};
use varve_world::{Task, Workers};

use crate::checked::is_sha1;
pub(crate) use group::ShardGroup;
pub(crate) use range::ScoreRange;
use range::leading_bits;

/// More stores than anybody spreads blocks over.
pub const SHARDS_MAX: usize = 256;

/// One of the stores.
pub struct Shard {
    /// What people call it.
    pub name: String,
    /// Its blocks.
    pub blocks: Arc<dyn BlockStore>,
}

/// Why blocks cannot be spread.
#[derive(Debug, thiserror::Error)]
pub enum ShardsError {
    /// Nothing to spread them over, or too much.
    #[error("blocks are spread over 1 to {SHARDS_MAX} stores, not over {count}")]
    Count {
        /// How many there were to be.
        count: usize,
    },
    /// Where a block belongs must be known before it is stored.
    #[error("{name}: blocks are spread over stores of SHA-1 scores only")]
    NotSha1 {
        /// The store that is none.
        name: String,
    },
}

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error(
    "shard {number} of {count}, {name}, which has the scores from {first:08x}… to {last:08x}…, fails; the other shards go on"
)]
pub struct ShardFailed {
    number: usize,
    count: usize,
    name: String,
    first: u32,
    last: u32,
    source: Box<dyn Error + Send + Sync>,
}

struct Part {
    name: String,
    blocks: Arc<dyn BlockStore>,
    /// Whether something was written to it that no sync has covered.
    is_dirty: AtomicBool,
    /// Held by the one who syncs it: whoever comes meanwhile waits, and does not take it for clean.
    gate: Mutex<()>,
    /// Whether it has failed when it was last asked for something.
    is_failing: AtomicBool,
    failures: AtomicU64,
}

/// How one of the stores is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// What people call it.
    pub name: String,
    /// Whether it has failed when it was last asked for something.
    pub is_failing: bool,
    /// How often it has failed.
    pub failures: u64,
}

/// Blocks spread over several stores.
pub struct Shards {
    parts: Vec<Part>,
    workers: Arc<dyn Workers>,
    empty: Score,
}

impl Shards {
    /// Spreads blocks over these stores, in this order. `workers` ask several at the same time.
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
        let part = |Shard { name, blocks }| Part {
            name,
            blocks,
            is_dirty: AtomicBool::new(false),
            gate: Mutex::default(),
            is_failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        };
        Ok(Self { parts: shards.into_iter().map(part).collect(), workers, empty: Score::sha1(&[]) })
    }

    /// How many stores there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// How each of them is doing, in their order.
    #[must_use]
    pub fn status(&self) -> Vec<ShardStatus> {
        let status = |part: &Part| ShardStatus {
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
        usize::try_from((leading * self.parts.len() as u64) >> 32).expect("less than there are shards")
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
        // All of them, though one fails: what can be made durable is.
        let asked = |number| if numbers.contains(&number) { vec![0] } else { Vec::new() };
        let asked: Vec<Vec<usize>> = (0..self.parts.len()).map(asked).collect();
        let answers = self.ask_each(&asked, |number, part, _| {
            part.sync().map_err(|error| SyncError { source: self.failed(number, error.source) })
        });
        answers.into_iter().try_for_each(|(_, answer)| answer)
    }

    /// Which of `scores` belong to which store, by their place.
    fn places(&self, scores: impl Iterator<Item = Score>) -> Vec<Vec<usize>> {
        let mut places = vec![Vec::new(); self.parts.len()];
        for (place, score) in scores.enumerate() {
            places[self.shard_of(&score)].push(place);
        }
        places
    }

    /// Asks each store that has something to do, all at the same time.
    fn ask_each<T: Send>(
        &self,
        places: &[Vec<usize>],
        ask: impl Fn(usize, &Part, &[usize]) -> T + Sync,
    ) -> Vec<(usize, T)> {
        let busy: Vec<usize> = (0..places.len()).filter(|number| !places[*number].is_empty()).collect();
        let mut answers: Vec<Option<T>> = busy.iter().map(|_| None).collect();
        let ask = &ask;
        let tasks = busy.iter().zip(&mut answers).map(|(&number, answer)| {
            Box::new(move || *answer = Some(ask(number, &self.parts[number], &places[number]))) as Task<'_>
        });
        let tasks: Vec<Task<'_>> = tasks.collect();
        match tasks.len() {
            // One caller is enough.
            0 | 1 => tasks.into_iter().for_each(|task| task()),
            _ => self.workers.run_all(tasks),
        }
        busy.into_iter().zip(answers.into_iter().flatten()).collect()
    }

    /// Puts blocks that have these scores.
    fn put_named(&self, blocks: &[Block<'_>], scores: Vec<Score>) -> Result<Vec<Score>, PutError> {
        if let Some(large) = blocks.iter().find(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            return Err(PutError::TooLarge { bytes: large.bytes.len() });
        }
        let places = self.places(scores.iter().copied());
        let answers = self.ask_each(&places, |number, part, own| {
            let blocks: Vec<Block<'_>> = own.iter().map(|place| blocks[*place]).collect();
            let put = part.blocks.put_batch(&blocks);
            // Some may have been stored though it failed.
            part.is_dirty.store(true, Ordering::SeqCst);
            part.note(matches!(put, Err(PutError::Failed { .. })));
            let named = put.map_err(|error| self.put_failed(number, error))?;
            if named.iter().zip(own).all(|(named, place)| *named == scores[*place]) {
                return Ok(());
            }
            Err(PutError::Failed {
                source: self.failed(number, "it says another score than that of the block".into()),
            })
        });
        answers.into_iter().try_for_each(|(_, answer)| answer)?;
        Ok(scores)
    }
}

impl BlockStore for Shards {
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

impl Part {
    /// Remembers how an answer was.
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

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|part| &part.name)).finish()
    }
}

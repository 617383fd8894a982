//! A group of shards as a store of its own, independent of the other shards.

use std::ops::Range;
use std::sync::Arc;

use varve_block::{Block, BlockStore, PutError, Score, SyncError};

use super::{ScoreRange, ShardedStore};

/// A group of shards; see the module. It takes only blocks of its own shards, because its sync
/// covers only those.
pub(crate) struct ShardGroup {
    shards: Arc<ShardedStore>,
    numbers: Range<usize>,
    scores: ScoreRange,
}

/// A block was put to a group that it does not belong to.
#[derive(Debug, thiserror::Error)]
#[error("the block belongs to another shard")]
struct WrongGroup;

impl ShardGroup {
    /// Divides the shards into at most `groups_max` groups of neighbours.
    pub(crate) fn all(shards: &Arc<ShardedStore>, groups_max: usize) -> Vec<Self> {
        let count = shards.count();
        let groups = count.min(groups_max);
        let group = |number: usize| {
            let numbers = number * count / groups..(number + 1) * count / groups;
            let scores = ScoreRange::part(numbers.clone(), count);
            Self { shards: Arc::clone(shards), numbers, scores }
        };
        (0..groups).map(group).collect()
    }

    /// The range of scores of the group.
    pub(crate) fn scores(&self) -> ScoreRange {
        self.scores
    }
}

impl BlockStore for ShardGroup {
    varve_block::forward_block_store!(shards: score_bytes, empty_score, get, get_batch, has_batch);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let scores = self.put_batch(&[block])?;
        Ok(scores[0])
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.shards.sync_those(&self.numbers)
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        let scores = Score::sha1_of_each(blocks.iter().map(|block| block.bytes));
        if scores.iter().any(|score| !self.scores.contains(score)) {
            return Err(PutError::Failed { source: WrongGroup.into() });
        }
        self.shards.put_named(blocks, scores)
    }
}

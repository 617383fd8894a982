//! A block store in memory: the simplest thing that keeps the contract, and what trees are tested on.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};

/// Blocks in a map, named by BLAKE3. Counts what it is asked, so that a test can say "this reads one block".
#[derive(Debug, Default)]
pub struct MemoryBlockStore {
    blocks: Mutex<BTreeMap<BlockName, Bytes>>,
    get_count: std::sync::atomic::AtomicU64,
}

impl MemoryBlockStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many blocks it holds.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// The sizes of all its blocks, summed.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.blocks.lock().values().map(Bytes::len).sum()
    }

    /// How many blocks were asked for so far.
    #[must_use]
    pub fn get_count(&self) -> u64 {
        self.get_count.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Forgets a block, as damage would. Returns whether it was there.
    pub fn lose(&self, name: &BlockName) -> bool {
        self.blocks.lock().remove(name).is_some()
    }

    /// Every block's name, in order.
    #[must_use]
    pub fn names(&self) -> Vec<BlockName> {
        self.blocks.lock().keys().copied().collect()
    }
}

impl BlockStore for MemoryBlockStore {
    fn score_bytes(&self) -> usize {
        32
    }

    fn empty_score(&self) -> Score {
        Score::from(*blake3::hash(&[]).as_bytes())
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        if block.bytes.len() > BLOCK_BYTES_MAX {
            return Err(PutError::TooLarge { bytes: block.bytes.len() });
        }
        let score = Score::from(*blake3::hash(block.bytes).as_bytes());
        let name = BlockName { score, block_type: block.block_type };
        self.blocks.lock().entry(name).or_insert_with(|| Bytes::copy_from_slice(block.bytes));
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.blocks.lock().get(name).cloned().ok_or(GetError::NotFound { name: *name })
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        crate::contract::check(&mut MemoryBlockStore::new);
    }
}

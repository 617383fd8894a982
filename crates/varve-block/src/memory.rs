//! A block store in memory: the simplest implementation of the contract, and the one on which trees
//! are tested.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::score::Score;
use crate::store::{BLOCK_BYTES_MAX, Block, BlockName, BlockStore, GetError, PutError, SyncError};

/// Blocks in a map, named by BLAKE3. Counts the reads, so that a test can assert "this reads one
/// block".
#[derive(Debug, Default)]
pub struct MemoryBlockStore {
    blocks: Mutex<BTreeMap<BlockName, Bytes>>,
    get_count: std::sync::atomic::AtomicU64,
}

impl MemoryBlockStore {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// Returns the total size of all blocks.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.blocks.lock().values().map(Bytes::len).sum()
    }

    /// Returns the number of blocks that were requested so far.
    #[must_use]
    pub fn get_count(&self) -> u64 {
        self.get_count.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Removes a block, as damage would. Returns true if it was there.
    pub fn lose(&self, name: &BlockName) -> bool {
        self.blocks.lock().remove(name).is_some()
    }

    /// Returns the names of all blocks, in order.
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

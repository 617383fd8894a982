//! A block store with a cache, for random reads of the same images.

use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::{BlockName, BlockStore, GetError};
use varve_world::{FixedHasher, weighted_cache};

/// The default size of the cache of leaves.
const LEAVES_BYTES: u64 = 64 << 20;
/// The cache of pointer blocks has this fraction of the size. A pointer block leads to hundreds of
/// leaves, and each read of one of them needs it.
const POINTERS_SHARE: u64 = 4;
/// The approximate weight of a block.
const BLOCK_BYTES: u64 = 16 << 10;
/// The overhead of a cache entry.
const ENTRY_BYTES: u64 = 100;

type NamedBlockCache = Cache<BlockName, Bytes, BlockWeight, FixedHasher>;

#[derive(Clone)]
struct BlockWeight;

impl Weighter<BlockName, Bytes> for BlockWeight {
    fn weight(&self, _: &BlockName, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + ENTRY_BYTES
    }
}

/// A block store that caches the most recently read blocks. Pointer blocks and leaves have separate
/// caches, so that a reader of a whole image keeps its pointer blocks.
///
/// Many readers may share one cache, because two snapshots of a disk have most blocks in common.
pub struct CachedBlocks {
    below: Arc<dyn BlockStore>,
    leaves: NamedBlockCache,
    pointers: NamedBlockCache,
}

impl CachedBlocks {
    /// A cache of the default size: at most 80 MiB.
    #[must_use]
    pub fn new(below: Arc<dyn BlockStore>) -> Self {
        Self::with_leaves_bytes(below, LEAVES_BYTES)
    }

    /// A cache of at most this many bytes of leaves, and a quarter of that of pointer blocks.
    #[must_use]
    pub fn with_leaves_bytes(below: Arc<dyn BlockStore>, leaves_bytes: u64) -> Self {
        let cache = |bytes_max| weighted_cache(bytes_max, BLOCK_BYTES, BlockWeight);
        Self { below, leaves: cache(leaves_bytes), pointers: cache(leaves_bytes / POINTERS_SHARE) }
    }

    /// Bytes of pointer blocks that may be read at once without evicting most of the cache.
    pub(super) fn interior_bytes_max(&self) -> u64 {
        self.pointers.capacity() / 2
    }

    fn cache(&self, name: &BlockName) -> &NamedBlockCache {
        if name.block_type.depth() == 0 { &self.leaves } else { &self.pointers }
    }

    fn keep(&self, name: &BlockName, bytes: &Bytes) {
        // The block from the store is a part of a larger buffer. A copy avoids keeping all of that
        // buffer.
        self.cache(name).insert(*name, Bytes::copy_from_slice(bytes));
    }
}

impl BlockStore for CachedBlocks {
    varve_block::forward_block_store!(below: score_bytes, empty_score, put, sync, put_batch, put_batch_with, expect, has_batch);

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        if let Some(bytes) = self.cache(name).get(name) {
            return Ok(bytes);
        }
        let bytes = self.below.get(name)?;
        self.keep(name, &bytes);
        Ok(bytes)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let known: Vec<_> = names.iter().map(|name| self.cache(name).get(name)).collect();
        let is_unknown = |(name, known): (&BlockName, &Option<Bytes>)| known.is_none().then_some(*name);
        let missing: Vec<_> = names.iter().zip(&known).filter_map(is_unknown).collect();
        let fetched = if missing.is_empty() { Vec::new() } else { self.below.get_batch(&missing) };
        for (name, bytes) in missing.iter().zip(&fetched) {
            if let Ok(bytes) = bytes {
                self.keep(name, bytes);
            }
        }
        let mut fetched = fetched.into_iter();
        let answer = |known: Option<Bytes>| match known {
            Some(bytes) => Ok(bytes),
            None => fetched.next().expect("a batch answers each of its names"),
        };
        known.into_iter().map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use varve_block::MemoryBlockStore;

    use super::*;

    #[test]
    fn it_keeps_the_contract() {
        varve_block::contract::check(&mut || CachedBlocks::new(Arc::new(MemoryBlockStore::new())));
    }
}

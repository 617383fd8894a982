//! A cache of blocks that were read recently, bounded in bytes. A block is checked before it is
//! cached, so it is sent without another check.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::{BlockName, to_usize};

/// Memory per cached block in addition to its bytes.
const OVERHEAD_BYTES: u64 = 128;
/// Assumed block length, for the initial size of the tables.
const BLOCK_BYTES: u64 = 8 << 10;

#[derive(Clone)]
struct ByBytes;

impl Weighter<BlockName, Bytes> for ByBytes {
    fn weight(&self, _: &BlockName, block: &Bytes) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

pub(super) struct RecentReads {
    blocks: Cache<BlockName, Bytes, ByBytes>,
}

impl RecentReads {
    pub(super) fn new(bytes: u64) -> Self {
        let count = to_usize(bytes / BLOCK_BYTES).min(1 << 20);
        Self { blocks: Cache::with_weighter(count, bytes, ByBytes) }
    }

    pub(super) fn get(&self, name: &BlockName) -> Option<Bytes> {
        self.blocks.get(name)
    }

    /// Caches a block, and returns the cached copy.
    pub(super) fn keep(&self, name: BlockName, block: &[u8]) -> Bytes {
        // Copy the block: a slice would keep the whole buffer that it is a part of, here and while
        // it is sent.
        let block = Bytes::copy_from_slice(block);
        self.blocks.insert(name, block.clone());
        block
    }
}

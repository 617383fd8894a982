//! Blocks that were read, for who asks again: a bounded number of bytes of them. What is in it was checked when it was read, so it is sent as it is.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::BlockName;

/// What it costs to remember a block, its bytes aside.
const OVERHEAD_BYTES: u64 = 128;
/// For the tables' first size.
const BLOCK_BYTES: u64 = 8 << 10;

#[derive(Clone)]
struct ByBytes;

impl Weighter<BlockName, Bytes> for ByBytes {
    fn weight(&self, _: &BlockName, block: &Bytes) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

pub(super) struct RecentBlocks {
    blocks: Cache<BlockName, Bytes, ByBytes>,
}

impl RecentBlocks {
    pub(super) fn new(bytes: u64) -> Self {
        let count = usize::try_from(bytes / BLOCK_BYTES).unwrap_or(usize::MAX).min(1 << 20);
        Self { blocks: Cache::with_weighter(count, bytes, ByBytes) }
    }

    pub(super) fn get(&self, name: &BlockName) -> Option<Bytes> {
        self.blocks.get(name)
    }

    /// Remembers a block, and returns it as it is remembered.
    pub(super) fn keep(&self, name: BlockName, block: &[u8]) -> Bytes {
        // A slice of something larger would keep all of it, here and on its way to the client.
        let block = Bytes::copy_from_slice(block);
        self.blocks.insert(name, block.clone());
        block
    }
}

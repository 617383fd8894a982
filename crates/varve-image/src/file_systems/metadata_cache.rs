//! A cache of metadata blocks. Neighbouring blocks are read together, because they are usually
//! needed together.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use quick_cache::sync::Cache;
use varve_block::to_usize;

use crate::bytes::read_at::ReadAt;

/// The bytes that are read at once, unless blocks are larger.
const CHUNK_BYTES: u64 = 16 << 10;
/// The capacity of the cache.
const CACHE_BYTES: u64 = 32 << 20;

/// A block of metadata.
#[derive(Clone)]
pub(super) struct MetadataBlock {
    chunk: Arc<[u8]>,
    place: Range<usize>,
}

impl Deref for MetadataBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.chunk.get(self.place.clone()).unwrap_or_default()
    }
}

/// Reads blocks, and caches the newest.
pub(super) struct MetadataCache {
    volume: Arc<dyn ReadAt>,
    block_bytes: u64,
    chunk_bytes: u64,
    chunks: Cache<u64, Arc<[u8]>>,
}

impl MetadataCache {
    pub(super) fn new(volume: Arc<dyn ReadAt>, block_bytes: u32) -> Self {
        let block_bytes = u64::from(block_bytes).max(1);
        let chunk_bytes = block_bytes.max(CHUNK_BYTES);
        let count = CACHE_BYTES.checked_div(chunk_bytes).unwrap_or(1);
        let chunks = Cache::new(to_usize(count));
        Self { volume, block_bytes, chunk_bytes, chunks }
    }

    /// Returns a block. Its neighbours are read along with it.
    pub(super) fn get(&self, block: u64) -> io::Result<MetadataBlock> {
        let at = block.checked_mul(self.block_bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
        let number = at.checked_div(self.chunk_bytes).unwrap_or(0);
        let place = at.checked_rem(self.chunk_bytes).unwrap_or(0);
        let place = to_usize(place);
        let length = to_usize(self.block_bytes);
        let place = place..place.saturating_add(length);
        let chunk = self.chunks.get_or_insert_with(&number, || self.read_chunk(number));
        match chunk {
            Ok(chunk) if chunk.len() >= place.end => Ok(MetadataBlock { chunk, place }),
            // A neighbour may be the unreadable part: the block is read alone.
            _ => {
                let mut bytes = vec![0; length];
                self.volume.read_at(at, &mut bytes)?;
                Ok(MetadataBlock { chunk: bytes.into(), place: 0..length })
            }
        }
    }

    fn read_chunk(&self, number: u64) -> io::Result<Arc<[u8]>> {
        let at = number.saturating_mul(self.chunk_bytes);
        let length = self.chunk_bytes.min(self.volume.size().saturating_sub(at));
        let mut bytes = vec![0; to_usize(length)];
        self.volume.read_at(at, &mut bytes)?;
        Ok(bytes.into())
    }
}

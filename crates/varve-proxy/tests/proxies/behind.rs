//! The store behind a proxy: a store of SHA-1 scores that can be away, refuse, or lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use varve_block::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError,
};

pub fn score_of(bytes: &[u8]) -> Score {
    Score::try_from(Sha1::digest(bytes).as_slice()).unwrap()
}

pub fn data(bytes: &[u8]) -> Block<'_> {
    Block { block_type: BlockType::DATA, bytes }
}

pub fn name_of(bytes: &[u8]) -> BlockName {
    BlockName { score: score_of(bytes), block_type: BlockType::DATA }
}

/// Bytes that depend on `number`, and differ from those of every other number.
pub fn bytes_of(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = number.to_le_bytes().to_vec();
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..5]);
    }
    bytes.truncate(length.max(8));
    bytes
}

#[derive(Default)]
struct Kept {
    /// The blocks that survive.
    durable: BTreeMap<BlockName, Bytes>,
    /// The blocks that were put since the last sync.
    acknowledged: BTreeMap<BlockName, Bytes>,
    /// The number of puts of each block.
    puts: BTreeMap<BlockName, usize>,
    refused: BTreeSet<BlockName>,
}

/// The store described at the top of this file.
#[derive(Default)]
pub struct Behind {
    kept: Mutex<Kept>,
    pub is_away: AtomicBool,
    /// The number of coming puts that fail as if the store were away. After each, the store is back
    /// for the next call.
    pub blinks: AtomicUsize,
    pub lies: AtomicBool,
    pub gets: AtomicUsize,
    pub syncs: AtomicUsize,
}

impl Behind {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    pub fn refuse(&self, name: BlockName) {
        self.kept.lock().refused.insert(name);
    }

    pub fn accept_all(&self) {
        self.kept.lock().refused.clear();
    }

    /// The store is killed, and forgets the blocks that no sync has covered.
    pub fn forget_acknowledged(&self) {
        self.kept.lock().acknowledged.clear();
    }

    pub fn has_durable(&self, name: &BlockName) -> bool {
        self.kept.lock().durable.contains_key(name)
    }

    pub fn names(&self) -> Vec<BlockName> {
        let kept = self.kept.lock();
        kept.durable.keys().chain(kept.acknowledged.keys()).copied().collect()
    }

    pub fn lose(&self, name: &BlockName) {
        let mut kept = self.kept.lock();
        kept.durable.remove(name);
        kept.acknowledged.remove(name);
    }

    /// The number of puts of a block.
    pub fn puts(&self, name: &BlockName) -> usize {
        self.kept.lock().puts.get(name).copied().unwrap_or(0)
    }

    pub fn most_puts(&self) -> usize {
        self.kept.lock().puts.values().copied().max().unwrap_or(0)
    }

    fn away(&self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.is_away.load(Ordering::SeqCst).then(|| "it is away".into())
    }
}

impl BlockStore for Behind {
    fn score_bytes(&self) -> usize {
        20
    }

    fn empty_score(&self) -> Score {
        score_of(&[])
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        if let Some(source) = self.away() {
            return Err(PutError::Failed { source });
        }
        let blinks = |left: usize| left.checked_sub(1);
        if self.blinks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, blinks).is_ok() {
            return Err(PutError::Failed { source: "it was away for a moment".into() });
        }
        if block.bytes.len() > BLOCK_BYTES_MAX {
            return Err(PutError::TooLarge { bytes: block.bytes.len() });
        }
        let name = BlockName { score: score_of(block.bytes), block_type: block.block_type };
        let mut kept = self.kept.lock();
        if kept.refused.contains(&name) {
            return Err(PutError::Failed { source: "such a block is not wanted".into() });
        }
        *kept.puts.entry(name).or_default() += 1;
        if !kept.durable.contains_key(&name) {
            kept.acknowledged.insert(name, Bytes::copy_from_slice(block.bytes));
        }
        Ok(name.score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        if let Some(source) = self.away() {
            return Err(GetError::Failed { name: *name, source });
        }
        let kept = self.kept.lock();
        let found = kept.durable.get(name).or_else(|| kept.acknowledged.get(name)).cloned();
        let found = found.ok_or(GetError::NotFound { name: *name })?;
        if self.lies.load(Ordering::SeqCst) { Ok(Bytes::from_static(b"something else")) } else { Ok(found) }
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        if let Some(source) = self.away() {
            return Err(SyncError { source });
        }
        let mut kept = self.kept.lock();
        let acknowledged = std::mem::take(&mut kept.acknowledged);
        kept.durable.extend(acknowledged);
        Ok(())
    }
}

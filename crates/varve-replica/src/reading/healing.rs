//! Two homes, one lost block: what cannot be read here is read from a replica, and noted, to be healed.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};
use varve_store::Store;

/// Opens replicas, once the first block is missed: who loses nothing does not wait for them.
pub type OpenReplicas = Box<dyn Fn() -> Vec<Box<dyn BlockStore>> + Send + Sync>;

/// A store, and others that hold the same blocks. Writes go to the first alone.
///
/// Blocks of all of them are named alike and checked when they are read: replicas of one store. So whatever comes back
/// is the block that was asked for.
pub struct Healing {
    local: Arc<dyn BlockStore>,
    open: OpenReplicas,
    replicas: OnceLock<Vec<Box<dyn BlockStore>>>,
    lost: Mutex<BTreeSet<BlockName>>,
}

/// So many blocks are fetched together to be stored again.
const HEALED_AT_ONCE: usize = 64;

/// Why lost blocks were not stored again. Those before the one at fault may have been.
#[derive(Debug, thiserror::Error)]
pub enum HealError {
    /// A block could not be stored.
    #[error("a block cannot be stored again")]
    Put(#[from] PutError),
    /// What was stored could not be made durable.
    #[error("what was stored again cannot be made durable")]
    Sync(#[from] SyncError),
}

/// So many lost blocks are noted, and no more: who has lost more needs the whole replica.
const LOST_MAX: usize = 1 << 20;

impl Healing {
    /// Reads from `local`, and where that fails from the replicas, in order.
    #[must_use]
    pub fn new(local: Arc<dyn BlockStore>, open: OpenReplicas) -> Self {
        Self { local, open, replicas: OnceLock::new(), lost: Mutex::default() }
    }

    /// The blocks that a replica had and the store had not, or had damaged, since this was last asked: to be healed.
    pub fn take_lost(&self) -> Vec<BlockName> {
        std::mem::take(&mut *self.lost.lock()).into_iter().collect()
    }

    /// Stores blocks again in `store`, which is open to be written: those of `names` that it cannot read and a replica has, but for
    /// roots of the catalog that are not the only one that counts: the next snapshot writes them anew. They are durable when this returns. Says how many they were.
    ///
    /// # Errors
    /// [`HealError`].
    pub fn heal(&self, store: &Store, names: &[BlockName]) -> Result<u64, HealError> {
        let mut healed_count = 0;
        for names in names.chunks(HEALED_AT_ONCE) {
            // Looked for there first, too: so the store knows that its own copy is damaged, and somebody may have healed it meanwhile.
            let here = store.get_batch(names);
            let lost: Vec<_> =
                names.iter().zip(here).filter(|(_, found)| found.is_err()).map(|(name, _)| *name).collect();
            for (name, found) in lost.iter().zip(self.get_batch(&lost)) {
                let Ok(bytes) = found else { continue };
                let stored_count = store.put_back(&[(*name, bytes)])?;
                healed_count += stored_count;
                if stored_count > 0 {
                    tracing::info!(block = %name, "a block that was lost is stored again");
                }
            }
        }
        store.sync()?;
        Ok(healed_count)
    }

    /// Asks the replicas for those that failed here.
    fn fall_back(&self, names: &[BlockName], results: &mut [Result<Bytes, GetError>]) {
        if results.iter().all(Result::is_ok) {
            return;
        }
        for replica in self.replicas.get_or_init(|| (self.open)()) {
            let wanted: Vec<usize> = results
                .iter()
                .enumerate()
                .filter(|(_, result)| result.is_err())
                .map(|(place, _)| place)
                .collect();
            if wanted.is_empty() {
                return;
            }
            let asked: Vec<_> = wanted.iter().map(|place| names[*place]).collect();
            for (place, found) in wanted.into_iter().zip(replica.get_batch(&asked)) {
                let Ok(bytes) = found else { continue };
                let name = names[place];
                let mut lost = self.lost.lock();
                if lost.len() < LOST_MAX && lost.insert(name) {
                    tracing::warn!(block = %name, "a block could not be read here; a replica has it");
                }
                results[place] = Ok(bytes);
            }
        }
    }
}

impl BlockStore for Healing {
    fn score_bytes(&self) -> usize {
        self.local.score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.local.empty_score()
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        self.local.put(block)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        let mut results = [self.local.get(name)];
        self.fall_back(std::slice::from_ref(name), &mut results);
        let [result] = results;
        result
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.local.sync()
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.local.put_batch(blocks)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let mut results = self.local.get_batch(names);
        self.fall_back(names, &mut results);
        results
    }

    fn expect(&self, names: &[BlockName]) {
        self.local.expect(names);
    }

    /// Of the store itself: what only a replica has is not here.
    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        self.local.has_batch(names)
    }
}

//! Reads blocks that the store cannot read from a replica, and records them, to be healed.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{BlockName, BlockStore, GetError, PutError, SyncError};
use varve_store::Store;

/// Opens the replicas at the first lost block. A store without lost blocks does not wait for them.
pub type OpenReplicas = Box<dyn Fn() -> Vec<Box<dyn BlockStore>> + Send + Sync>;

/// A store, and other stores with the same blocks. Puts go only to the first.
///
/// The others are replicas of the same store: names are the same, and reads are checked. So a block
/// from any of them is the requested one.
pub struct HealingStore {
    local: Arc<dyn BlockStore>,
    open: OpenReplicas,
    replicas: OnceLock<Vec<Box<dyn BlockStore>>>,
    lost: Mutex<BTreeSet<BlockName>>,
}

/// The blocks that are fetched together to be stored again.
const HEALED_AT_ONCE: usize = 64;

/// The reason why lost blocks were not stored again. The blocks before the failed one may have
/// been.
#[derive(Debug, thiserror::Error)]
pub enum HealError {
    /// A block could not be stored.
    #[error("a block cannot be stored again")]
    Put(#[from] PutError),
    /// The stored blocks could not be made durable.
    #[error("the blocks that were stored again cannot be made durable")]
    Sync(#[from] SyncError),
}

/// The most lost blocks that are recorded. A store that has lost more needs the whole replica.
const LOST_MAX: usize = 1 << 20;

impl HealingStore {
    /// Reads from `local`, and falls back to the replicas in order.
    #[must_use]
    pub fn new(local: Arc<dyn BlockStore>, open: OpenReplicas) -> Self {
        Self { local, open, replicas: OnceLock::new(), lost: Mutex::default() }
    }

    /// Returns the blocks to be healed since the last call: a replica had them, and the store had
    /// them damaged or not at all.
    pub fn take_lost(&self) -> Vec<BlockName> {
        std::mem::take(&mut *self.lost.lock()).into_iter().collect()
    }

    /// Stores lost blocks again in `store`, which must be open for writing: those of `names` that
    /// it cannot read and a replica has. Superfluous roots of the catalog are left out, because the
    /// next snapshot writes them anew. The blocks are durable when this returns. Returns their
    /// number.
    ///
    /// # Errors
    /// [`HealError`].
    pub fn heal(&self, store: &Store, names: &[BlockName]) -> Result<u64, HealError> {
        let mut healed_count = 0;
        for names in names.chunks(HEALED_AT_ONCE) {
            // Read from the store first. So the store learns that its copy is damaged, and a block
            // that was healed meanwhile is skipped.
            let here = store.get_batch(names);
            let lost: Vec<_> =
                names.iter().zip(here).filter(|(_, found)| found.is_err()).map(|(name, _)| *name).collect();
            for (name, found) in lost.iter().zip(self.get_batch(&lost)) {
                let Ok(bytes) = found else { continue };
                let stored_count = store.put_back(&[(*name, bytes)])?;
                healed_count += stored_count;
                if stored_count > 0 {
                    tracing::info!(block = %name, "a lost block is stored again");
                }
            }
        }
        store.sync()?;
        Ok(healed_count)
    }

    /// Requests the blocks that failed in the store from the replicas.
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

impl BlockStore for HealingStore {
    // A block that only a replica has is not in the store: `has_batch` asks only the store itself.
    varve_block::forward_block_store!(
        local: score_bytes, empty_score, put, sync, put_batch, put_batch_with, expect, has_batch
    );

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        let mut results = [self.local.get(name)];
        self.fall_back(std::slice::from_ref(name), &mut results);
        let [result] = results;
        result
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let mut results = self.local.get_batch(names);
        self.fall_back(names, &mut results);
        results
    }
}

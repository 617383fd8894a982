//! A bounded cache of parts of objects, in files. Fetched data is reused, also by later commands.
//!
//! Each file has one block, after a hash of it, which detects accidental damage. The cache is
//! trusted no more than the target: readers check the codes in the log. The oldest blocks are
//! evicted first. Several processes may share a cache: a missing file is a miss.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{to_hex, to_usize};
use varve_world::{FileName, Storage};

/// The length of a block of an object in the cache.
pub(crate) const BLOCK_BYTES: u64 = 64 << 10;
const FOLDER: &str = "blocks";
const HASH_BYTES: usize = 32;

/// Blocks of objects, kept in files.
pub struct RangeCache {
    storage: Arc<dyn Storage>,
    block_count_max: usize,
    inside: Mutex<RangeCacheState>,
}

#[derive(Default)]
struct RangeCacheState {
    /// The sequence number of each block.
    turns: BTreeMap<RangeKey, u64>,
    /// The blocks in the order of insertion.
    keys: BTreeMap<u64, RangeKey>,
    /// The next sequence number.
    turns_end: u64,
}

impl RangeCacheState {
    fn next_turn(&mut self) -> u64 {
        let turn = self.turns_end;
        self.turns_end = turn.saturating_add(1);
        turn
    }

    /// Records a block. Returns false if another thread has inserted the same block first.
    fn note(&mut self, turn: u64, key: RangeKey) -> bool {
        if self.turns.contains_key(&key) {
            return false;
        }
        self.keys.insert(turn, key);
        self.turns.insert(key, turn);
        true
    }

    /// Returns the oldest sequence numbers that exceed the limit.
    fn excess(&self, count_max: usize) -> Vec<u64> {
        let excess = self.keys.len().saturating_sub(count_max);
        self.keys.keys().take(excess).copied().collect()
    }
}

/// Identifies a block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RangeKey([u8; 16]);

impl RangeKey {
    fn new(object: &FileName, block: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&block.to_le_bytes());
        hasher.update(object.as_str().as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(key)
    }
}

fn file(turn: u64, key: RangeKey) -> FileName {
    FileName::new(&format!("{FOLDER}/{turn:016}-{}", to_hex(&key.0))).expect("digits make a good name")
}

fn parse(file: &FileName) -> Option<(u64, RangeKey)> {
    let (turn, key) = file.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('-')?;
    Some((turn.parse().ok()?, RangeKey(varve_block::from_hex(key).ok()?.try_into().ok()?)))
}

impl RangeCache {
    /// Makes a cache of at most `bytes_max` in `storage`. Blocks that cannot be written or read
    /// there are fetched again.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, bytes_max: u64) -> Self {
        let block_count_max = to_usize(bytes_max / BLOCK_BYTES).max(1);
        let mut inside = RangeCacheState::default();
        for (turn, key) in storage.list(FOLDER).unwrap_or_default().iter().filter_map(parse) {
            inside.keys.insert(turn, key);
            inside.turns.insert(key, turn);
            inside.turns_end = inside.turns_end.max(turn.saturating_add(1));
        }
        Self { storage, block_count_max, inside: Mutex::new(inside) }
    }

    pub(crate) fn get(&self, object: &FileName, block: u64) -> Option<Bytes> {
        let key = RangeKey::new(object, block);
        let turn = *self.inside.lock().turns.get(&key)?;
        let read = self.storage.read_whole(&file(turn, key), BLOCK_BYTES + HASH_BYTES as u64);
        let whole = read.ok().filter(|bytes| {
            bytes
                .split_at_checked(HASH_BYTES)
                .is_some_and(|(hash, block)| hash == blake3::hash(block).as_bytes())
        });
        match whole {
            Some(bytes) => Some(Bytes::from(bytes).slice(HASH_BYTES..)),
            None => {
                self.drop_turn(turn);
                None
            }
        }
    }

    pub(crate) fn put(&self, object: &FileName, block: u64, bytes: &[u8]) {
        let key = RangeKey::new(object, block);
        let mut inside = self.inside.lock();
        if inside.turns.contains_key(&key) {
            return;
        }
        let turn = inside.next_turn();
        drop(inside);
        let file = file(turn, key);
        if self.storage.create(&file).is_err() {
            return;
        }
        let contents = [blake3::hash(bytes).as_bytes(), bytes].concat();
        // Recorded only after the file exists. Otherwise the file could appear after another thread
        // has evicted the block.
        if self.storage.append(&file, &contents).is_err() || !self.inside.lock().note(turn, key) {
            // Best effort: at worst, the next command finds a file to remove.
            drop(self.storage.remove(&file));
            return;
        }
        let excess = self.inside.lock().excess(self.block_count_max);
        for turn in excess {
            self.drop_turn(turn);
        }
    }

    fn drop_turn(&self, turn: u64) {
        let mut inside = self.inside.lock();
        let Some(key) = inside.keys.remove(&turn) else { return };
        if inside.turns.get(&key) == Some(&turn) {
            inside.turns.remove(&key);
        }
        drop(inside);
        // Another process may have been faster.
        drop(self.storage.remove(&file(turn, key)));
    }
}

#[cfg(test)]
mod tests {
    use varve_world::{MemoryStorage, RealWorkers, Task, Workers};

    use super::*;

    fn object(name: &str) -> FileName {
        FileName::new(name).unwrap()
    }

    #[test]
    fn what_was_kept_comes_back_also_later() {
        let storage = MemoryStorage::new();
        let cache = RangeCache::new(Arc::new(storage.clone()), 10 * BLOCK_BYTES);
        cache.put(&object("a"), 3, b"three");
        assert_eq!(cache.get(&object("a"), 3).unwrap(), "three");
        assert_eq!(cache.get(&object("a"), 4), None);
        assert_eq!(cache.get(&object("b"), 3), None);
        let again = RangeCache::new(Arc::new(storage), 10 * BLOCK_BYTES);
        assert_eq!(again.get(&object("a"), 3).unwrap(), "three");
    }

    #[test]
    fn the_oldest_go_first() {
        let storage = MemoryStorage::new();
        let cache = RangeCache::new(Arc::new(storage.clone()), 3 * BLOCK_BYTES);
        for block in 0..10 {
            cache.put(&object("a"), block, &[7; 100]);
        }
        assert_eq!(storage.names().len(), 3);
        assert_eq!(cache.get(&object("a"), 6), None);
        assert!((7..10).all(|block| cache.get(&object("a"), block).is_some()));
        let smaller = RangeCache::new(Arc::new(storage.clone()), BLOCK_BYTES);
        smaller.put(&object("b"), 0, b"new");
        assert_eq!(storage.names().len(), 1);
    }

    #[test]
    fn many_at_once_keep_no_more_than_there_is_room_for() {
        let storage = MemoryStorage::new();
        let cache = RangeCache::new(Arc::new(storage.clone()), 3 * BLOCK_BYTES);
        let fill = |hand: usize| {
            for block in 0..2_000 {
                // All threads put some blocks; other blocks are put by one thread.
                let of = if block % 3 == 0 { 0 } else { hand };
                cache.put(&object(&format!("of-{of}")), block, b"block");
            }
        };
        RealWorkers::new(4).run_all((0..4).map(|hand| Box::new(move || fill(hand)) as Task<'_>).collect());
        let (kept, known) = (storage.names(), cache.inside.lock());
        assert_eq!(kept.len(), 3, "{kept:?}");
        assert!(kept.iter().filter_map(parse).all(|(turn, key)| known.keys.get(&turn) == Some(&key)));
    }

    #[test]
    fn damage_is_a_miss() {
        let storage = MemoryStorage::new();
        let cache = RangeCache::new(Arc::new(storage.clone()), 3 * BLOCK_BYTES);
        cache.put(&object("a"), 0, b"block");
        let file = storage.names().into_iter().next().unwrap();
        for damaged in [&b"short"[..], &[0; 40], &[]] {
            storage.set_contents(&file, damaged.to_vec());
            let cache = RangeCache::new(Arc::new(storage.clone()), 3 * BLOCK_BYTES);
            assert_eq!(cache.get(&object("a"), 0), None);
            assert_eq!(storage.names().len(), 0, "what is damaged is not kept");
        }
        cache.put(&object("a"), 0, b"block");
        assert_eq!(cache.get(&object("a"), 0), None, "the first cache has noticed nothing yet");
        cache.put(&object("a"), 0, b"block");
        assert_eq!(cache.get(&object("a"), 0).unwrap(), "block");
    }
}

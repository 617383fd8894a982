//! The sizes of caches, and caches that are bounded by weight. They have the same hashes in every
//! run.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

/// A hasher without a seed: the choice of evicted items depends on the sequence of requests alone.
pub type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// The most memory for data that was read, in bytes. More than this is in use while blocks are
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBytes {
    /// For opened frames.
    pub frames: u64,
    /// For the maps of clumps. A map takes a few thousandths of its clump.
    pub clump_maps: u64,
    /// For directory pages.
    pub pages: u64,
    /// For the lists of the directory pages of arenas.
    pub page_lists: u64,
}

impl CacheBytes {
    /// Divides `bytes` among the caches.
    #[must_use]
    pub fn sharing(bytes: u64) -> Self {
        let (contents, directories) = (bytes - bytes / 4, bytes / 4);
        Self {
            frames: contents - contents / 8,
            clump_maps: contents / 8,
            pages: directories - directories / 4,
            page_lists: directories / 4,
        }
    }
}

impl Default for CacheBytes {
    /// The sizes for a machine with one store.
    fn default() -> Self {
        Self { frames: 96 << 20, clump_maps: 16 << 20, pages: 32 << 20, page_lists: 8 << 20 }
    }
}

/// Makes a cache of at most `weight_max`, for items of about `weight_each`.
///
/// # Panics
/// If `weight_each` is 0.
pub fn weighted_cache<K: Eq + Hash, V: Clone, W: Weighter<K, V> + Clone>(
    weight_max: u64,
    weight_each: u64,
    weighter: W,
) -> Cache<K, V, W, FixedHasher> {
    let items = usize::try_from(weight_max / weight_each).unwrap_or(usize::MAX);
    // A single shard: an item may then be as heavy as the whole cache, and the shard's lock is not
    // contended here.
    let options = OptionsBuilder::new()
        .weight_capacity(weight_max)
        .estimated_items_capacity(items)
        .shards(1)
        .build()
        .expect("both capacities are given");
    Cache::with_options(options, weighter, FixedHasher::default(), DefaultLifecycle::default())
}

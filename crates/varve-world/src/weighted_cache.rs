//! Caches that are bounded by weight. They have the same hashes in every run.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

/// A hasher without a seed: the choice of evicted items depends on the sequence of requests alone.
pub type FixedHasher = BuildHasherDefault<DefaultHasher>;

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

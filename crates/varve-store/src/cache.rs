//! How this crate's caches are made: bounded by weight, and hashing the same way in every run.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

/// A hasher without a seed: what is kept and what is let go depends on nothing but what was asked.
pub(crate) type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// A cache of at most `weight_max`, for items of about `weight_each`.
pub(crate) fn cache<K: Eq + Hash, V: Clone, W: Weighter<K, V> + Clone>(
    weight_max: u64,
    weight_each: u64,
    weighter: W,
) -> Cache<K, V, W, FixedHasher> {
    let items = usize::try_from(weight_max / weight_each).unwrap_or(usize::MAX);
    // One shard only: an item may then be as heavy as the whole cache, and every core here finds it free.
    let options = OptionsBuilder::new()
        .weight_capacity(weight_max)
        .estimated_items_capacity(items)
        .shards(1)
        .build()
        .expect("both capacities are given");
    Cache::with_options(options, weighter, FixedHasher::default(), DefaultLifecycle::default())
}

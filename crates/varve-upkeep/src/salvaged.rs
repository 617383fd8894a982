//! Salvaged clumps: the whole blocks of a damaged arena, under the names that they had.

use bytes::Bytes;
use varve_block::BlockName;
use varve_log::SalvagedClump;
use varve_store::{CompareMode, Store};

/// Returns the whole blocks of a clump, with the names that they had.
pub(crate) fn named(store: &Store, clump: &SalvagedClump) -> Vec<(BlockName, Bytes)> {
    let blocks = clump.content.blocks();
    let hashed = |(block_type, bytes): (_, Bytes)| {
        Some((BlockName { score: store.namer().score(&bytes)?, block_type }, bytes))
    };
    match (store.config().compare, &clump.names) {
        (CompareMode::Hash, _) => blocks.filter_map(hashed).collect(),
        (CompareMode::Value, Some(names)) => blocks
            .zip(names)
            .map(|((block_type, bytes), score)| (BlockName { score: *score, block_type }, bytes))
            .collect(),
        // No writer of a by-value store leaves a clump that does not name its blocks.
        (CompareMode::Value, None) => Vec::new(),
    }
}

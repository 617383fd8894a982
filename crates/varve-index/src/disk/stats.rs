//! What an index on disk looks like inside, and what it was asked, for `varve stats`.

use std::sync::atomic::{AtomicU64, Ordering};

/// How an index on disk is filled, and what look-ups in it have cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskIndexStats {
    /// Pairs of fingerprint and address; one that was inserted again after a crash may count twice until the next pass.
    pub block_count: u64,
    /// The length of the file of entries.
    pub file_bytes: u64,
    /// Entries in it.
    pub file_blocks: u64,
    /// Memory of the buffers, the cache and the fences.
    pub memory_bytes: u64,
    /// How much that may be.
    pub memory_bytes_max: u64,
    /// Memory of the filter.
    pub filter_bytes: u64,
    /// Blocks that the filter is made for; it grows when there are more.
    pub filter_blocks: u64,
    /// Leading bits of fingerprints that are kept.
    pub fingerprint_bits: u32,
    /// Look-ups since the store was opened.
    pub lookups: u64,
    /// Those that the filter answered.
    pub filtered: u64,
    /// Pages that were read for look-ups.
    pub page_reads: u64,
    /// Pages that were written in place, if the index does that.
    pub page_writes: u64,
    /// Those look-ups after which nothing was found: the filter had let them through.
    pub false_reads: u64,
    /// Entries that were taken into the cache of neighbours.
    pub remembered: u64,
    /// Runs that were written.
    pub passes: u64,
    /// What keeps it from being used, or written.
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) lookups: Counter,
    pub(super) filtered: Counter,
    pub(super) page_reads: Counter,
    pub(super) page_writes: Counter,
    pub(super) false_reads: Counter,
    pub(super) remembered: Counter,
    pub(super) passes: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

//! Statistics of an index on disk, for `varve stats`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The fill of an index on disk, and the cost of its look-ups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskIndexStats {
    /// Pairs of fingerprint and address. A pair that was inserted again after a crash may count
    /// twice until the next pass.
    pub block_count: u64,
    /// The length of the file of entries.
    pub file_bytes: u64,
    /// The entries in that file.
    pub file_blocks: u64,
    /// The memory of the buffers, the cache and the fences.
    pub memory_bytes: u64,
    /// The limit of that memory.
    pub memory_bytes_max: u64,
    /// The memory of the filter.
    pub filter_bytes: u64,
    /// The capacity of the filter in blocks; it grows when there are more.
    pub filter_blocks: u64,
    /// The number of leading bits of fingerprints that are kept.
    pub fingerprint_bits: u32,
    /// Look-ups since the store was opened.
    pub lookups: u64,
    /// Look-ups that the filter answered.
    pub filtered: u64,
    /// Pages that were read for look-ups.
    pub page_reads: u64,
    /// Look-ups that passed the filter, read the disk, and found nothing.
    pub false_reads: u64,
    /// Entries that were added to the cache of neighbours.
    pub remembered: u64,
    /// Runs that were written.
    pub passes: u64,
    /// The reason why it cannot be used or written.
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct DiskIndexCounters {
    pub(super) lookups: LookupCounter,
    pub(super) filtered: LookupCounter,
    pub(super) page_reads: LookupCounter,
    pub(super) false_reads: LookupCounter,
    pub(super) remembered: LookupCounter,
    pub(super) passes: LookupCounter,
}

#[derive(Debug, Default)]
pub(super) struct LookupCounter(AtomicU64);

impl LookupCounter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

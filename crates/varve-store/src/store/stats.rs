//! The statistics of a store.

use varve_index::{DiskIndexStats, IndexStats};
use varve_log::OpenLogError;

use super::Store;

/// Counts and sizes of a store, on disk and in memory.
#[derive(Debug, Clone)]
pub struct StoreStats {
    /// The blocks that the index can find.
    pub block_count: u64,
    pub arena_count: u64,
    /// The length of all arena files, in bytes.
    pub log_bytes: u64,
    /// The arenas that have a parity file.
    pub parity_count: u64,
    /// The length of all parity files, in bytes.
    pub parity_bytes: u64,
    /// The memory that the index takes, in bytes.
    pub index_bytes: u64,
    /// The blocks that this session has stored.
    pub new_block_count: u64,
    /// The bytes of these blocks, before compression.
    pub new_block_bytes: u64,
    /// The fill of an index in memory.
    pub index: Option<IndexStats>,
    /// The fill of an index on disk, and its counts of look-ups.
    pub disk_index: Option<DiskIndexStats>,
}

impl Store {
    /// Returns the statistics of the store as it is now.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn stats(&self) -> Result<StoreStats, OpenLogError> {
        let arenas = self.arenas()?;
        let lengths = arenas.iter().map(|arena| self.vault.storage().length(&arena.file_name()));
        let log_bytes = lengths.sum::<Result<u64, _>>()?;
        let (parity_count, parity_bytes) = self.vault.parity().size()?;
        let (new_block_count, new_block_bytes) = self.session_growth();
        Ok(StoreStats {
            block_count: self.finder.block_count(),
            arena_count: arenas.len() as u64,
            log_bytes,
            parity_count,
            parity_bytes,
            index_bytes: self.finder.memory_bytes(),
            new_block_count,
            new_block_bytes,
            index: self.finder.memory_index_stats(),
            disk_index: self.finder.disk_index_stats(),
        })
    }
}

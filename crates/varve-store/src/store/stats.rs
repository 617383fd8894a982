//! What a store holds, and what it costs.

use varve_index::{DiskIndexStats, IndexStats};
use varve_log::OpenLogError;

use super::Store;

/// What a store holds, and what it costs.
#[derive(Debug, Clone)]
pub struct StoreStats {
    /// Blocks that can be found.
    pub block_count: u64,
    /// Arena files.
    pub arena_count: u64,
    /// The length of all arena files, in bytes.
    pub log_bytes: u64,
    /// Arenas that have a parity file.
    pub parity_count: u64,
    /// The length of all parity files, in bytes.
    pub parity_bytes: u64,
    /// Memory that the index takes, in bytes.
    pub index_bytes: u64,
    /// Blocks that this session has stored.
    pub new_block_count: u64,
    /// Their bytes, before compression.
    pub new_block_bytes: u64,
    /// How an index in memory is filled.
    pub index: Option<IndexStats>,
    /// How an index on disk is filled, and what it was asked.
    pub disk_index: Option<DiskIndexStats>,
}

impl Store {
    /// What the store holds now.
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

//! What a store holds, and what it costs.

use varve_index::{DiskIndex, DiskIndexStats, IndexStats};
use varve_log::OpenLogError;

use crate::store::Store;

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
        let arenas = self.log.arenas()?;
        let storage = self.world.storage.as_ref();
        let lengths = arenas.iter().map(|arena| storage.length(&arena.file_name()));
        let log_bytes = lengths.sum::<Result<u64, _>>()?;
        let (parity_count, parity_bytes) = self.parity_size()?;
        let admission = self.admission();
        let (new_block_count, new_block_bytes) = (admission.new_block_count, admission.new_block_bytes);
        drop(admission);
        let index = &self.index;
        Ok(StoreStats {
            block_count: if self.has_no_index { self.directory.block_count() } else { index.len() },
            arena_count: arenas.len() as u64,
            log_bytes,
            parity_count,
            parity_bytes,
            index_bytes: index.memory_bytes(),
            new_block_count,
            new_block_bytes,
            index: index.memory().map(|index| index.stats()),
            disk_index: index.disk().map(DiskIndex::stats),
        })
    }

    /// What an index on disk was asked, and how it is filled. Cheap; `None` if there is no such index.
    #[must_use]
    pub fn disk_index_stats(&self) -> Option<DiskIndexStats> {
        self.index.disk().map(DiskIndex::stats)
    }

    /// Blocks and bytes that this session has stored so far.
    #[must_use]
    pub fn session_growth(&self) -> (u64, u64) {
        let admission = self.admission();
        (admission.new_block_count, admission.new_block_bytes)
    }
}

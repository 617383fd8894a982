//! The settings of the stores that take the snapshots.

use varve_log::{ArenaMap, ClumpBytes, CompressionLevel};
use varve_plan::Engine;
use varve_sim::PageCacheLimits;
use varve_store::{CompareMode, DiskIndexConfig, Encryption, StoreConfig};

use super::workload::{BLOCK_BYTES, LOG_BLOCKS};
use super::{SettingChoice, SnapshotEngine};

/// The memory of the paper's index, of which 128 MB is for writes.
const PAPER_INDEX_BYTES: u64 = 192 << 20;
/// The paper's cache of 1 MB of blocks and of ten arenas' summaries. Varve bounds all caches of
/// reading together, a quarter of them for directories.
const PAPER_CACHE_BYTES: u64 = 3 << 19;
const PAPER_ARENA_BYTES: u64 = 16 << 20;
/// Bytes that wait to be written with the paper's settings: a few seconds of log.
const PAPER_DIRTY_BYTES: u64 = 64 << 20;
/// The page cache of an ordinary machine.
const SHIPPED_DIRTY_BYTES: u64 = 256 << 20;
const SHIPPED_CLEAN_BYTES: u64 = 1 << 30;
/// Varve's own caches of frames, of their maps, and of directories.
const SHIPPED_CACHE_BYTES: u64 = (96 + 16 + 40) << 20;

/// The least memory of a page cache at any scale, and the least for data that waits.
const CLEAN_BYTES_MIN: u64 = 64 << 10;
const DIRTY_BYTES_MIN: u64 = 2 << 20;

/// A store, the memory around it, and its use.
#[derive(Debug, Clone)]
pub(super) struct SnapshotSetting {
    pub(super) name: &'static str,
    pub(super) engine_name: &'static str,
    pub(super) config: StoreConfig,
    pub(super) page_cache: PageCacheLimits,
    /// The bound of the caches of reading.
    pub(super) cache_bytes: u64,
    /// True if the index is written out after each snapshot.
    pub(super) saves_index: bool,
    pub(super) is_paper: bool,
}

impl SnapshotSetting {
    /// Returns the settings; `None` if a size is out of its bounds. Memory that helps by its share
    /// of the whole log is divided by `scale`: the index and the page cache.
    /// Arenas and Varve's caches of reading help by what lies close together, which is the same at
    /// any scale.
    pub(super) fn new(
        choice: SettingChoice,
        engine: SnapshotEngine,
        scale: u64,
        paper_clean_bytes: u64,
    ) -> Option<Self> {
        let is_paper = choice == SettingChoice::Paper;
        let [hash_memory, hash_disk, value_memory, value_disk] = Engine::CHOICES;
        let (engine, engine_name) = match (engine, is_paper) {
            (SnapshotEngine::Hash, true) => (hash_disk, "hash"),
            (SnapshotEngine::Hash, false) => (hash_memory, "hash"),
            (SnapshotEngine::Value, true) => (value_disk, "value"),
            (SnapshotEngine::Value, false) => (value_memory, "value"),
        };
        let mut config = StoreConfig::new([0x1d; 16]);
        // Emulated storage recognises the blocks in the log only in clear.
        config.encryption = Encryption::None;
        config.compression_level = CompressionLevel::new(1)?;
        config.index = engine.index;
        config.compare = if engine.by_value { CompareMode::Value } else { CompareMode::Hash };
        config.block_bytes = BLOCK_BYTES;
        let arena_bytes = if is_paper { PAPER_ARENA_BYTES } else { config.arena_map.arena_bytes() };
        config.arena_map = ArenaMap::new(arena_bytes)?;
        if is_paper {
            // A record of the paper's log is one block.
            config.clump_bytes = ClumpBytes::new(BLOCK_BYTES)?;
        }
        config.disk_index = DiskIndexConfig {
            memory_bytes: (PAPER_INDEX_BYTES / scale).max(DiskIndexConfig::MEMORY_BYTES_MIN),
            expected_blocks: (LOG_BLOCKS / scale).max(1),
            ..DiskIndexConfig::default()
        };
        let (dirty, clean, cache) = if is_paper {
            (PAPER_DIRTY_BYTES, paper_clean_bytes, PAPER_CACHE_BYTES)
        } else {
            (SHIPPED_DIRTY_BYTES, SHIPPED_CLEAN_BYTES, SHIPPED_CACHE_BYTES)
        };
        Some(Self {
            name: if is_paper { "paper" } else { "shipped" },
            engine_name,
            config,
            page_cache: PageCacheLimits {
                dirty_bytes: (dirty / scale).max(DIRTY_BYTES_MIN),
                clean_bytes: (clean / scale).max(CLEAN_BYTES_MIN.min(clean)),
            },
            cache_bytes: cache,
            saves_index: is_paper,
            is_paper,
        })
    }
}

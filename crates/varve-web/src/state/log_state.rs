//! The state of the log of a store.

use anyhow::Result;
use varve_archive::Archive;
use varve_daily::{Drill, DrillRecord};
use varve_log::ArenaId;
use varve_upkeep::Checker;
use varve_world::Timestamp;

/// An arena of the log.
#[derive(Debug, Clone)]
pub(crate) struct ArenaHealth {
    pub(crate) name: String,
    /// The time when it was last read as a whole; `None` if never.
    pub(crate) read_at: Option<Timestamp>,
    pub(crate) is_damaged: bool,
}

/// The state of the log of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogState {
    /// In the order of the log.
    pub(crate) arenas: Vec<ArenaHealth>,
    pub(crate) lost_block_count: u64,
    /// The length of all arenas.
    pub(crate) log_bytes: u64,
    pub(crate) parity_bytes: u64,
    pub(crate) parity_arena_count: u64,
    /// The free bytes of the file system; `None` if they are not known.
    pub(crate) free_bytes: Option<u64>,
    /// The newest drills of each series, the oldest first.
    pub(crate) drills: Vec<Drill>,
}

impl LogState {
    pub(crate) fn read(archive: &Archive) -> Result<Self> {
        let store = archive.store();
        let checker = Checker::of(store);
        let ids: Vec<ArenaId> = store.arenas()?;
        let damaged = checker.damaged_arenas();
        let readings = checker.readings(&checker.audit(), &ids);
        let arena = |(id, read_at)| ArenaHealth {
            name: ArenaId::file_name(id).to_string(),
            read_at,
            is_damaged: damaged.contains(&id),
        };
        let stats = store.stats()?;
        let lost = archive.losses().blocks().filter(|block| block.accepted.is_none()).count();
        let free = store.world().storage.free_space().ok().flatten();
        Ok(Self {
            arenas: readings.into_iter().map(arena).collect(),
            lost_block_count: lost as u64,
            log_bytes: stats.log_bytes,
            parity_bytes: stats.parity_bytes,
            parity_arena_count: stats.parity_count,
            free_bytes: free.map(|space| space.free_bytes),
            drills: DrillRecord::read(store.vault()).drills().to_vec(),
        })
    }
}

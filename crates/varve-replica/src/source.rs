//! The store that is replicated.

use varve_log::{ArenaId, Log, ReadLogError};
use varve_store::StoreConfig;
use varve_world::World;

/// The store that is replicated.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The world with the store's folder.
    pub world: &'a World,
    /// Its settings.
    pub config: &'a StoreConfig,
    /// Its log.
    pub log: &'a Log,
}

/// The length of an arena's file as it is in the folder, whatever the log is read from.
pub(crate) fn arena_file_bytes(world: &World, arena: ArenaId) -> Result<u64, ReadLogError> {
    let failed = |source| ReadLogError::Storage { arena, offset: 0, bytes: 0, source };
    world.storage.length(&arena.file_name()).map_err(failed)
}

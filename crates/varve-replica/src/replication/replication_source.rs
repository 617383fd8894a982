//! The store that is replicated.

use varve_log::Log;
use varve_store::StoreConfig;
use varve_world::World;

/// The store that is replicated.
#[derive(Clone, Copy)]
pub struct ReplicationSource<'a> {
    /// The world with the store's folder.
    pub world: &'a World,
    pub config: &'a StoreConfig,
    pub log: &'a Log,
}

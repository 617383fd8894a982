//! A store on storage in memory, encrypted with a key file, for the tests of this crate.

use std::sync::Arc;

use varve_store::{OpenStoreError, PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_world::{MemoryStorage, World};
use zeroize::Zeroizing;

pub const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "process 42 on here" };

pub fn world(storage: &MemoryStorage, seed: u64) -> World {
    World::deterministic(Arc::new(storage.clone()), seed)
}

pub fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

pub fn created(config: &StoreConfig) -> MemoryStorage {
    let storage = MemoryStorage::new();
    Store::create(&world(&storage, 1), config, Some(&secret()), PassphraseCost::default()).unwrap();
    storage
}

pub fn open(storage: &MemoryStorage, seed: u64, access: StoreAccess<'_>) -> Store {
    try_open(storage, seed, access).unwrap()
}

/// Opens a store that may refuse it.
pub fn try_open(
    storage: &MemoryStorage,
    seed: u64,
    access: StoreAccess<'_>,
) -> Result<Store, OpenStoreError> {
    Store::open(world(storage, seed), Some(&secret()), access, &mut |_| {})
}

//! Several processes use one store.

use std::fs;

use varve_block::{Block, BlockStore, BlockType};
use varve_log::ArenaId;
use varve_store::{Encryption, OpenStoreError, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_world::{FileName, MemoryStorage, World};

use crate::memory_store::{WRITER, created, open};

fn plain() -> StoreConfig {
    StoreConfig { encryption: Encryption::None, ..StoreConfig::new([5; 16]) }
}

fn put(store: &Store, text: &str) {
    store.put(Block { block_type: BlockType::DATA, bytes: text.as_bytes() }).unwrap();
}

/// Closing leaves a durable mark at the end of the arena, and the next writer cuts it off. A reader
/// that has seen the mark does not miss it.
#[test]
fn a_reader_does_not_miss_the_mark_that_the_next_writer_cuts_off() {
    let storage: MemoryStorage = created(&plain());
    let store = open(&storage, 1, WRITER);
    put(&store, "one");
    store.close().unwrap();
    let reader = open(&storage, 2, StoreAccess::Read);
    let store = open(&storage, 3, WRITER);
    put(&store, "another one, which is longer");
    store.close().unwrap();
    let names = reader.names_in_arena(ArenaId(0)).unwrap();
    assert!(names.failure.is_none(), "{:?}", names.failure);
    assert_eq!(names.names.len(), 1);
    assert!(!reader.end_is_lost());
    assert!(reader.follow().unwrap());
    assert_eq!(reader.names_in_arena(ArenaId(0)).unwrap().names.len(), 2);
}

/// Somebody removes the lock file because it seems stale. The writer still has the store for
/// itself.
#[test]
fn a_removed_lock_file_lets_no_second_writer_in() {
    let folder = tempfile::tempdir().unwrap();
    let world = || World::real(folder.path());
    Store::create(&world(), &plain(), None, PassphraseCost::default()).unwrap();
    let write = || Store::open(world(), None, WRITER, &mut |_| {});
    let refused = |opened: Result<Store, OpenStoreError>| {
        assert!(matches!(opened, Err(OpenStoreError::Locked { .. })));
    };
    let first = write().unwrap();
    put(&first, "one");
    refused(write());
    fs::remove_file(folder.path().join("lock")).unwrap();
    refused(write());
    assert!(!folder.path().join("lock").exists(), "a writer that is refused makes no lock file");
    first.close().unwrap();
    let second = write().unwrap();
    put(&second, "another one");
    second.close().unwrap();
}

/// Earlier programs lock only the file.
#[test]
fn a_lock_of_the_file_alone_keeps_a_writer_out() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::real(folder.path());
    Store::create(&world, &plain(), None, PassphraseCost::default()).unwrap();
    let file = FileName::new("lock").unwrap();
    let held = world.storage.lock(&file, "an earlier program").unwrap();
    let opened = Store::open(World::real(folder.path()), None, WRITER, &mut |_| {});
    match opened.map(drop) {
        Err(OpenStoreError::Locked { holder }) => assert_eq!(holder, "an earlier program"),
        other => panic!("{other:?}"),
    }
    drop(held);
    drop(Store::open(World::real(folder.path()), None, WRITER, &mut |_| {}).unwrap());
}

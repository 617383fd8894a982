//! A store with its index on disk: the contract, duplicates, crashes, damage to the index files,
//! and changes from one kind of index to the other.
#![allow(clippy::cast_possible_truncation)]

use varve_block::{Block, BlockName, BlockStore, BlockType, contract};
use varve_store::{
    DiskIndexConfig, Encryption, IndexKind, Prefetch, ScoreAlgorithm, Store, StoreAccess, StoreConfig,
};
use varve_world::{FileName, MemoryStorage, Storage};

use crate::memory_store::{WRITER, created, open, secret, world};

/// A change to a file.
type Harm = fn(&mut Vec<u8>);

/// Enough blocks for several passes with the least memory allowed.
const MANY: u64 = 50_000;

fn config() -> StoreConfig {
    let mut config = StoreConfig::new([5; 16]);
    config.arena_map = varve_log::ArenaMap::new(1 << 20).unwrap();
    config.clump_bytes = varve_log::ClumpBytes::new(128 << 10).unwrap();
    config.index = IndexKind::Disk;
    config.disk_index =
        DiskIndexConfig { memory_bytes: 1 << 20, expected_blocks: 1000, ..DiskIndexConfig::default() };
    config
}

fn bytes_of(number: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    bytes
}

/// Puts these blocks in batches and syncs now and then, as an archive does.
fn put(store: &Store, numbers: std::ops::Range<u64>) -> Vec<BlockName> {
    let mut names = Vec::new();
    for (batch, first) in numbers.clone().step_by(64).enumerate() {
        let contents: Vec<_> = (first..(first + 64).min(numbers.end)).map(bytes_of).collect();
        let blocks: Vec<_> =
            contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        let scores = store.put_batch(&blocks).unwrap();
        names.extend(scores.into_iter().map(|score| BlockName { score, block_type: BlockType::DATA }));
        if batch % 100 == 99 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
    names
}

fn check(store: &Store, names: &[BlockName]) {
    for (batch, names) in names.chunks(200).enumerate() {
        for (number, found) in (batch as u64 * 200..).zip(store.get_batch(names)) {
            assert_eq!(&found.unwrap()[..], bytes_of(number), "block {number}");
        }
    }
}

fn new_blocks(store: &Store) -> u64 {
    store.session_growth().0
}

fn filled() -> (MemoryStorage, Vec<BlockName>) {
    let storage = created(&config());
    let store = open(&storage, 2, WRITER);
    let names = put(&store, 0..MANY);
    store.close().unwrap();
    (storage, names)
}

fn index_files(storage: &MemoryStorage) -> Vec<FileName> {
    let files = storage.list("index").unwrap();
    files.into_iter().filter(|file| file.as_str().starts_with("index/disk")).collect()
}

#[test]
fn every_kind_keeps_the_contract() {
    for (score, encryption) in [
        (ScoreAlgorithm::Blake3, Encryption::Aes256Gcm),
        (ScoreAlgorithm::Blake3, Encryption::None),
        (ScoreAlgorithm::Sha1, Encryption::Aes256Gcm),
        (ScoreAlgorithm::Sha1, Encryption::None),
    ] {
        for prefetch in [Prefetch::Arena, Prefetch::Four, Prefetch::None] {
            let mut config = StoreConfig { score, encryption, ..config() };
            config.disk_index.prefetch = prefetch;
            let mut seed = 10;
            contract::check(&mut || {
                seed += 1;
                open(&created(&config), seed, WRITER)
            });
        }
    }
}

#[test]
fn many_blocks_are_found_and_none_is_stored_twice() {
    for prefetch in [Prefetch::Arena, Prefetch::Four, Prefetch::None] {
        let mut config = config();
        config.disk_index.prefetch = prefetch;
        let storage = created(&config);
        let store = open(&storage, 2, WRITER);
        let names = put(&store, 0..MANY);
        let fresh = store.stats().unwrap().disk_index.unwrap();
        assert!(fresh.passes >= 2, "{fresh:?}");
        assert!(fresh.page_reads * 100 < fresh.lookups, "fresh blocks cost hardly a read: {fresh:?}");
        store.close().unwrap();
        let store = open(&storage, 3, WRITER);
        assert_eq!(put(&store, 0..MANY), names);
        assert_eq!(new_blocks(&store), 0);
        let again = store.stats().unwrap().disk_index.unwrap();
        let memory_bytes = again.memory_bytes;
        assert!(memory_bytes <= again.memory_bytes_max, "{memory_bytes}");
        if prefetch == Prefetch::Arena {
            assert!(again.page_reads * 100 < again.lookups, "nor do duplicates in a row: {again:?}");
        }
        store.close().unwrap();
        let reader = open(&storage, 4, StoreAccess::Read);
        check(&reader, &names);
        let read = reader.stats().unwrap().disk_index.unwrap();
        if prefetch == Prefetch::Arena {
            assert!(read.page_reads * 100 < read.lookups, "nor do blocks that are read in a row: {read:?}");
        }
    }
}

/// Sequential look-ups share the cost of a prefetch. A single look-up prefetches nothing.
#[test]
fn duplicates_out_of_order_bring_nothing_in_and_those_in_order_all() {
    const COUNT: u64 = 40_000;
    let storage = created(&config());
    // The blocks do not compress: those with distant numbers are distant in the log.
    let bytes_of = |number: u64| {
        let words = (0..128).map(|word| (number * 128 + word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        words.map(|word| word ^ word >> 29).flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let put = |store: &Store, numbers: &[u64]| {
        let contents: Vec<_> = numbers.iter().map(|number| bytes_of(*number)).collect();
        let blocks: Vec<_> =
            contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        store.put_batch(&blocks).unwrap();
    };
    let in_order: Vec<_> = (0..COUNT).collect();
    let store = open(&storage, 2, WRITER);
    in_order.chunks(256).for_each(|numbers| put(&store, numbers));
    store.sync().unwrap();
    store.close().unwrap();

    // The distance between look-ups is a little more than a fifth of the blocks on disk.
    let store = open(&storage, 3, WRITER);
    let on_disk = store.stats().unwrap().disk_index.unwrap().file_blocks;
    assert!(on_disk > COUNT / 3, "{on_disk}");
    (0..400).for_each(|number| put(&store, &[number * (on_disk / 5 + 301) % on_disk]));
    let after = store.stats().unwrap().disk_index.unwrap();
    assert_eq!((new_blocks(&store), after.page_reads > 390), (0, true), "{after:?}");
    assert!(after.remembered <= after.page_reads, "none but itself: {after:?}");
    store.close().unwrap();

    let store = open(&storage, 4, WRITER);
    in_order.chunks(256).for_each(|numbers| put(&store, numbers));
    let after = store.stats().unwrap().disk_index.unwrap();
    assert_eq!(new_blocks(&store), 0);
    assert!(after.page_reads * 100 < after.lookups, "{after:?}");
    store.close().unwrap();
}

#[test]
fn a_crash_loses_nothing_that_was_synced() {
    let storage = created(&config());
    let store = open(&storage, 2, WRITER);
    let names = put(&store, 0..MANY);
    // The store is dropped without a close: the saved index is from the middle of the session.
    drop(store);
    assert!(index_files(&storage).len() >= 2, "{:?}", index_files(&storage));
    check(&open(&storage, 3, StoreAccess::Read), &names);
    let store = open(&storage, 4, WRITER);
    check(&store, &names);
    assert_eq!(put(&store, 0..MANY), names);
    assert_eq!(new_blocks(&store), 0);
    store.close().unwrap();
}

/// A first night may be long. The index files written during it cover the arenas that were full by
/// then, although none was synced.
#[test]
fn a_night_that_ends_with_its_only_sync_is_not_read_again() {
    let storage = created(&config());
    let put_all = |store: &Store| {
        for first in (0..MANY).step_by(50) {
            let mut contents = [[0; 200]; 50];
            contents.as_flattened_mut().chunks_exact_mut(8).zip(first * 25..).for_each(|(word, number)| {
                word.copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            });
            let blocks = contents.each_ref().map(|bytes| Block { block_type: BlockType::DATA, bytes });
            store.put_batch(&blocks).unwrap();
        }
        store.sync().unwrap();
    };
    let store = open(&storage, 2, WRITER);
    put_all(&store);
    let arena_count = store.stats().unwrap().arena_count;
    assert!(arena_count >= 10, "{arena_count}");
    drop(store);
    let mut read = 0;
    let told = &mut |progress: varve_store::RebuildProgress| read = progress.arenas_total;
    let store = Store::open(world(&storage, 3), Some(&secret()), WRITER, told).unwrap();
    put_all(&store);
    assert_eq!(new_blocks(&store), 0);
    assert!(read * 3 < arena_count * 2, "{read} of {arena_count} arenas were read");
}

#[test]
fn an_index_that_is_lost_or_harmed_is_made_again() {
    let (whole, names) = filled();
    let files = index_files(&whole);
    let harm_all: [(&str, Harm); 3] = [
        ("cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeroed", |bytes| bytes.fill(0)),
        ("emptied", Vec::clear),
    ];
    for file in &files {
        for (what, harm) in harm_all {
            let storage = whole.fork();
            let mut bytes = storage.contents(file).unwrap();
            harm(&mut bytes);
            storage.set_contents(file, bytes);
            check(&open(&storage, 3, StoreAccess::Read), &names);
            let store = open(&storage, 3, WRITER);
            check(&store, &names);
            store.close().unwrap();
            let store = open(&storage, 4, WRITER);
            assert_eq!(put(&store, 0..2000), names[..2000], "{what}: {file}");
            assert_eq!(new_blocks(&store), 0, "{what}: {file}");
        }
        let storage = whole.fork();
        storage.remove(file).unwrap();
        check(&open(&storage, 3, StoreAccess::Read), &names);
        check(&open(&storage, 3, WRITER), &names);
    }
}

#[test]
fn an_index_from_an_older_moment_is_brought_up_to_date() {
    let storage = created(&config());
    let store = open(&storage, 2, WRITER);
    put(&store, 0..20_000);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    let older: Vec<_> =
        index_files(&storage).into_iter().map(|file| (storage.contents(&file).unwrap(), file)).collect();
    let store = open(&storage, 3, WRITER);
    let names = put(&store, 0..MANY);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    index_files(&storage).iter().for_each(|file| storage.remove(file).unwrap());
    for (contents, file) in older {
        storage.set_contents(&file, contents);
    }
    check(&open(&storage, 4, StoreAccess::Read), &names);
    check(&open(&storage, 4, WRITER), &names);
}

#[test]
fn another_stores_index_is_of_no_use_and_of_no_harm() {
    let (storage, names) = filled();
    let mut config = config();
    config.id = [6; 16];
    let other = created(&config);
    let store = open(&other, 2, WRITER);
    put(&store, 90_000..90_100);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    for file in index_files(&storage) {
        storage.remove(&file).unwrap();
    }
    for file in index_files(&other) {
        storage.set_contents(&file, other.contents(&file).unwrap());
    }
    check(&open(&storage, 3, StoreAccess::Read), &names);
}

/// The disk of the index fails while the store is in use. The store continues with its directory
/// pages, and finds everything.
#[test]
fn a_store_goes_on_without_its_index() {
    let (storage, names) = filled();
    let store = open(&storage, 3, WRITER);
    for file in index_files(&storage) {
        let length = storage.contents(&file).unwrap().len();
        storage.set_contents(&file, vec![0; length]);
    }
    for number in (0..MANY).step_by(5003) {
        let name = names[number as usize];
        assert_eq!(&store.get(&name).unwrap()[..], bytes_of(number));
    }
    assert_eq!(put(&store, 0..3000), names[..3000]);
    assert_eq!(new_blocks(&store), 0, "what the directories have is not stored again");
    assert!(store.stats().unwrap().disk_index.unwrap().trouble.is_some());
    let names_new = put(&store, MANY..MANY + 100);
    store.close().unwrap();
    let store = open(&storage, 4, WRITER);
    check(&store, &[names.clone(), names_new].concat());
    assert_eq!(store.stats().unwrap().disk_index.unwrap().trouble, None);
}

#[test]
fn a_reader_follows_a_writer_past_many_passes() {
    let storage = created(&config());
    let store = open(&storage, 2, WRITER);
    let mut names = put(&store, 0..1000);
    let reader = open(&storage, 3, StoreAccess::Read);
    for first in (1000..MANY).step_by(7000) {
        let more = put(&store, first..(first + 7000).min(MANY));
        names.extend(more);
        reader.follow().unwrap();
        check(&reader, &names);
    }
    store.close().unwrap();
}

#[test]
fn a_store_goes_from_one_index_to_the_other_and_back() {
    let (storage, names) = filled();
    let log_before: Vec<_> = storage.list("arenas").unwrap();
    for kind in [IndexKind::Memory, IndexKind::Disk, IndexKind::Disk, IndexKind::Memory] {
        let mut wanted = Store::read_config(&world(&storage, 5)).unwrap();
        wanted.index = kind;
        varve_store::choose_index(&world(&storage, 5), &wanted, "test").unwrap();
        assert_eq!(
            storage.list("index").unwrap().iter().filter(|file| file.as_str() != "index/newest").count(),
            0
        );
        let store = open(&storage, 6, WRITER);
        assert_eq!(store.stats().unwrap().disk_index.is_some(), kind == IndexKind::Disk);
        store.save_checkpoint().unwrap();
        check(&store, &names);
        assert_eq!(put(&store, 0..1000), names[..1000]);
        assert_eq!(new_blocks(&store), 0);
        store.close().unwrap();
        check(&open(&storage, 7, StoreAccess::Read), &names);
    }
    assert_eq!(storage.list("arenas").unwrap(), log_before);
}

#[test]
fn the_index_of_a_store_that_is_written_is_not_changed() {
    let (storage, _) = filled();
    let _store = open(&storage, 3, WRITER);
    let wanted = Store::read_config(&world(&storage, 5)).unwrap();
    assert!(varve_store::choose_index(&world(&storage, 5), &wanted, "test").is_err());
}

//! Sectors that the disk does not return: without them the newest catalog may be missing from the
//! list, and then nothing is added.

use std::sync::Arc;

use varve_block::{Block, BlockName, BlockStore, BlockType, GetError};
use varve_log::ArenaMap;
use varve_sim::{Rot, SeededDraw, SimDisk};
use varve_store::{DiskIndexConfig, Encryption, IndexKind, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_upkeep::Checker;
use varve_world::{FileName, Storage, World};

const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "process 42 on here" };

fn world(disk: &SimDisk, seed: u64) -> World {
    World::deterministic(Arc::new(disk.clone()), seed)
}

fn open(disk: &SimDisk, seed: u64) -> Store {
    Store::open(world(disk, seed), None, WRITER, &mut |_| {}).unwrap()
}

/// Makes a store of four nights, each with a catalog of its own.
fn take_nights(disk: &SimDisk, config: &StoreConfig, saves_index: bool) {
    Store::create(&world(disk, 1), config, None, PassphraseCost::default()).unwrap();
    for night in 0..4 {
        let store = open(disk, 2 + u64::from(night));
        store.put(Block { block_type: BlockType::DATA, bytes: &[night; 700] }).unwrap();
        store.put(Block { block_type: BlockType::CATALOG, bytes: &[night; 30] }).unwrap();
        store.sync().unwrap();
        if saves_index && night == 1 {
            store.save_checkpoint().unwrap();
        }
        store.close().unwrap();
    }
}

/// Takes sectors from stores of four nights, and adds to the stores without them. Returns the
/// number of stores that refuse, and of those that accept because the missing part can hold nothing
/// newer than the listed catalogs.
fn add_without(sector_count: usize, saves_index: bool) -> (usize, usize) {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..150 {
        let disk = SimDisk::new(seed);
        let config = StoreConfig { encryption: Encryption::None, ..StoreConfig::new([1; 16]) };
        take_nights(&disk, &config, saves_index);
        let newest = open(&disk, 10).last_catalog();
        let log = FileName::new("arenas/0000000000.arena").unwrap();
        for _ in 0..sector_count {
            assert!(disk.rot(&log, Rot::UnreadableSector));
        }
        let store = open(&disk, 11);
        let put = store.put(Block { block_type: BlockType::DATA, bytes: b"the next night" });
        assert!(put.is_err() || store.last_catalog() == newest, "seed {seed}");
        *if put.is_ok() { &mut taken } else { &mut refused } += 1;
    }
    (refused, taken)
}

#[test]
fn nothing_is_added_to_a_catalog_that_may_not_be_the_newest() {
    for sector_count in [1, 2, 3] {
        let (refused, taken) = add_without(sector_count, false);
        assert!(refused > 10 && taken > 10, "{refused} refused, {taken} taken");
    }
}

/// The saved index knows a catalog of an arena that the disk no longer returns, or not completely.
#[test]
fn a_catalog_that_only_the_saved_index_knows_need_not_be_the_newest() {
    let (refused, taken) = add_without(1, true);
    assert!(refused > 10 && taken > 10, "{refused} refused, {taken} taken");
}

/// While an arena without a seal waits for sectors that the disk does not return, later arenas get
/// their seals, and are taken in first.
#[test]
fn a_catalog_behind_an_arena_that_waits_takes_the_place_of_those_in_it() {
    let mut waiting_count = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let arena_map = ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap();
        let config = StoreConfig { encryption: Encryption::None, arena_map, ..StoreConfig::new([1; 16]) };
        take_nights(&disk, &config, false);
        assert!(disk.rot(&FileName::new("arenas/0000000000.arena").unwrap(), Rot::UnreadableSector));
        let store = open(&disk, 10);
        let mut draw = SeededDraw::new(seed);
        if store.put(Block { block_type: BlockType::DATA, bytes: b"the next night" }).is_err() {
            continue;
        }
        let score = store.put(Block { block_type: BlockType::CATALOG, bytes: b"the newest" }).unwrap();
        store.sync().unwrap();
        for _ in 0..48 {
            let bytes: Vec<u8> = (0..4096).flat_map(|_| draw.number().to_le_bytes()).collect();
            store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
        }
        store.close().unwrap();
        for file in disk.files().iter().filter(|file| file.as_str().starts_with("index/")) {
            disk.remove(file).unwrap();
        }
        let store = open(&disk, 11);
        let newest = BlockName { score, block_type: BlockType::CATALOG };
        assert_eq!(store.catalogs(), [newest], "seed {seed}");
        let (arenas, unsealed) = (store.arenas().unwrap(), Checker::of(&store).unsealed_arenas().unwrap());
        waiting_count += u32::from(unsealed.contains(&arenas[0]) && !unsealed.contains(&arenas[1]));
    }
    assert!(waiting_count > 3, "{waiting_count}");
}

/// An index on disk is written while blocks are put. A part of the log may be missing from it
/// because the disk did not return that part. The blocks must be found when the disk returns it.
#[test]
fn no_index_is_kept_of_a_part_of_the_log() {
    let mut hidden_count = 0;
    for seed in 0..24 {
        let disk = SimDisk::new(seed);
        let arena_map = ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap();
        let disk_index =
            DiskIndexConfig { memory_bytes: 1 << 20, expected_blocks: 1000, ..DiskIndexConfig::default() };
        let config = StoreConfig {
            encryption: Encryption::None,
            index: IndexKind::Disk,
            arena_map,
            disk_index,
            ..StoreConfig::new([1; 16])
        };
        Store::create(&world(&disk, 1), &config, None, PassphraseCost::default()).unwrap();
        let mut draw = SeededDraw::new(seed);
        let mut put = |store: &Store, count: usize, length: usize| -> Vec<BlockName> {
            let mut block =
                || -> Vec<u8> { (0..length / 8).flat_map(|_| draw.number().to_le_bytes()).collect() };
            let blocks: Vec<_> = (0..count).map(|_| block()).collect();
            let name = |bytes: &Vec<u8>| {
                let score = store.put(Block { block_type: BlockType::DATA, bytes }).unwrap();
                BlockName { score, block_type: BlockType::DATA }
            };
            blocks.iter().map(name).collect()
        };
        let store = open(&disk, 2);
        let old = put(&store, 14_000, 64);
        store.put(Block { block_type: BlockType::CATALOG, bytes: b"behind all of them" }).unwrap();
        store.close().unwrap();
        for file in disk.files().iter().filter(|file| file.as_str().starts_with("index/")) {
            disk.remove(file).unwrap();
        }
        // A third of the log is directory pages.
        let sealed = FileName::new("arenas/0000000000.arena").unwrap();
        assert!(disk.rot(&sealed, Rot::UnreadableSector));
        let store = open(&disk, 3);
        let is_hidden =
            store.get_batch(&old).iter().any(|found| matches!(found, Err(GetError::NotFound { .. })));
        if store.check_nothing_withheld().is_err() || !is_hidden {
            continue;
        }
        hidden_count += 1;
        assert!(!store.is_log_given());
        for _ in 0..8 {
            put(&store, 4000, 24);
            store.sync().unwrap();
        }
        drop(store);
        disk.heal();
        let lacking = open(&disk, 4).get_batch(&old).iter().filter(|found| found.is_err()).count();
        assert_eq!(lacking, 0, "seed {seed}");
    }
    assert!(hidden_count > 3, "{hidden_count}");
}

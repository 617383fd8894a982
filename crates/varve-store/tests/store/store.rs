//! The engine on storage in memory: the contract, duplicates, crashes, damage, and several users of
//! one store at once.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use varve_block::{Block, BlockName, BlockStore, BlockType, GetError, PutError, contract};
use varve_log::ArenaId;
use varve_store::{
    CompareMode, Encryption, KeyError, OpenStoreError, PassphraseCost, ScoreAlgorithm, Secret, Store,
    StoreAccess, StoreConfig,
};
use varve_upkeep::{Checker, Damage, DamageKind, MendPlan, Mender};
use varve_world::{FileName, MemoryStorage, Random, RealWorkers, SeededRandom, Storage, World};
use zeroize::Zeroizing;

use crate::memory_store::{WRITER, created, open, secret, try_open, world};

fn config(score: ScoreAlgorithm, encryption: Encryption) -> StoreConfig {
    let mut config = StoreConfig::new([5; 16]);
    config.score = score;
    config.encryption = encryption;
    config.arena_map = varve_log::ArenaMap::new(1 << 20).unwrap();
    config.clump_bytes = varve_log::ClumpBytes::new(128 << 10).unwrap();
    config
}

fn all_kinds() -> Vec<StoreConfig> {
    let algorithms = [ScoreAlgorithm::Blake3, ScoreAlgorithm::Sha1];
    let encryptions = [Encryption::Aes256Gcm, Encryption::None];
    let by_hash =
        algorithms.into_iter().flat_map(|score| encryptions.map(|encryption| config(score, encryption)));
    let by_value = encryptions.map(|encryption| {
        let by_hash = config(ScoreAlgorithm::Blake3, encryption);
        StoreConfig { compare: CompareMode::Value, ..by_hash }
    });
    by_hash.chain(by_value).collect()
}

fn default_store() -> MemoryStorage {
    created(&config(ScoreAlgorithm::Blake3, Encryption::Aes256Gcm))
}

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

fn data(bytes: &[u8]) -> Block<'_> {
    Block { block_type: BlockType::DATA, bytes }
}

fn put(store: &Store, bytes: &[u8]) -> BlockName {
    BlockName { score: store.put(data(bytes)).unwrap(), block_type: BlockType::DATA }
}

#[test]
fn every_kind_keeps_the_contract() {
    for config in all_kinds() {
        let mut seed = 10;
        contract::check(&mut || {
            seed += 1;
            open(&created(&config), seed, WRITER)
        });
    }
}

#[test]
fn many_arenas_are_read_alike_by_one_and_by_several() {
    for config in all_kinds() {
        let storage = created(&config);
        let store = open(&storage, 10, WRITER);
        let names: Vec<_> = (0..600).map(|seed| put(&store, &random_bytes(seed, 20_000))).collect();
        store.close().unwrap();
        for file in storage.list("index").unwrap() {
            storage.remove(&file).unwrap();
        }
        let arenas = storage.list(ArenaId::FOLDER).unwrap();
        assert!(arenas.len() >= 10);
        // One arena loses its header, and one its directory page.
        let flip = |file: &FileName, place: usize| {
            let mut bytes = storage.contents(file).unwrap();
            bytes[place] ^= 1;
            storage.set_contents(file, bytes);
        };
        flip(&arenas[2], 20);
        let before_seal = storage.contents(&arenas[5]).unwrap().len() - 300;
        flip(&arenas[5], before_seal);
        let seen = [1, 3].map(|width| {
            let mut progress = Vec::new();
            let mut world = world(&storage, 20);
            if width > 1 {
                world.workers = Arc::new(RealWorkers::new(width));
            }
            let store =
                Store::open(world, Some(&secret()), StoreAccess::Read, &mut |done| progress.push(done))
                    .unwrap();
            let found: Vec<_> = names.iter().map(|name| store.get(name).is_ok()).collect();
            let stats = store.stats().unwrap();
            (progress, found, stats.block_count, stats.arena_count)
        });
        assert_eq!(seen[0], seen[1]);
        assert!(seen[0].1.contains(&true) && seen[0].1.contains(&false));
        assert_eq!(seen[0].0.len(), arenas.len() + 1);
    }
}

#[test]
fn a_store_opens_with_all_that_was_put() {
    for config in all_kinds() {
        let storage = created(&config);
        let mut names = Vec::new();
        for session in 0..4 {
            let store = open(&storage, 100 + session, WRITER);
            for (name, bytes) in &names {
                assert_eq!(store.get(name).unwrap(), bytes);
            }
            for block in 0..60 {
                let bytes = random_bytes(session * 1000 + block, 9000 + block as usize);
                names.push((put(&store, &bytes), bytes));
            }
            if session == 1 {
                store.save_checkpoint().unwrap();
            }
            store.close().unwrap();
        }
        let store = open(&storage, 200, StoreAccess::Read);
        let asked: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        for (answer, (_, bytes)) in store.get_batch(&asked).into_iter().zip(&names) {
            assert_eq!(answer.unwrap(), bytes);
        }
        assert_eq!(store.stats().unwrap().block_count, 240);
    }
}

#[test]
fn duplicates_are_stored_once() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let blocks: Vec<_> = (0..50).map(|seed| random_bytes(seed, 8192)).collect();
    let twice: Vec<_> = blocks.iter().chain(&blocks).map(|bytes| data(bytes)).collect();
    store.put_batch(&twice).unwrap();
    assert_eq!(store.session_growth(), (50, 50 * 8192));
    store.put_batch(&twice).unwrap();
    store.sync().unwrap();
    store.put_batch(&twice).unwrap();
    store.close().unwrap();
    let bytes_before = open(&storage, 3, StoreAccess::Read).stats().unwrap().log_bytes;
    let store = open(&storage, 3, WRITER);
    store.put_batch(&twice).unwrap();
    assert_eq!(store.session_growth(), (0, 0));
    store.close().unwrap();
    assert_eq!(open(&storage, 4, StoreAccess::Read).stats().unwrap().log_bytes, bytes_before);
}

/// A power cut may keep the footer of a seal that was not synced, and lose the bytes before it.
#[test]
fn a_torn_seal_hides_nothing() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let blocks: Vec<_> = (0..150).map(|seed| random_bytes(seed, 9000)).collect();
    let names: Vec<_> = blocks.iter().map(|bytes| put(&store, bytes)).collect();
    store.sync().unwrap();
    drop(store);
    let file = varve_log::ArenaId(0).file_name();
    let mut torn = storage.contents(&file).unwrap();
    let footer = torn.len() - 96;
    torn[footer - 20..footer].fill(0);
    storage.set_contents(&file, torn.clone());
    for access in [StoreAccess::Read, WRITER] {
        let store = open(&storage, 3, access);
        assert!(names.iter().zip(&blocks).all(|(name, bytes)| store.get(name).unwrap() == *bytes));
    }
    let store = open(&storage, 4, WRITER);
    put(&store, b"the next sync seals it again");
    store.close().unwrap();
    assert_ne!(storage.contents(&file).unwrap(), torn);
    assert!(Checker::of(&open(&storage, 5, StoreAccess::Read)).check_order().unwrap().is_empty());
}

/// The creating process may have been stopped by a failure at the last step.
#[test]
fn a_store_is_durable_before_anything_is_put() {
    let disk = varve_sim::SimDisk::new(1);
    let world = World { storage: Arc::new(disk.clone()), ..world(&MemoryStorage::new(), 1) };
    let config = config(ScoreAlgorithm::Blake3, Encryption::None);
    disk.arm(&[varve_sim::Strike { after: 9, fault: varve_sim::Fault::FolderSyncError }]);
    Store::create(&world, &config, None, PassphraseCost::default()).unwrap_err();
    for seed in 0..20 {
        disk.reseed(seed);
        let store = Store::open(world.clone(), None, WRITER, &mut |_| {}).unwrap();
        store.close().unwrap();
        disk.cut_power();
        disk.restart();
    }
}

#[test]
fn one_writes_and_others_read() {
    let storage = default_store();
    let writer = open(&storage, 2, WRITER);
    let early = put(&writer, b"early");
    writer.sync().unwrap();
    match try_open(&storage, 3, WRITER).map(|_| ()) {
        Err(error @ OpenStoreError::Locked { .. }) => {
            assert!(error.to_string().contains("process 42 on here"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    let reader = open(&storage, 4, StoreAccess::Read);
    let late = put(&writer, b"late");
    writer.sync().unwrap();
    assert_eq!(reader.get(&early).unwrap(), b"early".as_slice());
    assert!(matches!(reader.get(&late), Err(GetError::NotFound { .. })), "a reader sees what was there");
    assert!(matches!(reader.put(data(b"x")), Err(PutError::ReadOnly { .. })));
    drop(writer);
    open(&storage, 5, WRITER);
}

#[test]
fn a_reader_follows_a_writer() {
    for config in all_kinds() {
        let storage = created(&config);
        let reader = open(&storage, 3, StoreAccess::Read);
        assert!(!reader.follow().unwrap(), "nothing was written yet");
        let mut names = Vec::new();
        for session in 0..3 {
            let writer = open(&storage, 40 + session, WRITER);
            assert!(!writer.follow().unwrap(), "a writer has nobody to follow");
            for round in 0..4 {
                // More than an arena, so some arenas are sealed meanwhile.
                for block in 0..40 {
                    let bytes = random_bytes(session * 1000 + round * 100 + block, 9000);
                    names.push((put(&writer, &bytes), bytes));
                }
                let root = Block { block_type: BlockType::CATALOG, bytes: &[session as u8, round as u8] };
                let root = BlockName { score: writer.put(root).unwrap(), block_type: BlockType::CATALOG };
                writer.sync().unwrap();
                assert_ne!(reader.last_catalog(), Some(root));
                assert!(reader.follow().unwrap());
                assert!(!reader.follow().unwrap(), "nothing since");
                assert_eq!(reader.catalogs(), [root]);
                for (name, bytes) in &names {
                    assert_eq!(reader.get(name).unwrap(), bytes);
                }
            }
            writer.close().unwrap();
        }
        reader.follow().unwrap();
        let fresh = open(&storage, 60, StoreAccess::Read);
        assert_eq!(reader.stats().unwrap().block_count, fresh.stats().unwrap().block_count);
        assert!(fresh.stats().unwrap().arena_count > 3);
    }
}

#[test]
fn strangers_are_turned_away() {
    let storage = default_store();
    let open_with =
        |secret| Store::open(world(&storage, 2), secret, StoreAccess::Read, &mut |_| {}).map(|_| ());
    assert!(matches!(open_with(None), Err(OpenStoreError::Keys(KeyError::Missing))));
    let wrong = Secret::KeyFile(Zeroizing::new(vec![8; 32]));
    assert!(matches!(open_with(Some(&wrong)), Err(OpenStoreError::Keys(KeyError::Wrong { .. }))));
    assert!(matches!(
        try_open(&MemoryStorage::new(), 1, StoreAccess::Read).map(|_| ()),
        Err(OpenStoreError::NotAStore)
    ));
    let again = Store::create(
        &world(&storage, 1),
        &StoreConfig::new([1; 16]),
        Some(&secret()),
        PassphraseCost::default(),
    );
    assert!(matches!(again, Err(varve_store::CreateError::Exists)));
}

#[test]
fn what_an_unfinished_creation_has_left_is_no_stranger() {
    let create = |storage: &MemoryStorage| {
        let config = StoreConfig::new([1; 16]);
        Store::create(&world(storage, 1), &config, Some(&secret()), PassphraseCost::default())
    };
    for left in ["keys/key-file.toml", "FORMAT.md.new", "FORMAT.md", "config.toml.new"] {
        let storage = MemoryStorage::new();
        storage.set_contents(&FileName::new(left).unwrap(), b"# half".to_vec());
        create(&storage).unwrap();
        open(&storage, 2, WRITER).close().unwrap();
    }
    // The keys of a store that has lost its configuration must not be replaced.
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    put(&store, b"something");
    store.close().unwrap();
    storage.remove(&FileName::new("config.toml").unwrap()).unwrap();
    assert!(matches!(create(&storage), Err(varve_store::CreateError::NotEmpty { .. })));
}

#[test]
fn a_sha1_collision_is_refused() {
    let (one, other) = (
        include_bytes!("../collision/sha-mbles-1.bin").as_slice(),
        include_bytes!("../collision/sha-mbles-2.bin").as_slice(),
    );
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let storage = created(&config(ScoreAlgorithm::Sha1, encryption));
        let store = open(&storage, 2, WRITER);
        let name = put(&store, one);
        assert!(
            matches!(store.put(data(other)), Err(PutError::Collision { name: refused }) if refused == name),
            "waiting"
        );
        store.close().unwrap();
        let store = open(&storage, 3, WRITER);
        assert!(matches!(store.put(data(other)), Err(PutError::Collision { .. })), "stored");
        assert_eq!(put(&store, one), name);
        assert_eq!(store.get(&name).unwrap(), one);
        let both = store.put_batch(&[data(b"before"), data(other), data(b"after")]);
        assert!(matches!(both, Err(PutError::Collision { .. })), "in a batch");
    }
}

/// Otherwise a `sync` would wait for ever for clumps that were closed and never written.
#[test]
fn what_came_before_a_refused_block_is_stored() {
    let (one, other) = (
        include_bytes!("../collision/sha-mbles-1.bin").as_slice(),
        include_bytes!("../collision/sha-mbles-2.bin").as_slice(),
    );
    let storage = created(&config(ScoreAlgorithm::Sha1, Encryption::None));
    let store = open(&storage, 2, WRITER);
    // More blocks than fit into one clump.
    let many: Vec<_> = (0..60).map(|seed| random_bytes(seed, 50_000)).collect();
    let before: Vec<_> = std::iter::once(data(one)).chain(many.iter().map(|bytes| data(bytes))).collect();
    let all: Vec<_> = before.iter().copied().chain([data(other)]).collect();
    assert!(matches!(store.put_batch(&all), Err(PutError::Collision { .. })));
    store.sync().unwrap();
    drop(store);
    let store = open(&storage, 3, WRITER);
    store.put_batch(&before).unwrap();
    assert_eq!(store.session_growth(), (0, 0));
}

#[test]
fn a_full_disk_loses_nothing() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let kept = put(&store, b"kept");
    store.sync().unwrap();
    storage.set_bytes_max(Some(200_000));
    let failure = (0..100).find_map(|seed| store.put(data(&random_bytes(seed, 50_000))).err());
    assert!(matches!(failure, Some(PutError::Failed { .. })));
    assert!(store.sync().is_err(), "what could not be written is not said to be durable");
    assert_eq!(store.get(&kept).unwrap(), b"kept".as_slice());
    drop(store);
    storage.set_bytes_max(None);
    let store = open(&storage, 3, WRITER);
    assert_eq!(store.get(&kept).unwrap(), b"kept".as_slice());
    put(&store, &random_bytes(1, 50_000));
    store.close().unwrap();
}

/// A clump is in the log before a page names its blocks.
#[test]
fn a_damaged_block_that_waits_for_its_page_is_not_missing() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names: Vec<_> = (0..100).map(|seed| put(&store, &random_bytes(seed, 50_000))).collect();
    let open = storage.names().into_iter().rfind(|file| file.as_str().ends_with(".arena")).unwrap();
    let mut contents = storage.contents(&open).unwrap();
    assert!(contents.len() > 500_000, "a clump was appended");
    contents[1000..].fill(0);
    storage.set_contents(&open, contents);
    let results = store.get_batch(&names);
    let is_missing = |found: &Result<_, _>| matches!(found, Err(GetError::NotFound { .. }));
    assert!(
        !results.iter().any(is_missing),
        "{} are said to be missing",
        results.iter().filter(|found| is_missing(found)).count()
    );
    assert!(results.iter().any(Result::is_err), "the drafts have them all");
}

/// A disk overwrites an arena while a program reads from it.
#[test]
fn a_block_of_an_arena_that_was_zeroed_is_not_missing() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names: Vec<_> = (0..20).map(|seed| put(&store, &random_bytes(seed, 50_000))).collect();
    store.close().unwrap();
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let whole = storage.contents(&file).unwrap();
    for kept_bytes in [0, 1000] {
        let store = open(&storage, 3, StoreAccess::Read);
        let mut contents = whole.clone();
        contents[kept_bytes..].fill(0);
        storage.set_contents(&file, contents);
        for found in store.get_batch(&names) {
            assert!(matches!(found, Err(GetError::Damaged { .. } | GetError::Failed { .. })), "{found:?}");
        }
        storage.set_contents(&file, whole.clone());
    }
}

#[test]
fn what_was_synced_survives_a_cut_anywhere() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let synced: Vec<_> =
        (0..20).map(|seed| random_bytes(seed, 3000)).map(|bytes| (put(&store, &bytes), bytes)).collect();
    store.sync().unwrap();
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let synced_bytes = storage.contents(&file).unwrap().len();
    for seed in 100..400 {
        put(&store, &random_bytes(seed, 3000));
    }
    let whole = storage.contents(&file).unwrap();
    for length in (synced_bytes..whole.len()).step_by(4093) {
        let crashed = storage.fork();
        crashed.set_contents(&file, whole[..length].to_vec());
        let seen = open(&crashed, 1, StoreAccess::Read);
        let check = Checker::of(&seen).check_arena(varve_log::ArenaId(0), true).unwrap();
        assert!(check.damage.is_empty(), "cut to {length}: {:?}", check.damage);
        let store = open(&crashed, 3, WRITER);
        assert!(synced.iter().all(|(name, bytes)| store.get(name).unwrap() == *bytes), "cut to {length}");
        let more = put(&store, b"and on it goes");
        store.close().unwrap();
        let store = open(&crashed, 4, StoreAccess::Read);
        assert_eq!(store.get(&more).unwrap(), b"and on it goes".as_slice());
        assert!(Checker::of(&store).check_arena(varve_log::ArenaId(0), true).unwrap().damage.is_empty());
    }
}

#[test]
fn an_arena_without_a_header_is_begun_again() {
    let storage = default_store();
    for torn in [Vec::new(), vec![0; 300], vec![0; 5000]] {
        storage.set_contents(&FileName::new("arenas/0000000000.arena").unwrap(), torn);
        let seen = open(&storage, 1, StoreAccess::Read);
        let check = Checker::of(&seen).check_arena(varve_log::ArenaId(0), true).unwrap();
        assert!(check.damage.is_empty() && check.unfinished.is_some(), "{check:?}");
        let store = open(&storage, 2, WRITER);
        let name = put(&store, b"first");
        store.sync().unwrap();
        assert_eq!(store.get(&name).unwrap(), b"first".as_slice());
    }
}

#[test]
fn several_arenas_that_never_reached_the_disk_are_begun_again() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let kept = put(&store, b"kept");
    store.close().unwrap();
    let file = |number: u64| FileName::new(&format!("arenas/{number:010}.arena")).unwrap();
    for headless in [[Vec::new(), Vec::new()], [vec![0; 5000], Vec::new()], [Vec::new(), vec![0; 5000]]] {
        for (number, contents) in (1..).zip(headless) {
            storage.set_contents(&file(number), contents);
        }
        let seen = open(&storage, 3, StoreAccess::Read);
        assert!(Checker::of(&seen).check_order().unwrap().is_empty());
        for id in seen.arenas().unwrap() {
            assert!(Checker::of(&seen).check_arena(id, true).unwrap().damage.is_empty(), "arena {id}");
        }
        open(&storage, 4, WRITER).close().unwrap();
        let seen = open(&storage, 5, StoreAccess::Read);
        assert_eq!(seen.arenas().unwrap().len(), 1);
        assert_eq!(seen.get(&kept).unwrap(), b"kept".as_slice());
    }
}

#[test]
fn a_reader_finds_the_root_before_one_that_a_power_cut_took() {
    let storage = default_store();
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let store = open(&storage, 2, WRITER);
    let put_root = |seed| {
        let root = random_bytes(seed, 3000);
        let score = store.put(Block { block_type: BlockType::CATALOG, bytes: &root }).unwrap();
        store.sync().unwrap();
        let name = BlockName { score, block_type: BlockType::CATALOG };
        (name, storage.contents(&file).unwrap().len())
    };
    let (first, first_end) = put_root(1);
    let (second, _) = put_root(2);
    drop(store);
    assert_eq!(open(&storage, 3, StoreAccess::Read).last_catalog(), Some(second));
    let mut bytes = storage.contents(&file).unwrap();
    let sector = (first_end + 64).next_multiple_of(512);
    bytes[sector..sector + 512].fill(0);
    storage.set_contents(&file, bytes);
    let reader = open(&storage, 4, StoreAccess::Read);
    assert_eq!(reader.last_catalog(), Some(first));
    let check = Checker::of(&reader).check_arena(varve_log::ArenaId(0), true).unwrap();
    assert!(check.damage.is_empty() && check.unfinished.is_some(), "{check:?}");
    assert_eq!(open(&storage, 5, WRITER).last_catalog(), Some(first));
}

#[test]
fn what_is_lost_in_an_arena_with_a_broken_seal_is_named() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names = fill(&store, 0..150);
    store.close().unwrap();
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let mut bad = storage.contents(&file).unwrap();
    let end = bad.len();
    for offset in [300_000, end - 10] {
        bad[offset] ^= 1;
    }
    storage.set_contents(&file, bad);
    let store = open(&storage, 3, StoreAccess::Read);
    let is_lost = |name: &&BlockName| store.get(name).is_err();
    let lost: BTreeSet<_> = names.iter().filter(is_lost).collect();
    let damage = Checker::of(&store).check_arena(ArenaId(0), false).unwrap().damage;
    let named: BTreeSet<_> = damage.iter().flat_map(|damage| &damage.blocks).collect();
    assert!(!lost.is_empty() && lost == named, "{lost:?}, {damage:?}");
}

#[test]
fn an_arena_that_somebody_puts_back_as_it_was_is_taken_in() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names = fill(&store, 0..150);
    store.close().unwrap();
    let file = ArenaId(1).file_name();
    let good = storage.contents(&file).unwrap();
    let mut bad = good.clone();
    bad[300_000] ^= 1;
    storage.set_contents(&file, bad);
    let store = open(&storage, 3, WRITER);
    let damage = Checker::of(&store).check_arena(ArenaId(1), true).unwrap().damage;
    Mender::of(&store).unwrap().rewrite(&MendPlan::new(&damage)).unwrap();
    store.close().unwrap();
    let store = open(&storage, 31, WRITER);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    storage.set_contents(&file, good);
    let lost = |store: &Store| names.iter().filter(|name| store.get(name).is_err()).count();
    // The index knows the blocks that the repair has written. An arena is read again when a block
    // is not where the index says.
    for access in [StoreAccess::Read, WRITER] {
        let store = open(&storage, 32, access);
        assert!(lost(&store) <= 1, "what the repair could not save is in no index until then");
        assert_eq!(lost(&store), 0);
    }
    let store = open(&storage, 4, WRITER);
    assert!(
        Checker::of(&store)
            .check_order()
            .unwrap()
            .iter()
            .any(|damage| matches!(damage.kind, DamageKind::Ledger))
    );
    assert_eq!(Mender::of(&store).unwrap().take_in_replaced().unwrap(), [ArenaId(1)]);
    assert_eq!(lost(&store), 0);
    assert_eq!(Mender::of(&store).unwrap().take_in_replaced().unwrap(), []);
    store.close().unwrap();
    assert_eq!(lost(&open(&storage, 5, StoreAccess::Read)), 0);
}

#[test]
fn archiving_again_heals_a_lost_directory() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let bytes = random_bytes(1, 20_000);
    let name = put(&store, &bytes);
    store.close().unwrap();
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let mut bad = storage.contents(&file).unwrap();
    bad[600] ^= 1;
    storage.set_contents(&file, bad[..512].to_vec());
    let store = open(&storage, 3, WRITER);
    assert!(matches!(store.get(&name), Err(GetError::NotFound { .. })));
    assert_eq!(put(&store, &bytes), name);
    store.close().unwrap();
    assert_eq!(open(&storage, 4, StoreAccess::Read).get(&name).unwrap(), bytes);
}

fn fill(store: &Store, seeds: std::ops::Range<u64>) -> Vec<BlockName> {
    seeds.map(|seed| put(store, &random_bytes(seed, 20_000))).collect()
}

fn kinds_of(damage: &[Damage]) -> Vec<(ArenaId, String)> {
    damage.iter().map(|damage| (damage.arena, damage.kind.to_string())).collect()
}

#[test]
fn a_sealed_arena_that_vanished_stays_noticed_until_it_is_replaced() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names = fill(&store, 0..150);
    store.close().unwrap();
    storage.remove(&FileName::new("arenas/0000000001.arena").unwrap()).unwrap();
    for hint in storage.list("index").unwrap() {
        storage.remove(&hint).unwrap();
    }
    for night in 0..3 {
        let seen = kinds_of(&Checker::of(&open(&storage, 3, StoreAccess::Read)).check_order().unwrap());
        assert!(seen.contains(&(ArenaId(1), DamageKind::Missing.to_string())), "night {night}: {seen:?}");
        // Enough blocks that arenas are sealed as well.
        let store = open(&storage, 10 + night, WRITER);
        fill(&store, 1000 * (night + 1)..1000 * (night + 1) + 150);
        store.close().unwrap();
    }
    let store = open(&storage, 20, WRITER);
    let plan = MendPlan::new(&Checker::of(&store).check_order().unwrap());
    assert_eq!(plan.arenas.keys().collect::<Vec<_>>(), [&ArenaId(1)]);
    Mender::of(&store).unwrap().rewrite(&plan).unwrap();
    store.close().unwrap();
    let store = open(&storage, 21, WRITER);
    assert!(Checker::of(&store).check_order().unwrap().is_empty(), "{:?}", Checker::of(&store).check_order());
    let lost = names.iter().filter(|name| store.get(name).is_err()).count();
    assert!((1..names.len() / 2).contains(&lost), "only what it held is lost: {lost}");
}

/// Found by seed 91000645 of `varve-archive/tests/faults`: after one wrong read, no block of the
/// arena could be read any more.
#[test]
fn a_header_that_was_read_as_it_was_before_is_read_again() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names = fill(&store, 0..150);
    store.close().unwrap();
    let file = FileName::new("arenas/0000000001.arena").unwrap();
    let mut before = storage.contents(&file).unwrap();
    before[70_000] ^= 1;
    storage.set_contents(&file, before.clone());
    let store = open(&storage, 3, WRITER);
    let damage = Checker::of(&store).check_arena(ArenaId(1), true).unwrap().damage;
    Mender::of(&store).unwrap().rewrite(&MendPlan::new(&damage)).unwrap();
    let whole = storage.contents(&file).unwrap();
    assert_ne!(before[..512], whole[..512], "an arena that is written anew has another header");

    // For one read, the disk returns the old bytes.
    storage.set_contents(&file, before);
    store.get(&names[70]).unwrap();
    storage.set_contents(&file, whole);
    let lost = |store: &Store| names.iter().filter(|name| store.get(name).is_err()).count();
    let lost_for_good = lost(&open(&storage, 4, StoreAccess::Read));
    assert!((1..10).contains(&lost_for_good), "{lost_for_good}");
    assert_eq!(lost(&store), lost_for_good, "what the damaged clump held, and nothing else");
}

#[test]
fn a_seal_that_a_power_cut_took_before_a_later_one_is_made_again() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let names = fill(&store, 0..190);
    store.sync().unwrap();
    drop(store);
    // The first sync has sealed several arenas, and no page has counted them yet.
    let file = FileName::new("arenas/0000000001.arena").unwrap();
    let whole = storage.contents(&file).unwrap();
    let log_bytes = u64::from_le_bytes(*whole[whole.len() - 80..].first_chunk().unwrap());
    storage.set_contents(&file, whole[..usize::try_from(log_bytes).unwrap()].to_vec());
    for seed in 3..6 {
        let store = open(&storage, seed, StoreAccess::Read);
        assert!(
            Checker::of(&store).check_order().unwrap().is_empty(),
            "{:?}",
            Checker::of(&store).check_order()
        );
        assert!(names.iter().all(|name| store.get(name).is_ok()));
        let store = open(&storage, seed, WRITER);
        assert!(names.iter().all(|name| store.get(name).is_ok()));
        store.close().unwrap();
    }
    assert_eq!(storage.contents(&file).unwrap(), whole, "its place is the same");
}

/// The first sync seals several arenas, and no page has counted them yet. A power cut may tear any
/// of those seals. The last arena may be one of them, and the page that was noted when the store
/// was last closed may lie in another.
#[test]
fn seals_that_a_power_cut_has_torn_were_never_there() {
    for torn in 1..8_u64 {
        for has_open_arena in [true, false] {
            let storage = default_store();
            let store = open(&storage, 2, WRITER);
            let first = put(&store, b"the page that is noted");
            store.close().unwrap();
            let store = open(&storage, 3, WRITER);
            let names = fill(&store, 0..190);
            store.sync().unwrap();
            drop(store);
            let files = storage.list("arenas").unwrap();
            assert_eq!(files.len(), 4);
            if !has_open_arena {
                storage.remove(&files[3]).unwrap();
            }
            for file in (0..3).filter(|arena| torn & (1 << arena) != 0).map(|arena| &files[arena]) {
                let mut bytes = storage.contents(file).unwrap();
                let footer = bytes.len() - 96;
                bytes[footer - 20..footer].fill(0);
                storage.set_contents(file, bytes);
            }
            for seed in 4..7 {
                for access in [StoreAccess::Read, WRITER] {
                    let store = open(&storage, seed, access);
                    let seen = kinds_of(&Checker::of(&store).check_order().unwrap());
                    assert!(seen.is_empty(), "{torn:03b}, {has_open_arena}: {seen:?}");
                    assert!(names.iter().take(140).chain([&first]).all(|name| store.get(name).is_ok()));
                    if access == WRITER {
                        put(&store, &random_bytes(seed, 100));
                        store.close().unwrap();
                    }
                }
            }
            let store = open(&storage, 7, StoreAccess::Read);
            for arena in store.arenas().unwrap() {
                let damage = kinds_of(&Checker::of(&store).check_arena(arena, true).unwrap().damage);
                assert!(damage.is_empty(), "{torn:03b}, {has_open_arena}: {damage:?}");
            }
        }
    }
}

#[test]
fn the_last_catalog_is_found_again() {
    let storage = default_store();
    let mut last = None;
    for session in 0..5 {
        let store = open(&storage, 10 + session, WRITER);
        assert_eq!(store.last_catalog(), last);
        let root = format!("root {session}");
        let score = store.put(Block { block_type: BlockType::CATALOG, bytes: root.as_bytes() }).unwrap();
        last = Some(BlockName { score, block_type: BlockType::CATALOG });
        store.sync().unwrap();
        assert_eq!(store.last_catalog(), last);
        put(&store, &random_bytes(session, 700_000));
        if session == 2 {
            store.save_checkpoint().unwrap();
        }
        store.close().unwrap();
    }
    assert_eq!(open(&storage, 20, StoreAccess::Read).last_catalog(), last);
}

#[test]
fn an_old_root_that_a_copy_gives_back_is_not_the_newest() {
    let storage = default_store();
    let root = |text: &[u8]| {
        let store = open(&storage, u64::from(text[0]), WRITER);
        let score = store.put(Block { block_type: BlockType::CATALOG, bytes: text }).unwrap();
        store.close().unwrap();
        BlockName { score, block_type: BlockType::CATALOG }
    };
    let (old, newest) = (root(b"old"), root(b"newest"));
    let store = open(&storage, 3, WRITER);
    let bytes = random_bytes(9, 1000);
    let score = store.namer().score(&bytes).expect("names are hashes");
    let lost = BlockName { score, block_type: BlockType::DATA };
    let back = [(old, b"old".to_vec().into()), (lost, bytes.clone().into())];
    assert_eq!(store.put_back(&back).unwrap(), 1, "what is no root is stored");
    store.close().unwrap();
    let store = open(&storage, 4, StoreAccess::Read);
    assert_eq!(store.last_catalog(), Some(newest));
    assert_eq!(store.newest_catalog_roots().unwrap(), [newest]);
    assert_eq!(store.catalog_roots().unwrap().len(), 2);
    assert_eq!(store.get(&lost).unwrap(), bytes);
}

#[test]
fn damage_before_the_end_of_the_open_arena_cuts_nothing() {
    let storage = default_store();
    let mut names = Vec::new();
    for session in 0..3 {
        let store = open(&storage, 10 + session, WRITER);
        let bytes = random_bytes(session, 5000);
        names.push((put(&store, &bytes), bytes));
        store.close().unwrap();
    }
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let good = storage.contents(&file).unwrap();
    for offset in (512..good.len()).step_by(97) {
        let damaged = storage.fork();
        let mut bad = good.clone();
        bad[offset] ^= 1;
        damaged.set_contents(&file, bad.clone());
        let store = open(&damaged, 20, WRITER);
        let lost = names.iter().filter(|(name, _)| store.get(name).is_err()).count();
        assert!(lost <= 1, "offset {offset}: {lost} of three nights are lost");
        let more = put(&store, b"another night");
        store.close().unwrap();
        let now = damaged.contents(&file).unwrap();
        assert!(
            now.len() >= 3 * 5000 && now[..15_000] == bad[..15_000],
            "offset {offset}: something was cut"
        );
        assert_eq!(open(&damaged, 21, StoreAccess::Read).get(&more).unwrap(), b"another night".as_slice());
    }
}

#[test]
fn a_checkpoint_of_what_a_crash_has_cut_off_is_not_used() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    put(&store, b"kept");
    store.sync().unwrap();
    let file = FileName::new("arenas/0000000000.arena").unwrap();
    let kept = storage.contents(&file).unwrap();
    put(&store, &random_bytes(1, 9000));
    store.sync().unwrap();
    store.save_checkpoint().unwrap();
    drop(store);
    storage.set_contents(&file, kept);
    let store = open(&storage, 3, WRITER);
    let names: Vec<_> = (0..5).map(|seed| put(&store, &random_bytes(seed + 50, 3000))).collect();
    store.sync().unwrap();
    drop(store);
    let store = open(&storage, 4, StoreAccess::Read);
    assert!(names.iter().all(|name| store.get(name).is_ok()));
}

#[test]
fn an_arena_names_its_blocks_in_an_order_that_stays() {
    let storage = created(&config(ScoreAlgorithm::Sha1, Encryption::None));
    let store = open(&storage, 2, WRITER);
    store.bound_caches(1 << 20);
    // Some full arenas of noise that does not compress.
    let put: Vec<BlockName> = (0..600).map(|seed| put(&store, &random_bytes(seed, 6000))).collect();
    store.sync().unwrap();
    let all_names = |store: &Store| -> Vec<BlockName> {
        let arenas = store.arenas().unwrap();
        assert!(arenas.len() > 2);
        let named = arenas.into_iter().map(|arena| store.names_in_arena(arena).unwrap());
        named.flat_map(|found| found.failure.map_or(found.names, |error| panic!("{error}"))).collect()
    };
    assert_eq!(all_names(&store), put);
    drop(store);
    // The state that a crash leaves.
    let store = open(&storage, 3, WRITER);
    assert_eq!(all_names(&store), put);
    assert!(put.iter().all(|name| store.get(name).is_ok()));
}

/// A source of random bytes that panics once `dies` is set. A new arena needs random bytes.
struct DyingRandom {
    random: SeededRandom,
    dies: AtomicBool,
}

impl Random for DyingRandom {
    fn fill(&self, into: &mut [u8]) -> std::io::Result<()> {
        assert!(!self.dies.load(Ordering::Relaxed), "this thread dies");
        self.random.fill(into)
    }
}

#[test]
fn a_thread_that_dies_while_it_writes_keeps_nobody_waiting() {
    let random = Arc::new(DyingRandom { random: SeededRandom::new(3), dies: AtomicBool::new(false) });
    let world = World { random: Arc::clone(&random) as _, ..world(&default_store(), 2) };
    let store = Store::open(world, Some(&secret()), WRITER, &mut |_| {}).unwrap();
    random.dies.store(true, Ordering::Relaxed);
    let writes = || {
        put(&store, b"a block");
        store.sync()
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(writes)).is_err());
    random.dies.store(false, Ordering::Relaxed);
    assert!(store.sync().is_err());
    assert!(store.put(data(b"another")).is_err());
    assert!(store.close().is_err());
}

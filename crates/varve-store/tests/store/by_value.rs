//! A store that compares by value: its duplicates, the blocks that a name leads to, and those that
//! it never leads to.
#![allow(clippy::cast_possible_truncation)]

use varve_block::{
    Block, BlockName, BlockStore, BlockType, ClumpName, GetError, PLACED_SCORE_BYTES, PlacedName, Score,
};
use varve_log::{ArenaId, ArenaMap, ClumpBytes};
use varve_store::{
    CompareMode, Encryption, IndexKind, KeyError, Keyring, NewKey, PassphraseCost, Role, Secret, Store,
    StoreAccess, StoreConfig,
};
use varve_upkeep::{Checker, MendPlan, Mender};
use varve_world::{MemoryStorage, Random, SeededRandom, Storage};
use zeroize::Zeroizing;

use crate::memory_store::{WRITER, created, open, secret, world};

fn config(encryption: Encryption, index: IndexKind) -> StoreConfig {
    let mut config = StoreConfig::new([5; 16]);
    config.compare = CompareMode::Value;
    (config.encryption, config.index) = (encryption, index);
    config.arena_map = ArenaMap::new(1 << 20).unwrap();
    config.clump_bytes = ClumpBytes::new(64 << 10).unwrap();
    config
}

fn all_kinds() -> Vec<StoreConfig> {
    let encryptions = [Encryption::Aes256Gcm, Encryption::None];
    let kinds = [IndexKind::Memory, IndexKind::Disk];
    encryptions.into_iter().flat_map(|encryption| kinds.map(|kind| config(encryption, kind))).collect()
}

fn default_store() -> MemoryStorage {
    created(&config(Encryption::Aes256Gcm, IndexKind::Memory))
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

fn named(score: Score) -> BlockName {
    BlockName { score, block_type: BlockType::DATA }
}

fn put(store: &Store, bytes: &[u8]) -> BlockName {
    named(store.put(Block { block_type: BlockType::DATA, bytes }).unwrap())
}

fn placed(name: &BlockName) -> PlacedName {
    PlacedName::of(&name.score).unwrap()
}

fn cut(storage: &MemoryStorage, arena: u64, length: u64) {
    let disk: &dyn Storage = storage;
    disk.truncate(&ArenaId(arena).file_name(), length).unwrap();
}

fn arena_bytes(storage: &MemoryStorage, arena: u64) -> u64 {
    let disk: &dyn Storage = storage;
    disk.length(&ArenaId(arena).file_name()).unwrap()
}

#[test]
fn a_block_has_one_name_in_every_session() {
    for config in all_kinds() {
        let storage = created(&config);
        let blocks: Vec<_> = (0..300).map(|seed| noise(seed, 5000 + seed as usize)).collect();
        let mut names: Vec<BlockName> = Vec::new();
        for session in 0..4 {
            let store = open(&storage, 10 + session, WRITER);
            let found: Vec<_> = blocks.iter().map(|bytes| put(&store, bytes)).collect();
            assert!(names.is_empty() || names == found, "{:?}", config.index);
            assert_eq!(store.session_growth().0, if session == 0 { 300 } else { 0 });
            names = found;
            store.close().unwrap();
        }
        // In one call, out of order, and each block twice.
        let store = open(&storage, 20, WRITER);
        let asked: Vec<_> = blocks.iter().rev().chain(&blocks).collect();
        let asked: Vec<_> =
            asked.into_iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        let found = store.put_batch(&asked).unwrap();
        let wanted: Vec<_> = names.iter().rev().chain(&names).map(|name| name.score).collect();
        assert_eq!((found, store.session_growth().0), (wanted, 0));
    }
}

#[test]
fn a_reader_finds_everything_without_an_index() {
    for config in all_kinds() {
        let storage = created(&config);
        let store = open(&storage, 2, WRITER);
        let blocks: Vec<_> =
            (0..400).map(|seed| noise(seed, 9000)).map(|bytes| (put(&store, &bytes), bytes)).collect();
        store.close().unwrap();
        let disk: &dyn Storage = &storage;
        for file in disk.list("index").unwrap() {
            disk.remove(&file).unwrap();
        }
        let store = open(&storage, 3, StoreAccess::Read);
        let before = store.candidates_per_lookup();
        let names: Vec<_> = blocks.iter().map(|(name, _)| *name).collect();
        for (found, (_, bytes)) in store.get_batch(&names).into_iter().zip(&blocks) {
            assert_eq!(found.unwrap(), bytes);
        }
        assert_eq!(store.has_batch(&names).unwrap(), vec![true; names.len()]);
        assert_eq!(store.candidates_per_lookup(), before, "the index was not asked");
        let stats = store.stats().unwrap();
        assert_eq!(stats.block_count, 400);
    }
}

/// A power cut takes the blocks that were not synced. Blocks written in their place have other
/// names, and the old names lead nowhere.
#[test]
fn a_name_that_was_cut_off_is_never_given_again() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let kept = put(&store, &noise(1, 8000));
    store.sync().unwrap();
    let length = arena_bytes(&storage, 0);
    let lost: Vec<_> = (0..40).map(|seed| put(&store, &noise(100 + seed, 8000))).collect();
    store.sync().unwrap();
    drop(store);
    cut(&storage, 0, length);
    let store = open(&storage, 3, WRITER);
    let anew: Vec<_> = (0..40).map(|seed| put(&store, &noise(200 + seed, 8000))).collect();
    // The same is true of the very same bytes.
    let again = put(&store, &noise(100, 8000));
    store.sync().unwrap();
    let marks = |names: &[BlockName]| -> Vec<_> {
        names.iter().map(|name| (placed(name).slot, placed(name).clump)).collect()
    };
    assert!(marks(&lost).iter().all(|mark| !marks(&anew).contains(mark)));
    for store in [store, open(&storage, 4, StoreAccess::Read)] {
        assert_eq!(store.get(&kept).unwrap(), noise(1, 8000));
        assert_eq!(store.get(&again).unwrap(), noise(100, 8000));
        for name in &lost {
            assert!(matches!(store.get(name), Err(GetError::NotFound { .. })), "{name}");
        }
    }
}

/// A reader is open while the writer's machine fails. It continues to read after another writer has
/// written in the same place.
#[test]
fn a_reader_that_remembers_what_was_cut_off_is_not_led_astray() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    put(&store, &noise(1, 8000));
    store.sync().unwrap();
    let length = arena_bytes(&storage, 0);
    let lost: Vec<_> = (0..20).map(|seed| put(&store, &noise(100 + seed, 3000))).collect();
    store.sync().unwrap();
    drop(store);
    let reader = open(&storage, 3, StoreAccess::Read);
    assert_eq!(reader.get(&lost[3]).unwrap(), noise(103, 3000));
    cut(&storage, 0, length);
    let store = open(&storage, 4, WRITER);
    let anew: Vec<_> = (0..20).map(|seed| put(&store, &noise(200 + seed, 3000))).collect();
    store.sync().unwrap();
    reader.follow().unwrap();
    for (seed, name) in anew.iter().enumerate() {
        assert_eq!(reader.get(name).unwrap(), noise(200 + seed as u64, 3000));
    }
    for (seed, name) in lost.iter().enumerate() {
        // It may still know the blocks that it has read. It never returns other bytes.
        match reader.get(name) {
            Ok(bytes) => assert_eq!(bytes, noise(100 + seed as u64, 3000)),
            Err(error) => assert!(matches!(error, GetError::NotFound { .. }), "{error}"),
        }
    }
}

#[test]
fn names_of_other_stores_and_made_up_ones_lead_nowhere() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let here: Vec<_> = (0..50).map(|seed| put(&store, &noise(seed, 4000))).collect();
    store.sync().unwrap();
    let other = default_store();
    let other = open(&other, 77, WRITER);
    let mut strangers: Vec<_> = (0..50).map(|seed| put(&other, &noise(seed, 4000))).collect();
    for name in &here {
        let real = placed(name);
        let ClumpName { session, clump, arena } = real.clump;
        let fakes = [
            PlacedName { slot: real.slot ^ 1, ..real },
            PlacedName { slot: u16::MAX, ..real },
            PlacedName { fingerprint: [0; 8], ..real },
            PlacedName { clump: ClumpName { session, clump: clump + 1, arena }, ..real },
            PlacedName { clump: ClumpName { session, clump, arena: arena + 1 }, ..real },
            PlacedName { clump: ClumpName { session, clump, arena: u32::MAX }, ..real },
            PlacedName { clump: ClumpName { session: [0; 6], clump, arena }, ..real },
        ];
        strangers.extend(fakes.map(|fake| named(fake.score())));
    }
    // Scores of another length, as a malicious tree may have them.
    strangers.push(named(Score::from([9; 32])));
    strangers.push(named(Score::try_from([9; 20].as_slice()).unwrap()));
    for (name, found) in strangers.iter().zip(store.get_batch(&strangers)) {
        assert!(matches!(found, Err(GetError::NotFound { .. })), "{name}");
    }
    assert_eq!(store.has_batch(&strangers).unwrap(), vec![false; strangers.len()]);
    assert!(store.lost_blocks().is_empty(), "nobody is told that they were lost");
}

/// Blocks are equal only if their bytes are equal. A store in which two blocks share a fingerprint
/// returns the bytes that were put. To simulate a collision, blocks are put under names with the
/// fingerprint of other blocks.
#[test]
fn fingerprints_that_collide_cost_time_and_nothing_else() {
    for config in all_kinds() {
        let storage = created(&config);
        let store = open(&storage, 2, WRITER);
        let victim = noise(1, 4096);
        let real = put(&store, &victim);
        store.sync().unwrap();
        // As many blocks as an attacker likes, with the fingerprint of the block that is put again
        // below: as if the hash were broken.
        let attack: Vec<_> = (0..200_u32)
            .map(|number| {
                let clump = ClumpName { session: [9; 6], clump: number, arena: 0 };
                let name = named(PlacedName { slot: 0, clump, ..placed(&real) }.score());
                (name, bytes::Bytes::from(noise(1000 + u64::from(number), 4096)))
            })
            .collect();
        store.put_back(&attack).unwrap();
        store.sync().unwrap();
        drop(store);
        let reader = open(&storage, 3, StoreAccess::Read);
        assert_eq!(reader.get(&real).unwrap(), victim);
        let store = open(&storage, 4, WRITER);
        // A block may get any of the names, but the name leads to its bytes.
        for bytes in [&victim, &noise(1007, 4096), &noise(5, 4096)] {
            let name = put(&store, bytes);
            assert_eq!(store.get(&name).unwrap(), bytes);
            store.sync().unwrap();
            assert_eq!(store.get(&name).unwrap(), bytes);
        }
        let asked = store.candidates_per_lookup();
        assert!(store.session_growth().0 <= 3, "{asked:?}");
    }
}

#[test]
fn what_is_lost_is_told_and_not_taken_for_what_is_put_later() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let blocks: Vec<_> = (0..200).map(|seed| noise(seed, 8000)).collect();
    let names: Vec<_> = blocks.iter().map(|bytes| put(&store, bytes)).collect();
    store.close().unwrap();
    // Half of an arena is gone.
    let disk: &dyn Storage = &storage;
    let file = ArenaId(0).file_name();
    let mut bytes = disk.read_whole(&file, 4 << 20).unwrap();
    bytes[100_000..300_000].fill(0x55);
    disk.replace(&file, &bytes).unwrap();
    let store = open(&storage, 3, WRITER);
    let is_lost = |store: &Store| -> Vec<bool> {
        let found = store.get_batch(&names);
        found.iter().for_each(|found| {
            assert!(!matches!(found, Err(GetError::NotFound { .. } | GetError::Failed { .. })), "{found:?}");
        });
        found.iter().map(Result::is_err).collect()
    };
    let lost = is_lost(&store);
    let lost_count = lost.iter().filter(|lost| **lost).count();
    assert!((10..60).contains(&lost_count), "{lost_count}");
    let again: Vec<_> = blocks.iter().map(|bytes| put(&store, bytes)).collect();
    store.sync().unwrap();
    for ((name, again), (lost, bytes)) in names.iter().zip(&again).zip(lost.iter().zip(&blocks)) {
        assert_eq!(name != again, *lost, "stored anew if it was lost, under another name");
        assert_eq!(store.get(again).unwrap(), bytes);
    }
    assert_eq!(is_lost(&store), lost, "no hash says that these were they");
    // A caller that has the blocks, and can vouch for them, puts them back.
    let back: Vec<_> = names
        .iter()
        .zip(&blocks)
        .zip(&lost)
        .filter(|(_, lost)| **lost)
        .map(|((name, bytes), _)| (*name, bytes::Bytes::copy_from_slice(bytes)))
        .collect();
    store.put_back(&back).unwrap();
    store.sync().unwrap();
    assert_eq!(is_lost(&store), vec![false; names.len()]);
    // A repair writes the arena anew, and keeps all names.
    let check = Checker::of(&store).check_arena(ArenaId(0), true).unwrap();
    assert!(!check.damage.is_empty());
    Mender::of(&store).unwrap().rewrite(&MendPlan::new(&check.damage)).unwrap();
    store.close().unwrap();
    for seed in [4, 5] {
        let store = open(&storage, seed, if seed == 4 { StoreAccess::Read } else { WRITER });
        for (found, bytes) in store.get_batch(&names).into_iter().zip(&blocks) {
            assert_eq!(found.unwrap(), bytes);
        }
        for id in store.arenas().unwrap() {
            assert!(Checker::of(&store).check_arena(id, true).unwrap().damage.is_empty(), "{id}");
        }
        disk.list("index").unwrap().iter().for_each(|file| disk.remove(file).unwrap());
    }
}

#[test]
fn no_key_may_write_without_reading() {
    let storage = default_store();
    let keyring = Keyring::of(&world(&storage, 3)).unwrap();
    let by = keyring.unlock(&secret()).unwrap();
    let other = Secret::KeyFile(Zeroizing::new(vec![8; 32]));
    let cost = PassphraseCost::default();
    let new = |role| NewKey { secret: &other, cost, label: "", role };
    let refused = keyring.add(&by, &new(Role::WriteOnly)).unwrap_err();
    assert!(matches!(refused, KeyError::ByValue) && refused.to_string().contains("by value"));
    keyring.add(&by, &new(Role::AppendOnly)).unwrap();
    let store = Store::open(world(&storage, 4), Some(&other), WRITER, &mut |_| {}).unwrap();
    let name = put(&store, &noise(1, 5000));
    assert_eq!(put(&store, &noise(1, 5000)), name);
}

#[test]
fn the_empty_block_is_everywhere_and_takes_no_room() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let name = put(&store, &[]);
    assert_eq!(name.score.as_bytes(), [0xff; PLACED_SCORE_BYTES]);
    assert_eq!((store.get(&name).unwrap().len(), store.session_growth().0), (0, 0));
    assert_eq!(store.has_batch(&[name]).unwrap(), [true]);
}

/// Many threads put, drafts become clumps in any order, and arenas fill one after the other.
#[test]
#[expect(clippy::disallowed_methods, reason = "this is about threads")]
fn many_threads_fill_many_arenas() {
    let storage = default_store();
    let store = open(&storage, 2, WRITER);
    let contents: Vec<Vec<Vec<u8>>> = (0..4)
        .map(|thread| (0..250).map(|number| noise(thread * 150 + number, 9000 + number as usize)).collect())
        .collect();
    let all: Vec<Vec<BlockName>> = std::thread::scope(|scope| {
        let store = &store;
        let threads: Vec<_> = contents
            .iter()
            .map(|contents| {
                scope.spawn(move || {
                    let mut names = Vec::new();
                    for (number, batch) in contents.chunks(7).enumerate() {
                        let block_type = if number % 3 == 0 { BlockType::DIRECTORY } else { BlockType::DATA };
                        let blocks: Vec<_> = batch.iter().map(|bytes| Block { block_type, bytes }).collect();
                        let scores = store.put_batch(&blocks).unwrap();
                        names.extend(scores.into_iter().map(|score| BlockName { score, block_type }));
                        if number % 10 == 9 {
                            store.sync().unwrap();
                        }
                    }
                    names
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    store.close().unwrap();
    let store = open(&storage, 3, StoreAccess::Read);
    let arena_count = store.arenas().unwrap().len();
    assert!((5..20).contains(&arena_count), "{arena_count}");
    for (names, contents) in all.iter().zip(&contents) {
        for (found, bytes) in store.get_batch(names).into_iter().zip(contents) {
            assert_eq!(found.unwrap(), bytes);
        }
    }
    let ids = store.arenas().unwrap();
    for id in &ids[..ids.len() - 1] {
        // The clumps are at their places, and none begins beyond the limit.
        assert!(Checker::of(&store).check_arena(*id, true).unwrap().damage.is_empty());
        let bytes = arena_bytes(&storage, id.0);
        assert!((450 << 10..1200 << 10).contains(&bytes), "arena {id} has {bytes} bytes");
    }
}

#[test]
fn who_asked_too_early_finds_what_came_later() {
    for config in all_kinds() {
        let storage = created(&config);
        let store = open(&storage, 2, WRITER);
        let lost: Vec<_> = (0..5).map(|seed| put(&store, &noise(seed, 60_000))).collect();
        // The blocks were never synced: a crash leaves an arena without a page.
        drop(store);
        let store = open(&storage, 3, WRITER);
        assert!(lost.iter().all(|name| store.get(name).is_err()));
        let later: Vec<_> = (100..140).map(|seed| put(&store, &noise(seed, 60_000))).collect();
        store.sync().unwrap();
        assert!(store.arenas().unwrap().len() > 1, "the first arena has its seal");
        assert_eq!(store.has_batch(&later).unwrap(), vec![true; later.len()]);
        for (seed, name) in (100..).zip(&later) {
            assert_eq!(store.get(name).unwrap(), noise(seed, 60_000));
        }
    }
}

//! Arenas are damaged, cut and removed. Their parity restores them byte for byte, or they stay
//! unchanged.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_log::{ArenaId, ParityPercent};
use varve_store::{Encryption, PassphraseCost, Secret, Store, StoreAccess, StoreConfig, WriteParityError};
use varve_upkeep::{Checker, DamageKind, MendError, MendPlan, MendWay, Mender, ParityDamage, RepairError};
use varve_world::{FileName, MemoryStorage, Random, SeededRandom, Storage, World, forward_storage};
use zeroize::Zeroizing;

const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "process 42 on here" };
const SHARD_BYTES: usize = 4096;

fn world(storage: &MemoryStorage, seed: u64) -> World {
    World::deterministic(Arc::new(storage.clone()), seed)
}

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

fn config(percent: u8, encryption: Encryption) -> StoreConfig {
    let mut config = StoreConfig::new([5; 16]);
    config.encryption = encryption;
    config.arena_map = varve_log::ArenaMap::new(1 << 20).unwrap();
    config.clump_bytes = varve_log::ClumpBytes::new(128 << 10).unwrap();
    config.parity_percent = ParityPercent::new(percent);
    config
}

fn open(storage: &MemoryStorage, seed: u64, access: StoreAccess<'_>) -> Store {
    Store::open(world(storage, seed), Some(&secret()), access, &mut |_| {}).unwrap()
}

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

fn put(store: &Store, seeds: std::ops::Range<u64>) -> Vec<(BlockName, Vec<u8>)> {
    let made = seeds.map(|seed| {
        let bytes = random_bytes(seed, 30_000);
        let score = store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
        (BlockName { score, block_type: BlockType::DATA }, bytes)
    });
    made.collect()
}

struct Filled {
    storage: MemoryStorage,
    blocks: Vec<(BlockName, Vec<u8>)>,
}

/// A store with some sealed arenas and an open one, closed.
fn filled(config: &StoreConfig) -> Filled {
    let storage = MemoryStorage::new();
    Store::create(&world(&storage, 1), config, Some(&secret()), PassphraseCost::default()).unwrap();
    let store = open(&storage, 2, WRITER);
    let blocks = put(&store, 0..120);
    store.close().unwrap();
    Filled { storage, blocks }
}

fn with_percent(percent: u8) -> Filled {
    filled(&config(percent, Encryption::Aes256Gcm))
}

fn parity_name(arena: u64) -> FileName {
    FileName::new(&format!("parity/{arena:010}.0.parity")).unwrap()
}

fn contents(storage: &MemoryStorage, file: &FileName) -> Vec<u8> {
    storage.contents(file).unwrap_or_else(|| panic!("{file} is there"))
}

fn everything(storage: &MemoryStorage) -> BTreeMap<FileName, Vec<u8>> {
    storage.names().into_iter().map(|name| (name.clone(), contents(storage, &name))).collect()
}

fn assert_reads(store: &Store, blocks: &[(BlockName, Vec<u8>)]) {
    for (name, bytes) in blocks {
        assert_eq!(store.get(name).unwrap(), bytes);
    }
}

fn parity_count(storage: &MemoryStorage) -> u64 {
    open(storage, 900, StoreAccess::Read).stats().unwrap().parity_count
}

#[test]
fn every_sealed_arena_gets_parity_and_no_other() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let Filled { storage, .. } = filled(&config(5, encryption));
        let store = open(&storage, 3, StoreAccess::Read);
        let ids = store.arenas().unwrap();
        assert!(ids.len() >= 4);
        let sealed = &ids[..ids.len() - 1];
        let with_parity: Vec<_> = store.vault().parity().list().unwrap();
        assert_eq!(with_parity, sealed.iter().map(|id| (*id, 0)).collect::<Vec<_>>());
        for id in &ids {
            assert_eq!(Checker::of(&store).check_parity(*id, true).unwrap(), None);
        }
        let stats = store.stats().unwrap();
        assert_eq!(stats.parity_count, sealed.len() as u64);
        let share = stats.parity_bytes as f64 / (sealed.len() << 20) as f64;
        assert!((0.05..0.09).contains(&share), "{share}");
        assert!(storage.names().iter().all(|name| !name.as_str().ends_with(".new")));
    }
    assert_eq!(parity_count(&with_percent(0).storage), 0);
}

#[test]
fn damage_of_every_kind_is_mended_byte_for_byte() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        let Filled { storage, blocks } = filled(&config(5, encryption));
        let file = ArenaId(1).file_name();
        let good = contents(&storage, &file);
        let flipped = |places: &[usize]| {
            let mut bad = good.clone();
            places.iter().for_each(|place| bad[*place] ^= 0x40);
            bad
        };
        let mut burst = good.clone();
        burst[300_000..345_000].fill(0);
        let mut grown = good.clone();
        grown.extend_from_slice(&[7; 5000]);
        let end = good.len();
        for (what, bad, parts) in [
            ("header", flipped(&[0]), 1),
            ("wrapped key", flipped(&[80]), 1),
            ("scattered", flipped(&[5_000, 100_000, 200_000, 700_000]), 4),
            ("burst", burst, 1),
            ("footer", flipped(&[end - 20]), 1),
            ("cut", good[..end - 40_000].to_vec(), 1),
            ("cut by a byte", good[..end - 1].to_vec(), 1),
            ("grown", grown, 0),
        ] {
            storage.set_contents(&file, bad);
            let store = open(&storage, 50, WRITER);
            let mended = Mender::of(&store)
                .unwrap()
                .mend_arena_from_parity(ArenaId(1))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(mended.ranges.len(), parts, "{what}: {mended:?}");
            assert!(contents(&storage, &file) == good, "{what}");
            // The session that has mended the arena can read it, and writes in good order.
            assert_reads(&store, &blocks);
            put(&store, 500..501);
            store.close().unwrap();
            let store = open(&storage, 51, StoreAccess::Read);
            assert_reads(&store, &blocks);
            assert!(Checker::of(&store).check_order().unwrap().is_empty(), "{what}");
            assert!(Checker::of(&store).check_arena(ArenaId(1), true).unwrap().damage.is_empty());
        }
    }
}

#[test]
fn a_whole_arena_comes_back_where_parity_is_as_large() {
    let Filled { storage, blocks } = with_percent(100);
    let before = everything(&storage);
    let sealed = open(&storage, 3, StoreAccess::Read).vault().parity().list().unwrap();
    for (id, _) in sealed {
        storage.remove(&id.file_name()).unwrap();
        let store = open(&storage, 50, WRITER);
        let mended = Mender::of(&store).unwrap().mend_arena_from_parity(id).unwrap();
        assert_eq!(mended.ranges, vec![0..before[&id.file_name()].len() as u64]);
        assert_reads(&store, &blocks);
        drop(store);
        assert!(contents(&storage, &id.file_name()) == before[&id.file_name()]);
    }
}

/// Nothing else is left of them: no file, no ledger that has counted them, no later arena.
#[test]
fn arenas_of_which_only_parity_is_left_are_told_to_be_missing() {
    let Filled { storage, .. } = with_percent(10);
    for arena in storage.list("arenas").unwrap() {
        storage.remove(&arena).unwrap();
    }
    let sealed_count = parity_count(&storage);
    let missing = |store: &Store| -> Vec<u64> {
        let damage = Checker::of(store).check_order().unwrap().into_iter();
        let missing = damage.filter(|damage| matches!(damage.kind, DamageKind::Missing));
        missing.map(|damage| damage.arena.0).collect()
    };
    let all: Vec<_> = (0..sealed_count).collect();
    assert!(sealed_count > 1);
    assert_eq!(missing(&open(&storage, 3, StoreAccess::Read)), all);
    // A file that is not parity proves nothing.
    storage.set_contents(&parity_name(77), vec![7; 10_000]);
    let store = open(&storage, 4, WRITER);
    assert_eq!(missing(&store), all);
    let plan = MendPlan::new(&Checker::of(&store).check_order().unwrap());
    Mender::of(&store).unwrap().rewrite(&plan).unwrap();
    assert_eq!(missing(&store), [0; 0]);
    store.close().unwrap();
    assert_eq!(missing(&open(&storage, 5, StoreAccess::Read)), [0; 0]);
}

#[test]
fn nothing_is_written_where_nothing_is_wrong() {
    let Filled { storage, .. } = with_percent(5);
    let store = open(&storage, 50, WRITER);
    let before = everything(&storage);
    let mended = Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(0)).unwrap();
    assert!(mended.ranges.is_empty() && !mended.cut);
    assert_eq!(everything(&storage), before);
}

#[test]
fn what_cannot_be_mended_stays_as_it_is() {
    let Filled { storage, .. } = with_percent(5);
    let file = ArenaId(1).file_name();
    let good = contents(&storage, &file);
    let mut bad = good.clone();
    // Twelve recovery shards for somewhat less than 1 MiB: damage to every twelfth shard is too
    // much.
    bad.iter_mut().step_by(12 * SHARD_BYTES).for_each(|byte| *byte ^= 1);
    storage.set_contents(&file, bad);
    let refused = |storage: &MemoryStorage, id| {
        let store = open(storage, 50, WRITER);
        let before = everything(storage);
        let error = Mender::of(&store).unwrap().mend_arena_from_parity(id).unwrap_err();
        assert!(everything(storage) == before, "{error}");
        error
    };
    assert!(matches!(refused(&storage, ArenaId(1)), MendError::TooMuchLost { good: 12, .. }));
    storage.remove(&file).unwrap();
    assert!(matches!(refused(&storage, ArenaId(1)), MendError::TooMuchLost { .. }));
    storage.set_contents(&file, contents(&storage, &ArenaId(0).file_name()));
    // Another arena in its place does not help: the loss is as great as with no file.
    assert!(matches!(refused(&storage, ArenaId(1)), MendError::TooMuchLost { .. }));
    storage.remove(&parity_name(1)).unwrap();
    assert!(matches!(refused(&storage, ArenaId(1)), MendError::NoParity { arena: ArenaId(1) }));
    storage.set_contents(&parity_name(1), contents(&storage, &parity_name(0)));
    assert!(matches!(refused(&storage, ArenaId(1)), MendError::Header { .. }));
    let newest = *open(&storage, 50, StoreAccess::Read).arenas().unwrap().last().unwrap();
    assert!(matches!(refused(&storage, newest), MendError::Open { .. }));
    let reader = open(&storage, 50, StoreAccess::Read);
    assert!(matches!(Mender::of(&reader), Err(RepairError::ReadOnly)));
}

#[test]
fn parity_of_damage_is_never_made() {
    let Filled { storage, .. } = with_percent(5);
    let file = ArenaId(1).file_name();
    let mut bad = contents(&storage, &file);
    bad[100_000] ^= 1;
    storage.set_contents(&file, bad);
    storage.remove(&parity_name(1)).unwrap();
    let store = open(&storage, 50, WRITER);
    assert!(matches!(store.intake().unwrap().write_parity(ArenaId(1)), Err(WriteParityError::NotWhole(_))));
    assert_eq!(store.intake().unwrap().write_missing_parity(u64::MAX).unwrap(), 1, "it is still missing");
    assert_eq!(Checker::of(&store).check_parity(ArenaId(1), true).unwrap(), Some(ParityDamage::Missing));
    store.close().unwrap();
    assert_eq!(storage.contents(&parity_name(1)), None);
}

#[test]
fn missing_parity_is_made_up_for_when_the_store_is_closed() {
    let Filled { storage, .. } = with_percent(0);
    let file = FileName::new("config.toml").unwrap();
    let text = String::from_utf8(contents(&storage, &file)).unwrap();
    storage.set_contents(&file, text.replace("parity_percent = 0", "parity_percent = 20").into_bytes());
    let store = open(&storage, 50, WRITER);
    assert_eq!(Checker::of(&store).check_parity(ArenaId(0), false).unwrap(), Some(ParityDamage::Missing));
    let all = store.arenas().unwrap().len() as u64 - 1;
    assert_eq!(
        store.intake().unwrap().write_missing_parity(1).unwrap(),
        all - 1,
        "one at a time, if that is all that may be read"
    );
    store.close().unwrap();
    assert_eq!(parity_count(&storage), all);
    let made = contents(&storage, &parity_name(0));
    assert!(made.len() > 200_000, "20 % of 1 MiB");
    open(&storage, 51, WRITER).close().unwrap();
    assert!(contents(&storage, &parity_name(0)) == made, "what is there is left alone");
}

#[test]
fn parity_that_a_writer_has_not_made_yet_is_not_missed() {
    let Filled { storage, .. } = with_percent(5);
    let closed = open(&storage, 50, StoreAccess::Read).arenas().unwrap();
    let store = open(&storage, 51, WRITER);
    put(&store, 1000..1080);
    store.sync().unwrap();
    let ids = store.arenas().unwrap();
    assert!(ids.len() > closed.len() + 2, "{} {}", ids.len(), closed.len());
    // As if none of this parity had been made yet.
    for id in &ids[closed.len() - 1..] {
        drop(storage.remove(&parity_name(id.0)));
    }
    let reader = open(&storage, 52, StoreAccess::Read);
    for id in &ids {
        assert_eq!(Checker::of(&reader).check_parity(*id, false).unwrap(), None, "arena {id}");
    }
    drop(reader);
    store.close().unwrap();
    assert_eq!(parity_count(&storage), ids.len() as u64 - 1, "it is made up for");
    // From now on the parity is either there or lost.
    storage.remove(&parity_name(ids[closed.len()].0)).unwrap();
    let reader = open(&storage, 53, StoreAccess::Read);
    assert_eq!(
        Checker::of(&reader).check_parity(ids[closed.len()], false).unwrap(),
        Some(ParityDamage::Missing)
    );
}

#[test]
fn damaged_parity_is_reported_and_still_of_use() {
    let Filled { storage, .. } = with_percent(5);
    let (file, good) = (parity_name(1), contents(&storage, &parity_name(1)));
    let (arena_file, arena) = (ArenaId(1).file_name(), contents(&storage, &ArenaId(1).file_name()));
    let damaged = |places: &[usize]| {
        let mut bad = good.clone();
        places.iter().for_each(|place| bad[*place] ^= 1);
        storage.set_contents(&file, bad);
        Checker::of(&open(&storage, 50, StoreAccess::Read)).check_parity(ArenaId(1), true).unwrap()
    };
    // Header, a table of one block, recovery shards, table, header.
    let end = good.len();
    let all = (end - 4 * 4096) as u64 / SHARD_BYTES as u64;
    let expect = |bad_shards, bad_blocks, bad_headers| {
        Some(ParityDamage::Damaged { bad_shards, shards: all, bad_blocks, bad_headers })
    };
    assert_eq!(damaged(&[3]), expect(0, 0, 1));
    assert_eq!(damaged(&[end - 4096]), expect(0, 0, 1));
    assert_eq!(damaged(&[5_000, end - 5_000]), expect(0, 2, 0));
    assert_eq!(damaged(&[20_000, 30_000]), expect(2, 0, 0));
    assert_eq!(damaged(&[3, 5_000, 20_000]), expect(1, 1, 1));
    let mut bad_arena = arena.clone();
    bad_arena[500_000] ^= 1;
    storage.set_contents(&arena_file, bad_arena);
    let store = open(&storage, 51, WRITER);
    assert_eq!(Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(1)).unwrap().ranges.len(), 1);
    assert!(contents(&storage, &arena_file) == arena);
    // Both copies of the table are gone, but the missing part can still be found from the rest.
    assert!(damaged(&[5_000, end - 5_000]).is_some());
    storage.set_contents(&arena_file, arena[..arena.len() - 9_000].to_vec());
    assert!(Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(1)).unwrap().ranges.len() == 1);
    assert!(contents(&storage, &arena_file) == arena);
    store.intake().unwrap().write_parity(ArenaId(1)).unwrap();
    drop(store);
    assert!(contents(&storage, &file) == good, "made anew, it is as it was");
    assert!(matches!(damaged(&[3, end - 4096]), Some(ParityDamage::Unreadable(_))));
}

/// The seal of the last full arena is in no ledger yet. Its parity shows that the seal existed.
#[test]
fn the_last_sealed_arena_is_not_continued_when_its_end_is_lost() {
    let Filled { storage, blocks } = with_percent(10);
    let sealed = open(&storage, 3, StoreAccess::Read).vault().parity().list().unwrap();
    let (last, _) = *sealed.last().unwrap();
    storage.remove(&ArenaId(last.0 + 1).file_name()).unwrap();
    let good = contents(&storage, &last.file_name());
    for cut in [Some(good.len() - 10), Some(good.len() - 60_000), None] {
        let storage = storage.fork();
        match cut {
            Some(length) => storage.set_contents(&last.file_name(), good[..length].to_vec()),
            None => storage.remove(&last.file_name()).unwrap(),
        }
        let store = open(&storage, 50, WRITER);
        put(&store, 700..701);
        store.sync().unwrap();
        assert_eq!(
            storage.contents(&last.file_name()).map(|now| now.len()),
            cut,
            "neither cut nor continued"
        );
        assert!(store.arenas().unwrap().contains(&ArenaId(last.0 + 1)), "another one was begun");
        if cut.is_some() {
            Mender::of(&store).unwrap().mend_arena_from_parity(last).unwrap();
            assert!(contents(&storage, &last.file_name()) == good);
            let kept = blocks.iter().filter(|(name, _)| store.has_batch(&[*name]).unwrap()[0]).count();
            assert!(kept * 30_000 > (last.0 as usize + 1) << 19, "its blocks are found again");
        }
    }
}

/// If the parity was gone when the arena's end was lost, the arena was continued. The old parity
/// comes back too late.
#[test]
fn parity_of_the_past_takes_nothing_away() {
    let Filled { storage, .. } = with_percent(10);
    let sealed = open(&storage, 3, StoreAccess::Read).vault().parity().list().unwrap();
    let (last, _) = *sealed.last().unwrap();
    storage.remove(&ArenaId(last.0 + 1).file_name()).unwrap();
    let (parity, good) = (contents(&storage, &parity_name(last.0)), contents(&storage, &last.file_name()));
    storage.remove(&parity_name(last.0)).unwrap();
    storage.set_contents(&last.file_name(), good[..good.len() - 200_000].to_vec());
    let store = open(&storage, 50, WRITER);
    let added = put(&store, 700..701);
    store.sync().unwrap();
    drop(store);
    let grown = contents(&storage, &last.file_name());
    assert!(grown != good && storage.contents(&ArenaId(last.0 + 1).file_name()).is_none(), "it went on");
    storage.set_contents(&parity_name(last.0), parity);
    let store = open(&storage, 51, WRITER);
    let error = Mender::of(&store).unwrap().mend_arena_from_parity(last).unwrap_err();
    assert!(matches!(error, MendError::TooMuchLost { .. } | MendError::WouldLose { .. }), "{error}");
    assert!(contents(&storage, &last.file_name()) == grown);
    assert_reads(&store, &added);
}

/// Parity is tried first, then a copy. The remaining plan lists the damage that neither could mend.
#[test]
fn a_plan_lists_the_ways_and_mending_leaves_the_rest() {
    let Filled { storage, .. } = with_percent(10);
    let copy = MemoryStorage::new();
    everything(&storage).into_iter().for_each(|(name, bytes)| copy.set_contents(&name, bytes));
    let [flipped, gone, lost] = [0, 1, 2].map(|number| ArenaId(number).file_name());
    let mut bad = contents(&storage, &flipped);
    bad[500_000] ^= 1;
    storage.set_contents(&flipped, bad);
    storage.remove(&gone).unwrap();
    storage.remove(&lost).unwrap();
    copy.remove(&lost).unwrap();

    let (reader, there) = (open(&storage, 50, StoreAccess::Read), open(&copy, 51, StoreAccess::Read));
    let mut damage = Checker::of(&reader).check_order().unwrap();
    damage.extend(Checker::of(&reader).check_arena(ArenaId(0), true).unwrap().damage);
    let before = everything(&storage);
    let mut plan = MendPlan::with_ways(&reader, &damage, &[&there]).unwrap();
    assert_eq!(everything(&storage), before, "a plan changes nothing");
    let ways: Vec<_> = plan.arenas.values().map(|arena| &arena.ways[..]).collect();
    let (parity, from_copy, rewrite) = (MendWay::FromParity, MendWay::FromCopy(0), MendWay::Rewrite);
    assert_eq!(ways, [&[parity, rewrite][..], &[parity, from_copy, rewrite], &[parity, rewrite]]);
    drop(reader);

    let store = open(&storage, 52, WRITER);
    let mended = Mender::of(&store).unwrap().mend(&mut plan, &mut damage, &[&there]).unwrap();
    assert_eq!(mended, BTreeMap::from([(ArenaId(0), parity), (ArenaId(1), from_copy)]));
    assert_eq!(plan.arenas.keys().collect::<Vec<_>>(), [&ArenaId(2)]);
    assert_eq!(Mender::of(&store).unwrap().rewrite(&plan).unwrap().arena_count, 1);
    assert!(Checker::of(&store).check_order().unwrap().is_empty());
}

/// A copy may have an older generation of an arena than the lost one. The parity of the lost
/// generation is then useless.
#[test]
fn what_came_from_an_older_copy_is_mended_from_its_own_parity() {
    let Filled { storage, blocks } = with_percent(10);
    let copy = MemoryStorage::new();
    everything(&storage).into_iter().for_each(|(name, bytes)| copy.set_contents(&name, bytes));
    let (id, file) = (ArenaId(1), ArenaId(1).file_name());
    let good = contents(&storage, &file);
    let mut bad = good.clone();
    bad[500_000] ^= 1;
    storage.set_contents(&file, bad.clone());
    let store = open(&storage, 50, WRITER);
    Mender::of(&store)
        .unwrap()
        .rewrite(&MendPlan::new(&Checker::of(&store).check_arena(id, true).unwrap().damage))
        .unwrap();
    store.close().unwrap();
    let of_arena = |storage: &MemoryStorage| -> Vec<_> {
        let files = open(storage, 51, StoreAccess::Read).vault().parity().list().unwrap().into_iter();
        files.filter(|(arena, _)| *arena == id).map(|(_, generation)| generation).collect()
    };
    assert_eq!(of_arena(&storage), [1]);
    // An index that knows the places of the blocks in the new generation.
    let store = open(&storage, 55, WRITER);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    let newer = FileName::new("parity/0000000001.1.parity").unwrap();
    let parity_of_newer = contents(&storage, &newer);

    storage.remove(&file).unwrap();
    let store = open(&storage, 52, WRITER);
    Mender::of(&store).unwrap().mend_arena_from_copy(id, &open(&copy, 53, StoreAccess::Read)).unwrap();
    assert_eq!(of_arena(&storage), []);
    store.close().unwrap();
    assert!(contents(&storage, &file) == good);
    assert_eq!(of_arena(&storage), [0]);
    assert_reads(&open(&storage, 56, StoreAccess::Read), &blocks);

    // The state after a crash before the newer parity was removed.
    storage.set_contents(&newer, parity_of_newer);
    storage.set_contents(&file, bad);
    let store = open(&storage, 54, WRITER);
    assert_eq!(Mender::of(&store).unwrap().mend_arena_from_parity(id).unwrap().ranges.len(), 1);
    assert!(contents(&storage, &file) == good);
    assert_reads(&store, &blocks);
}

/// A disk that cannot read some sectors of a file until the file is replaced.
struct BadSectors {
    storage: MemoryStorage,
    file: FileName,
    sectors: Vec<u64>,
    was_replaced: std::sync::atomic::AtomicBool,
    /// The error number of these reads.
    error_number: i32,
}

const EIO: i32 = 5;
const EMFILE: i32 = 24;

impl Storage for BadSectors {
    forward_storage!(
        storage: create, append, length, truncate, sync_soon, sync, sync_folder, remove, list, lock
    );

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let sectors = offset / 4096..(offset + into.len() as u64).div_ceil(4096);
        let is_old = *file == self.file && !self.was_replaced.load(Ordering::Relaxed);
        if is_old && self.sectors.iter().any(|sector| sectors.contains(sector)) {
            return Err(io::Error::from_raw_os_error(self.error_number));
        }
        self.storage.read_at(file, offset, into)
    }
    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.was_replaced.fetch_or(*to == self.file, Ordering::Relaxed);
        self.storage.rename(from, to)
    }
}

#[test]
fn sectors_that_cannot_be_read_are_mended() {
    let Filled { storage, blocks } = with_percent(5);
    let file = ArenaId(1).file_name();
    let good = contents(&storage, &file);
    let disk = BadSectors {
        storage: storage.clone(),
        file: file.clone(),
        sectors: vec![20, 21, 100, 170],
        was_replaced: false.into(),
        error_number: EIO,
    };
    let world = World::deterministic(Arc::new(disk), 50);
    let store = Store::open(world, Some(&secret()), WRITER, &mut |_| {}).unwrap();
    assert_eq!(Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(1)).unwrap().ranges.len(), 3);
    assert!(contents(&storage, &file) == good);
    assert_reads(&store, &blocks);
}

#[test]
fn parity_whose_headers_cannot_be_read_is_told_and_made_anew() {
    let Filled { storage, .. } = with_percent(5);
    let (file, good) = (parity_name(1), contents(&storage, &parity_name(1)));
    let opened = |error_number| {
        let disk = BadSectors {
            storage: storage.clone(),
            file: file.clone(),
            sectors: vec![0, good.len() as u64 / 4096 - 1],
            was_replaced: false.into(),
            error_number,
        };
        let world = World::deterministic(Arc::new(disk), 50);
        Store::open(world, Some(&secret()), WRITER, &mut |_| {}).unwrap()
    };
    assert!(
        Checker::of(&opened(EMFILE)).check_arena(ArenaId(1), true).is_err(),
        "that says nothing of the parity"
    );
    let store = opened(EIO);
    let damage = Checker::of(&store).check_arena(ArenaId(1), true).unwrap().damage;
    assert!(matches!(damage[0].kind, DamageKind::Parity(ParityDamage::Withheld { .. })), "{damage:?}");
    assert!(damage[0].kind.is_withheld());
    let plan = MendPlan::new(&damage);
    assert!(plan.arenas.is_empty());
    Mender::of(&store).unwrap().rewrite(&plan).unwrap();
    assert!(Checker::of(&store).check_arena(ArenaId(1), true).unwrap().damage.is_empty());
    assert!(contents(&storage, &file) == good);
}

#[test]
fn a_full_disk_costs_parity_and_nothing_else() {
    let storage = MemoryStorage::new();
    let config = config(100, Encryption::Aes256Gcm);
    Store::create(&world(&storage, 1), &config, Some(&secret()), PassphraseCost::default()).unwrap();
    let store = open(&storage, 2, WRITER);
    let mut blocks = put(&store, 0..30);
    storage.set_bytes_max(Some(1_700_000));
    blocks.extend(put(&store, 30..45));
    store.sync().unwrap();
    drop(store);
    assert_eq!(parity_count(&storage), 0, "there was no room for it");
    storage.set_bytes_max(None);
    let store = open(&storage, 3, WRITER);
    assert_reads(&store, &blocks);
    store.close().unwrap();
    assert_eq!(parity_count(&storage), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Damage up to the limit is mended completely. Beyond the limit nothing changes.
    #[test]
    fn random_damage(seed in any::<u64>(), percent in 1_u8..40, share in 0_usize..160) {
        let storage = sample(percent);
        let (arena_file, parity_file) = (ArenaId(1).file_name(), parity_name(1));
        let (good, parity) = (contents(&storage, &arena_file), contents(&storage, &parity_file));
        let shards = good.len().div_ceil(SHARD_BYTES);
        let limit = (shards * usize::from(percent)).div_ceil(100);
        let count = (limit * share / 100).min(shards);
        let mut numbers: Vec<usize> = (0..shards).collect();
        let keys = random_bytes(seed, shards * 8);
        numbers.sort_by_key(|number| &keys[number * 8..][..8]);
        let mut bad = good.clone();
        for number in &numbers[..count] {
            let place = (number * SHARD_BYTES + usize::from(keys[*number]) * 16).min(good.len() - 1);
            bad[place] ^= 1 << (seed % 8);
        }
        storage.set_contents(&arena_file, bad.clone());
        // A bad header, and a bad block in each table, do not matter: the other copies are there.
        let mut bad_parity = parity.clone();
        bad_parity[usize::from(keys[0])/2] ^= 1;
        bad_parity[4096 + usize::from(keys[1])] ^= 1;
        bad_parity[parity.len() - 4096 - 1 - usize::from(keys[2])] ^= u8::from(shards + limit > 255);
        storage.set_contents(&parity_file, bad_parity);
        let store = open(&storage, seed, WRITER);
        let mended = Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(1));
        let now = contents(&storage, &arena_file);
        if count <= limit {
            prop_assert!(mended.is_ok(), "{:?}", mended);
            prop_assert!(now == good);
        } else {
            let too_much = matches!(mended, Err(MendError::TooMuchLost { lost, good, .. }) if lost == count && good == limit);
            prop_assert!(too_much, "{:?}, limit {limit}, count {count}", mended);
            prop_assert!(now == bad);
        }
    }

    /// For any change to a parity file, mending leaves the arena either as it was sealed, or as it
    /// was found.
    #[test]
    fn hostile_parity_files(seed in any::<u64>(), flips in 0_usize..60, cut in any::<prop::sample::Index>(), is_cut in any::<bool>()) {
        let storage = sample(10);
        let (arena_file, parity_file) = (ArenaId(1).file_name(), parity_name(1));
        let good = contents(&storage, &arena_file);
        let mut bad = good.clone();
        bad[(seed % good.len() as u64) as usize] ^= 0x80;
        storage.set_contents(&arena_file, bad.clone());
        let mut parity = contents(&storage, &parity_file);
        for flip in random_bytes(seed, flips * 4).chunks(4) {
            let place = u32::from_le_bytes(flip.try_into().unwrap()) as usize % parity.len();
            parity[place] ^= 1 << (flip[0] % 8);
        }
        if is_cut {
            parity.truncate(cut.index(parity.len()));
        }
        storage.set_contents(&parity_file, parity);
        let store = open(&storage, seed, WRITER);
        let mended = Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(1));
        let now = contents(&storage, &arena_file);
        prop_assert!(if mended.is_ok() { now == good } else { now == bad }, "{:?}", mended);
        Checker::of(&store).check_parity(ArenaId(1), true).unwrap();
    }
}

/// A store with `percent` of parity, made once for each percentage.
#[expect(clippy::disallowed_types, reason = "this crate has no lock, and so no parking_lot")]
fn sample(percent: u8) -> MemoryStorage {
    static MADE: std::sync::Mutex<BTreeMap<u8, MemoryStorage>> = std::sync::Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    made.entry(percent).or_insert_with(|| with_percent(percent).storage).fork()
}

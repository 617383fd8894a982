//! Blocks that differ little from the ones that they have replaced are stored as deltas.

use varve_block::{Block, BlockName, BlockStore, BlockType, GetError, PutHints, Score};
use varve_log::{ArenaId, ArenaMap, ArenaVersion};
use varve_store::{
    CompareMode, Encryption, Keyring, NewKey, PassphraseCost, Role, ScoreAlgorithm, Secret, Store,
    StoreAccess, StoreConfig,
};
use varve_upkeep::{Checker, DamageKind, MendPlan, Mender};
use varve_world::{MemoryStorage, Random, SeededRandom};
use zeroize::Zeroizing;

use crate::memory_store::{WRITER, created, open, secret, world};

const BLOCK_BYTES: usize = 16 << 10;
const BLOCK_COUNT: u64 = 40;

fn config() -> StoreConfig {
    StoreConfig { arena_map: ArenaMap::new(1 << 20).unwrap(), deltas: true, ..StoreConfig::new([5; 16]) }
}

/// Block `number` as it is on a day. A day changes eight bytes of most blocks.
fn block(number: u64, day: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    SeededRandom::new(number).fill(&mut bytes).unwrap();
    if !number.is_multiple_of(5) {
        bytes[5000..5008].copy_from_slice(&day.to_le_bytes());
    }
    bytes
}

fn day(day: u64) -> Vec<Vec<u8>> {
    (0..BLOCK_COUNT).map(|number| block(number, day)).collect()
}

/// Puts the blocks of a day, which replace those in `earlier`.
fn put(store: &Store, blocks: &[Vec<u8>], earlier: &[Score]) -> Vec<Score> {
    let earlier: Vec<_> = earlier.iter().copied().map(Some).collect();
    let blocks: Vec<_> = blocks.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
    store.put_batch_with(&blocks, PutHints { replaced: &earlier, ..PutHints::default() }).unwrap()
}

fn leaf(score: Score) -> BlockName {
    BlockName { score, block_type: BlockType::DATA }
}

/// Takes some days, each in a session of its own. Returns the scores of each.
fn taken(storage: &MemoryStorage, days: u64) -> Vec<Vec<Score>> {
    let mut all: Vec<Vec<Score>> = Vec::new();
    for number in 0..days {
        let store = open(storage, 10 + number, WRITER);
        all.push(put(&store, &day(number), all.last().map_or(&[], Vec::as_slice)));
        store.close().unwrap();
    }
    all
}

/// The blocks that are stored as deltas, each with its base.
fn deltas(store: &Store) -> Vec<(Score, Score)> {
    let pages = store.arenas().unwrap().into_iter().flat_map(|id| store.pages_in_arena(id).unwrap());
    let blocks = pages.flat_map(|page| page.unwrap().blocks().collect::<Vec<_>>());
    blocks.filter_map(|block| Some((block.name.score, block.base?))).collect()
}

fn has_all(store: &Store, scores: &[Vec<Score>]) {
    for (number, scores) in (0..).zip(scores) {
        let names: Vec<_> = scores.iter().map(|score| leaf(*score)).collect();
        for (found, expected) in store.get_batch(&names).into_iter().zip(day(number)) {
            assert_eq!(found.unwrap(), expected, "day {number}");
        }
    }
}

fn file_bytes(store: &Store, storage: &MemoryStorage) -> u64 {
    let length = |id: &ArenaId| storage.contents(&id.file_name()).unwrap().len() as u64;
    store.arenas().unwrap().iter().map(length).sum()
}

/// The place of some bytes in an arena.
fn place_of(storage: &MemoryStorage, id: ArenaId, wanted: &[u8]) -> Option<usize> {
    storage.contents(&id.file_name())?.windows(wanted.len()).position(|bytes| bytes == wanted)
}

fn damage(store: &Store) -> Vec<varve_upkeep::Damage> {
    let checker = Checker::of(store);
    let ids = store.arenas().unwrap();
    ids.into_iter().flat_map(|id| checker.check_arena(id, true).unwrap().damage).collect()
}

#[test]
fn a_day_of_small_changes_takes_little_space() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        for score in [ScoreAlgorithm::Blake3, ScoreAlgorithm::Sha1] {
            let storage = created(&StoreConfig { encryption, score, ..config() });
            let scores = taken(&storage, 4);
            let store = open(&storage, 50, StoreAccess::Read);
            has_all(&store, &scores);
            assert!(damage(&store).is_empty());
            // Every base is a block of the first day, which is stored whole.
            let deltas = deltas(&store);
            assert_eq!(deltas.len() as u64, 3 * (BLOCK_COUNT - BLOCK_COUNT / 5));
            assert!(deltas.iter().all(|(_, base)| scores[0].contains(base)));
            let bytes: u64 = file_bytes(&store, &storage);
            assert!(bytes < BLOCK_COUNT * 16_384 + 120_000, "{encryption:?} {score:?}: {bytes} bytes");
        }
    }
}

/// Programs from before deltas read everything that was stored before the first delta.
#[test]
fn deltas_are_only_in_arenas_that_say_so() {
    let storage = created(&config());
    let store = open(&storage, 2, WRITER);
    let first = put(&store, &day(0), &[]);
    store.close().unwrap();
    let versions = |storage| {
        let store = open(storage, 60, StoreAccess::Read);
        let log = store.vault().log();
        let version = |id: ArenaId| log.open_arena(id).unwrap().header().version();
        store.arenas().unwrap().into_iter().map(version).collect::<Vec<_>>()
    };
    assert_eq!(versions(&storage), [ArenaVersion::Framed]);
    let store = open(&storage, 3, WRITER);
    put(&store, &day(1), &first);
    store.close().unwrap();
    assert_eq!(versions(&storage), [ArenaVersion::Framed, ArenaVersion::Deltas]);
    // The next session goes on in the same arena.
    let store = open(&storage, 4, WRITER);
    put(&store, &day(2), &first);
    store.close().unwrap();
    assert_eq!(versions(&storage), [ArenaVersion::Framed, ArenaVersion::Deltas]);
}

#[test]
fn without_the_setting_and_by_value_there_are_no_deltas() {
    let off = StoreConfig { deltas: false, ..config() };
    let by_value = StoreConfig { compare: CompareMode::Value, deltas: false, ..config() };
    for config in [off, by_value] {
        let storage = created(&config);
        let scores = taken(&storage, 2);
        let store = open(&storage, 50, StoreAccess::Read);
        has_all(&store, &scores);
        assert_eq!(deltas(&store), []);
    }
}

#[test]
fn a_delta_is_no_base() {
    let storage = created(&config());
    let store = open(&storage, 2, WRITER);
    let first = put(&store, &day(0), &[]);
    store.sync().unwrap();
    // In one session: a block that no page names yet is no base either.
    let second = put(&store, &day(1), &first);
    let third = put(&store, &day(2), &second);
    store.sync().unwrap();
    let fourth = put(&store, &day(3), &third);
    store.sync().unwrap();
    has_all(&store, &[first.clone(), second.clone(), third.clone(), fourth]);
    let deltas = deltas(&store);
    assert!(deltas.iter().all(|(_, base)| first.contains(base) || third.contains(base)));
    assert!(deltas.iter().all(|(_, base)| deltas.iter().all(|(delta, _)| delta != base)));
}

/// A machine that may only write counts on the arenas in which its data is, so it needs whole
/// blocks there.
#[test]
fn a_key_that_cannot_read_relies_on_no_delta() {
    let storage = created(&config());
    let scores = taken(&storage, 2);
    let keyring = Keyring::of(&world(&storage, 70)).unwrap();
    let by = keyring.unlock(&secret()).unwrap();
    let writer = Secret::KeyFile(Zeroizing::new(vec![8; 32]));
    let cost = PassphraseCost::default();
    keyring.add(&by, &NewKey { secret: &writer, cost, label: "", role: Role::WriteOnly }).unwrap();
    let changed = BLOCK_COUNT - BLOCK_COUNT / 5;
    for (seed, new_blocks) in [(71, changed), (72, 0)] {
        let store = Store::open(world(&storage, seed), Some(&writer), WRITER, &mut |_| {}).unwrap();
        assert_eq!(put(&store, &day(1), &scores[0]), scores[1]);
        assert_eq!(store.stats().unwrap().new_block_count, new_blocks);
        store.close().unwrap();
    }
    let store = open(&storage, 73, StoreAccess::Read);
    has_all(&store, &scores);
    assert!(damage(&store).is_empty());
}

/// A lost base takes its deltas with it. Both are reported, and stored whole when they are put
/// again. A repair drops what is lost, and nothing else.
#[test]
fn a_lost_base_is_noticed_and_healed() {
    let storage = created(&StoreConfig { encryption: Encryption::None, ..config() });
    let scores = taken(&storage, 3);
    let wanted = &block(7, 0)[100..132];
    let find = |id| Some((id, place_of(&storage, id, wanted)?));
    let (id, place) = (0..9).map(ArenaId).find_map(find).unwrap();
    let mut bytes = storage.contents(&id.file_name()).unwrap();
    bytes[place] ^= 1;
    storage.set_contents(&id.file_name(), bytes);

    let store = open(&storage, 60, WRITER);
    for day in &scores {
        assert!(matches!(store.get(&leaf(day[7])), Err(GetError::Damaged { .. })));
    }
    let found = damage(&store);
    assert_eq!(found.iter().filter(|damage| damage.blocks.contains(&leaf(scores[2][7]))).count(), 1);
    assert!(found.iter().all(|damage| matches!(damage.kind, DamageKind::Unreadable(_))));
    let lost: Vec<_> = found.iter().flat_map(|damage| damage.blocks.clone()).collect();

    // The blocks are put again, as in the next snapshot.
    put(&store, &day(0), &[]);
    store.sync().unwrap();
    put(&store, &day(2), &scores[0]);
    store.close().unwrap();
    let store = open(&storage, 61, WRITER);
    assert_eq!(store.get(&leaf(scores[0][7])).unwrap(), block(7, 0));
    assert_eq!(store.get(&leaf(scores[1][7])).unwrap(), block(7, 1), "its base is there again");
    assert_eq!(store.get(&leaf(scores[2][7])).unwrap(), block(7, 2));

    let found = damage(&store);
    let plan = MendPlan::new(&found);
    Mender::of(&store).unwrap().rewrite(&plan).unwrap();
    store.close().unwrap();
    let store = open(&storage, 62, WRITER);
    assert!(damage(&store).is_empty());
    assert!(!lost.is_empty());
    has_all(&store, &scores);
}

/// A salvaged arena keeps its deltas as they are, and their pages name the bases again.
#[test]
fn salvaged_deltas_stay_deltas() {
    let storage = created(&StoreConfig { encryption: Encryption::None, ..config() });
    let scores = taken(&storage, 3);
    let before = deltas(&open(&storage, 40, StoreAccess::Read));
    let store = open(&storage, 41, WRITER);
    let with_deltas = store.arenas().unwrap().pop().unwrap();
    let last_page = store.pages_in_arena(with_deltas).unwrap().last().unwrap().unwrap();
    let place = last_page.clumps().last().unwrap().end();
    drop(store);
    // The page behind the last clump.
    let mut bytes = storage.contents(&with_deltas.file_name()).unwrap();
    bytes[usize::try_from(place).unwrap() + 80] ^= 1;
    storage.set_contents(&with_deltas.file_name(), bytes);

    let store = open(&storage, 42, WRITER);
    let found = damage(&store);
    assert!(!found.is_empty());
    Mender::of(&store).unwrap().rewrite(&MendPlan::new(&found)).unwrap();
    store.close().unwrap();
    let store = open(&storage, 43, WRITER);
    has_all(&store, &scores);
    assert!(damage(&store).is_empty());
    assert_eq!(deltas(&store).len(), before.len());
}

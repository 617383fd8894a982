use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use varve_sim::{Fault, SimDisk, Strike};
use varve_world::MemoryStorage;

use super::*;

/// Small, so that segments are removed.
const BUDGET: u64 = 20_000;

fn open(storage: &Arc<dyn Storage>) -> StoredCache {
    let budget = CacheBudget::with_segments(BUDGET, BUDGET / SEGMENT_COUNT);
    StoredCache::open(Arc::clone(storage), budget, "test").unwrap()
}

fn stored(number: u16) -> Vec<u8> {
    let length = 100 + usize::from(number) * 37 % 900;
    number.to_le_bytes().iter().copied().cycle().take(length).collect()
}

fn block(number: u16) -> (ObjectName, Vec<u8>) {
    (ObjectName::of(&stored(number)), stored(number))
}

fn put(cache: &StoredCache, number: u16) {
    let (name, stored) = block(number);
    cache.put(&name, &stored);
}

fn has(cache: &StoredCache, number: u16) -> bool {
    let (name, stored) = block(number);
    let is_same = cache.get(&name, |got| got.bytes() == stored);
    assert_ne!(is_same, Some(false), "other bytes of {number}");
    is_same.is_some()
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

#[test]
fn blocks_come_back_after_a_restart() {
    let storage = memory();
    let cache = open(&storage);
    (0..10).for_each(|number| put(&cache, number));
    assert!((0..10).all(|number| has(&cache, number)) && !has(&cache, 10));
    let bytes = cache.figures().bytes;
    put(&cache, 3);
    assert_eq!(cache.figures(), CacheFigures { blocks: 10, bytes, damaged: 0, removed_segments: 0 });
    drop(cache);
    let cache = open(&storage);
    assert!((0..10).all(|number| has(&cache, number)));
    assert_eq!(cache.figures().bytes, bytes);
}

#[test]
fn two_caches_never_share_a_folder() {
    let storage = memory();
    let first = open(&storage);
    let budget = CacheBudget::new(0);
    let second = StoredCache::open(Arc::clone(&storage), budget, "another").map(drop);
    assert!(matches!(second, Err(OpenCacheError::InUse { holder }) if holder == "test"));
    drop(first);
    StoredCache::open(storage, budget, "another").map(drop).unwrap();
}

#[test]
fn used_blocks_stay_longer_and_favoured_ones_longest() {
    let storage = memory();
    let cache = open(&storage);
    cache.favour([block(0).0, block(1).0]);
    for number in 0..400 {
        put(&cache, number);
        assert!(cache.figures().bytes <= BUDGET + 2000, "{:?}", cache.figures());
        // Block 2 is used all the time, and block 3 never.
        assert!(has(&cache, 2) || number < 2, "after {number}");
    }
    assert!(has(&cache, 0) && has(&cache, 1) && has(&cache, 399));
    assert!(!has(&cache, 3) && !has(&cache, 100));
    assert!(cache.figures().removed_segments > 10);
}

#[test]
fn a_full_disk_ends_the_writing_and_not_the_reading() {
    let disk = SimDisk::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let cache = open(&storage);
    (0..5).for_each(|number| put(&cache, number));
    disk.arm(&[Strike { after: 0, fault: Fault::DiskFull }]);
    (5..10).for_each(|number| put(&cache, number));
    disk.behave();
    put(&cache, 10);
    assert!((0..5).all(|number| has(&cache, number)) && !has(&cache, 10));
    drop(cache);
    let cache = open(&storage);
    put(&cache, 10);
    assert!((0..5).all(|number| has(&cache, number)) && has(&cache, 10), "the next process writes again");
}

#[test]
fn a_damaged_record_is_forgotten_and_put_again() {
    let storage = memory();
    let cache = open(&storage);
    (0..3).for_each(|number| put(&cache, number));
    let file = segment_file(1);
    let mut bytes = storage.read_whole(&file, 1 << 20).unwrap();
    let at = CACHE_RECORD_HEADER_BYTES + stored(0).len() + CACHE_RECORD_HEADER_BYTES + 5;
    bytes[at] ^= 1;
    storage.create_anew(&file).unwrap();
    storage.append(&file, &bytes).unwrap();
    assert!(has(&cache, 0) && !has(&cache, 1) && has(&cache, 2));
    assert_eq!(cache.figures().damaged, 1);
    put(&cache, 1);
    assert!(has(&cache, 1));
    drop(cache);
    assert!((0..3).all(|number| has(&open(&storage), number)));
}

#[derive(Debug, Clone)]
enum CacheStep {
    Put(u16),
    Get(u16),
    Favour(u16),
    Restart,
    PowerCut,
    /// Flips a bit somewhere in a file.
    Rot(usize),
}

fn step() -> impl Strategy<Value = CacheStep> {
    prop_oneof![
        12 => (0_u16..80).prop_map(CacheStep::Put),
        8 => (0_u16..80).prop_map(CacheStep::Get),
        1 => (0_u16..80).prop_map(CacheStep::Favour),
        1 => Just(CacheStep::Restart),
        1 => Just(CacheStep::PowerCut),
        1 => any::<usize>().prop_map(CacheStep::Rot),
    ]
}

proptest! {
    #[test]
    fn the_cache_agrees_with_a_map(seed: u64, steps in proptest::collection::vec(step(), 1..300)) {
        let disk = SimDisk::new(seed);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let mut cache = open(&storage);
        // The blocks that must be there: nothing was removed, lost or damaged since they were put.
        let mut certain = BTreeMap::new();
        let (mut removed, mut has_rotted) = (0, false);
        for step in steps {
            match step {
                CacheStep::Put(number) => {
                    // A reader puts a block that it has looked for in vain. So a damaged record is
                    // forgotten before.
                    if !has(&cache, number) {
                        put(&cache, number);
                    }
                    certain.insert(number, ());
                }
                CacheStep::Get(number) => {
                    let is_there = has(&cache, number);
                    prop_assert!(is_there || !certain.contains_key(&number), "{number} is gone");
                }
                CacheStep::Favour(number) => cache.favour([block(number).0]),
                CacheStep::Restart => {
                    drop(cache);
                    cache = open(&storage);
                    removed = 0;
                    // Records after a damaged header in its segment are not found again.
                    if std::mem::take(&mut has_rotted) {
                        certain.clear();
                    }
                }
                CacheStep::PowerCut => {
                    disk.cut_power();
                    drop(cache);
                    disk.restart();
                    cache = open(&storage);
                    (certain, removed) = (BTreeMap::new(), 0);
                }
                CacheStep::Rot(at) => {
                    let files = storage.list(FOLDER).unwrap();
                    if let Some(file) = files.get(at % files.len().max(1)) {
                        let mut bytes = storage.read_whole(file, 1 << 20).unwrap();
                        if let Some(at) = at.checked_rem(bytes.len()) {
                            bytes[at] ^= 0x10;
                            storage.create_anew(file).unwrap();
                            storage.append(file, &bytes).unwrap();
                        }
                    }
                    certain.clear();
                    has_rotted = true;
                }
            }
            let figures = cache.figures();
            if figures.removed_segments != removed {
                (certain, removed) = (BTreeMap::new(), figures.removed_segments);
            }
            prop_assert!(figures.bytes <= BUDGET + 4000, "{figures:?}");
        }
    }
}

//! The contract of every index: one suite, which both kinds pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_block::{Fingerprint, LogAddress};
use varve_index::{DiskIndex, DiskIndexSettings, MemoryIndex, NearAddresses, ScoreIndex};
use varve_world::MemoryStorage;

/// So little memory that an entry can be in every kind of place.
const MEMORY_BYTES: u64 = 64 << 10;

fn on_disk(memory_bytes: u64) -> ScoreIndex {
    let settings = DiskIndexSettings { memory_bytes, expected_blocks: 1000, fingerprint_bits: 48 };
    DiskIndex::new(Arc::new(MemoryStorage::new()), [1; 32], settings, Some([2; 16])).into()
}

fn every_kind() -> [(&'static str, ScoreIndex); 3] {
    [
        ("in memory", MemoryIndex::new().into()),
        ("on disk", on_disk(MEMORY_BYTES)),
        ("on disk, with plenty of memory", on_disk(64 << 20)),
    ]
}

fn fingerprint(number: u64) -> Fingerprint {
    Fingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn address(granule: u64) -> LogAddress {
    LogAddress::new(granule).unwrap()
}

/// Inserts a page at a time, as the store does.
fn insert(index: &ScoreIndex, entries: &[(Fingerprint, LogAddress)]) -> u64 {
    let mut added = 0;
    for page in entries.chunks(500) {
        added += index.insert_all(page).unwrap();
        if let Some(disk) = index.disk().filter(|disk| disk.is_due()) {
            disk.begin(None);
        }
    }
    added
}

/// All addresses, found in the two ways of asking. The two must not contradict each other.
fn places(index: &ScoreIndex, fingerprint: Fingerprint) -> BTreeSet<LogAddress> {
    let found = index.candidates(fingerprint);
    assert!(found.is_complete);
    let all: BTreeSet<_> = found.addresses.into_iter().collect();
    match index.near(fingerprint) {
        NearAddresses::All(near) => assert_eq!(near.into_iter().collect::<BTreeSet<_>>(), all),
        NearAddresses::Some(near) => assert!(near.iter().all(|place| all.contains(place))),
    }
    all
}

#[test]
fn what_was_inserted_is_found_and_little_else() {
    for (kind, index) in every_kind() {
        assert!(index.is_empty(), "{kind}");
        assert!(places(&index, fingerprint(1)).is_empty(), "{kind}");
        let entries: Vec<_> = (0..50_000).map(|number| (fingerprint(number), address(number / 7))).collect();
        assert_eq!(insert(&index, &entries), 50_000, "{kind}");
        assert_eq!(index.len(), 50_000, "{kind}");
        for (fingerprint, address) in &entries {
            assert!(places(&index, *fingerprint).contains(address), "{kind}: {fingerprint:?}");
        }
        let strangers = (50_000..60_000).filter(|number| !places(&index, fingerprint(*number)).is_empty());
        assert!(strangers.count() < 10, "{kind}");
    }
}

#[test]
fn a_fingerprint_may_have_many_places_and_a_place_many_fingerprints() {
    for (kind, index) in every_kind() {
        let entries: Vec<_> =
            (0..6000).map(|number| (fingerprint(number % 300), address(number * 1000 % 977))).collect();
        insert(&index, &entries);
        let mut model: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (fingerprint, address) in &entries {
            model.entry(*fingerprint).or_default().insert(*address);
        }
        for (fingerprint, expected) in &model {
            assert!(places(&index, *fingerprint).is_superset(expected), "{kind}");
        }
    }
}

#[test]
fn what_is_inserted_again_is_there_once() {
    for (kind, index) in every_kind() {
        let entries: Vec<_> = (0..300).map(|number| (fingerprint(number), address(number))).collect();
        assert_eq!((insert(&index, &entries), insert(&index, &entries)), (300, 0), "{kind}");
        assert_eq!(places(&index, fingerprint(7)).len(), 1, "{kind}");
    }
}

#[test]
fn addresses_may_be_as_far_as_a_log_reaches() {
    for (kind, index) in every_kind() {
        let granules = (0..LogAddress::BITS).flat_map(|bits| [(1 << bits) - 1, 1 << bits]);
        let granules: Vec<_> = granules.chain([LogAddress::END - 1]).collect();
        let entries: Vec<_> =
            granules.iter().map(|granule| (fingerprint(*granule), address(*granule))).collect();
        insert(&index, &entries);
        insert(
            &index,
            &(1 << 50..(1 << 50) + 9000).map(|n| (fingerprint(n), address(5))).collect::<Vec<_>>(),
        );
        for (fingerprint, address) in entries {
            assert!(places(&index, fingerprint).contains(&address), "{kind}");
        }
    }
}

#[test]
fn many_may_ask_while_one_inserts() {
    for (kind, index) in every_kind() {
        let entries: Vec<_> = (0..30_000).map(|number| (fingerprint(number), address(number))).collect();
        insert(&index, &entries[..10_000]);
        #[expect(clippy::disallowed_methods, reason = "a test may have threads")]
        std::thread::scope(|scope| {
            for start in 0..3 {
                let (index, entries) = (&index, &entries);
                scope.spawn(move || {
                    for (fingerprint, address) in entries[..10_000].iter().skip(start).step_by(7) {
                        assert!(index.candidates(*fingerprint).addresses.contains(address), "{kind}");
                    }
                });
            }
            insert(&index, &entries[10_000..]);
        });
        assert!(entries.iter().all(|(fingerprint, address)| places(&index, *fingerprint).contains(address)));
    }
}

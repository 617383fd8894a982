use std::sync::Arc;

use varve_block::{BlockStore, contract};
use varve_proxy::{BOUNDED_BYTES_MIN, BoundedStore, OpenBoundedError};
use varve_sim::SimDisk;
use varve_world::{MemoryStorage, Storage, World};

use crate::behind::{bytes_of, data, name_of};

fn open(storage: &(impl Storage + Clone + 'static), bytes: u64) -> Result<BoundedStore, OpenBoundedError> {
    BoundedStore::open(World::deterministic(Arc::new(storage.clone()), 7), bytes, "a test")
}

#[test]
fn a_bounded_store_keeps_the_contract_as_long_as_there_is_room() {
    contract::check(&mut || open(&MemoryStorage::new(), 64 << 20).unwrap());
}

#[test]
fn what_is_used_stays_and_what_is_not_used_goes() {
    let storage = MemoryStorage::new();
    let store = open(&storage, BOUNDED_BYTES_MIN).unwrap();
    let bytes = |number: u64| bytes_of(number, 10_000);
    let mut most = 0;
    for number in 0..4000 {
        store.put(data(&bytes(number))).unwrap();
        // The first ten blocks are read all the time.
        if number >= 10 && number % 50 == 0 {
            for used in 0..10 {
                assert_eq!(store.get(&name_of(&bytes(used))).unwrap(), bytes(used), "after {number}");
            }
        }
        most = most.max(store.used());
    }
    assert!(most <= BOUNDED_BYTES_MIN + (2 << 20), "{most} bytes");
    let is_there = |number: u64| store.get(&name_of(&bytes(number))).is_ok();
    assert!(!is_there(20), "what nobody has read is gone");
    assert!((3900..4000).all(is_there), "what is new is there");
    store.sync().unwrap();
    drop(store);
    let store = open(&storage, BOUNDED_BYTES_MIN).unwrap();
    assert_eq!(store.get(&name_of(&bytes(3999))).unwrap(), bytes(3999), "and there when it is opened again");
    assert!(most >= store.used());
}

#[test]
fn it_opens_after_any_power_cut_and_gives_no_wrong_bytes() {
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        for life in 0..3 {
            let after = 40 + 97 * seed % 600 + 13 * life;
            disk.arm(&[varve_sim::Strike { after, fault: varve_sim::Fault::PowerCut }]);
            if let Ok(store) = open(&disk, BOUNDED_BYTES_MIN) {
                for number in 0..1500 {
                    if store.put(data(&bytes_of(number, 9000))).is_err() {
                        break;
                    }
                }
            }
            if !disk.is_down() {
                disk.cut_power();
            }
            disk.restart();
            disk.behave();
            let store = open(&disk, BOUNDED_BYTES_MIN).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for number in 0..1500 {
                if let Ok(found) = store.get(&name_of(&bytes_of(number, 9000))) {
                    assert_eq!(found, bytes_of(number, 9000));
                }
            }
        }
    }
}

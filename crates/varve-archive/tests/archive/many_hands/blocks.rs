//! Many threads put, get and sync while others read. Data that any sync has acknowledged exists.

use parking_lot::Mutex;
use varve_block::{Block, BlockName, BlockStore, BlockType, GetError};
use varve_sim::{Fault, SeededDraw, SimDisk, Strike};
use varve_store::{PassphraseCost, Store, StoreAccess};
use varve_upkeep::{CheckArenaError, Checker, Damage};
use varve_world::{Random, SeededRandom};

use super::{WRITER, config, is_damage, secret, seeds, world};

const HANDS: u64 = 4;

fn open(disk: &SimDisk, seed: u64, access: StoreAccess<'_>) -> Store {
    Store::open(world(disk, seed), Some(&secret()), access, &mut |_| {}).unwrap()
}

/// The bytes for a number. All threads put the low numbers.
fn content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 40 + usize::try_from(number % 97 * 180).unwrap()];
    SeededRandom::new(number).fill(&mut bytes).unwrap();
    bytes
}

#[derive(Default)]
struct Promised {
    /// Blocks that were put before a successful sync.
    durable: Vec<(BlockName, u64)>,
}

/// Puts, gets and syncs until the store refuses more.
fn work(store: &Store, seed: u64, hand: u64, promised: &Mutex<Promised>) {
    let mut draw = SeededDraw::new(seed * 100 + hand);
    let (mut put, mut synced) = (Vec::new(), 0);
    for _ in 0..120 {
        let numbers: Vec<u64> = (0..1 + draw.below(12))
            .map(|_| if draw.once_in(3) { draw.below(60) } else { 1000 * (hand + 1) + draw.below(900) })
            .collect();
        let contents: Vec<_> = numbers.iter().map(|number| content(*number)).collect();
        let blocks: Vec<_> =
            contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        let Ok(scores) = store.put_batch(&blocks) else { return };
        let name = |score| BlockName { score, block_type: BlockType::DATA };
        put.extend(scores.into_iter().map(name).zip(numbers));
        let (name, number) = put[draw.index(put.len())];
        match store.get(&name) {
            Ok(bytes) => {
                assert!(bytes == content(number), "seed {seed}: {name} has other bytes than were put")
            }
            Err(GetError::NotFound { .. }) => panic!("seed {seed}: {name} was put, and is not found"),
            Err(_) => {}
        }
        if draw.once_in(4) {
            if store.sync().is_err() {
                return;
            }
            promised.lock().durable.extend(&put[synced..]);
            synced = put.len();
        }
    }
}

/// Reads blocks that were acknowledged before the reader began.
#[expect(clippy::disallowed_methods, reason = "this is about threads")]
fn read(disk: &SimDisk, seed: u64, promised: &Mutex<Promised>) {
    let promise = |draw: &mut SeededDraw| -> Vec<(BlockName, u64)> {
        let durable = &promised.lock().durable;
        (0..durable.len().min(20)).map(|_| durable[draw.index(durable.len())]).collect()
    };
    let mut draw = SeededDraw::new(seed);
    let wanted = promise(&mut draw);
    let opened = Store::open(world(disk, seed), Some(&secret()), StoreAccess::Read, &mut |_| {});
    let Ok(store) = opened else { return };
    let is_there = |wanted: &[(BlockName, u64)]| {
        let names: Vec<_> = wanted.iter().map(|(name, _)| *name).collect();
        for ((name, number), found) in wanted.iter().zip(store.get_batch(&names)) {
            match found {
                Ok(bytes) => {
                    assert!(bytes == content(*number), "seed {seed}: {name} reads as something else")
                }
                Err(GetError::NotFound { .. }) if !disk.is_down() => {
                    panic!("seed {seed}: {name} was synced, and a reader does not find it")
                }
                Err(_) => {}
            }
        }
    };
    // One thread of this reader follows the writer while another reads.
    std::thread::scope(|threads| {
        threads.spawn(|| (0..3).for_each(|_| drop(store.follow())));
        (0..3).for_each(|_| is_there(&wanted));
    });
    let wanted = promise(&mut draw);
    if store.follow().is_ok() {
        is_there(&wanted);
    }
    // A check beside a writer finds no damage either.
    if let Ok(mut damage) = check(&store, seed)
        && !disk.is_down()
    {
        damage.retain(is_damage);
        assert!(damage.is_empty(), "seed {seed}: beside a writer: {damage:?}");
    }
}

fn check(store: &Store, seed: u64) -> Result<Vec<Damage>, CheckArenaError> {
    let mut damage = Checker::of(store).check_order().unwrap_or_default();
    for arena in store.arenas().unwrap_or_default() {
        damage.extend(Checker::of(store).check_arena(arena, seed.is_multiple_of(2))?.damage);
    }
    Ok(damage)
}

#[expect(clippy::disallowed_methods, reason = "this is about threads")]
fn survive(seed: u64) {
    let disk = SimDisk::new(seed);
    Store::create(&world(&disk, 1), &config(seed), Some(&secret()), PassphraseCost::default()).unwrap();
    let mut draw = SeededDraw::new(seed);
    let promised = Mutex::new(Promised::default());
    for session in 0..3 {
        let store = open(&disk, seed * 10 + session, WRITER);
        let after = draw.below(1500);
        let strike = match draw.below(5) {
            0 => None,
            1 => Some(Fault::SyncError),
            2 => Some(Fault::WriteError),
            3 => Some(Fault::DiskFull),
            _ => Some(Fault::PowerCut),
        };
        disk.arm(&strike.map(|fault| Strike { after, fault }).into_iter().collect::<Vec<_>>());
        std::thread::scope(|threads| {
            let hands: Vec<_> = (0..HANDS)
                .map(|hand| {
                    let (store, promised) = (&store, &promised);
                    threads.spawn(move || work(store, seed * 10 + session, hand, promised))
                })
                .collect();
            let mut look = seed * 1000 + session * 100;
            while hands.iter().any(|hand| !hand.is_finished()) {
                look += 1;
                read(&disk, look, &promised);
            }
        });
        disk.behave();
        if draw.once_in(3) {
            drop(store.close());
        } else {
            drop(store);
        }
        if !disk.is_down() {
            disk.cut_power();
        }
        disk.restart();
        let store = open(&disk, seed * 10 + session + 5, WRITER);
        let durable = &promised.lock().durable;
        let names: Vec<_> = durable.iter().map(|(name, _)| *name).collect();
        for ((name, number), found) in durable.iter().zip(store.get_batch(&names)) {
            let bytes =
                found.unwrap_or_else(|error| panic!("seed {seed}, {session}, {strike:?}: {name}: {error}"));
            assert!(
                bytes == content(*number),
                "seed {seed}, {session}, {strike:?}: {name} reads as something else"
            );
        }
        for arena in store.arenas().unwrap() {
            let mut damage = Checker::of(&store).check_arena(arena, true).unwrap().damage;
            damage.retain(is_damage);
            assert!(damage.is_empty(), "seed {seed}, {session}, {strike:?}: {damage:?}");
        }
        store.close().unwrap();
    }
}

#[test]
fn what_one_of_many_hands_has_synced_is_there() {
    seeds().for_each(survive);
}

//! Measures the cost of parity. 1 GiB of new data (`--mebibytes N` for another amount) is put into
//! a store with parity and into one without, in turns. Then an arena is damaged and mended. The
//! bench needs twice as much disk in the working directory.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_block::{Block, BlockStore, BlockType};
use varve_log::{ArenaId, ParityPercent};
use varve_store::{PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_upkeep::Mender;
use varve_world::{Random, SeededRandom, Task, World};
use zeroize::Zeroizing;

const MEBIBYTES: u64 = 1024;
/// The amount under Cargo's test runner.
const MEBIBYTES_TEST: u64 = 8;
const BLOCK_BYTES: usize = 16 << 10;
const ROUNDS: usize = 3;

fn main() {
    let mebibytes = mebibytes();
    let mut best = [Duration::MAX; 2];
    for round in 0..ROUNDS {
        for (percent, best) in [0, 5].into_iter().zip(&mut best) {
            let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
            let took = put_all(folder.path(), percent, mebibytes);
            *best = took.min(*best);
            println!("round {round}, parity {percent} %     {:.2} s", took.as_secs_f64());
            if percent > 0 && round + 1 == ROUNDS {
                mend(folder.path());
            }
        }
    }
    let [without, with] = best.map(|took| took.as_secs_f64());
    println!("without                 {without:.2} s");
    println!("with 5 %                {with:.2} s, {:.3} times as long", with / without);
}

fn open(folder: &Path) -> Store {
    let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
    let access = StoreAccess::Write { holder: "a bench" };
    Store::open(World::real(folder), Some(&secret), access, &mut |_| {}).expect("a good store")
}

/// Puts this amount with as many workers as the machine has, and closes the store.
fn put_all(folder: &Path, percent: u8, mebibytes: u64) -> Duration {
    let mut config = StoreConfig::new([7; 16]);
    config.parity_percent = ParityPercent::new(percent);
    if mebibytes == MEBIBYTES_TEST {
        config.arena_map = varve_log::ArenaMap::new(1 << 20).expect("the smallest");
    }
    let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
    Store::create(&World::real(folder), &config, Some(&secret), PassphraseCost::default())
        .expect("an empty folder");
    let started = Instant::now();
    let store = open(folder);
    let workers = Arc::clone(&store.world().workers);
    let width = workers.width() as u64;
    let tasks = (0..width).map(|hand| {
        let store = &store;
        Box::new(move || {
            for number in (0..mebibytes).filter(|number| number % width == hand) {
                let mut bytes = vec![0; 1 << 20];
                SeededRandom::new(number).fill(&mut bytes).expect("a generator never fails");
                let blocks =
                    bytes.chunks(BLOCK_BYTES).map(|bytes| Block { block_type: BlockType::DATA, bytes });
                store.put_batch(&blocks.collect::<Vec<_>>()).expect("the disk has space");
            }
        }) as Task<'_>
    });
    workers.run_all(tasks.collect());
    store.close().expect("the disk has space");
    started.elapsed()
}

fn mend(folder: &Path) {
    let file = folder.join(ArenaId(0).file_name().as_str());
    let good = std::fs::read(&file).expect("it is there");
    let mut bad = good.clone();
    // The damage is one byte at each of eight places, and a burst of 1/128 of the file (512 KiB of
    // an arena of 64 MiB).
    bad.iter_mut().step_by(good.len() / 8).for_each(|byte| *byte ^= 1);
    let middle = good.len() / 2;
    bad[middle..middle + good.len() / 128].fill(0);
    std::fs::write(&file, bad).expect("it can be written");
    let store = open(folder);
    let started = Instant::now();
    let mended =
        Mender::of(&store).unwrap().mend_arena_from_parity(ArenaId(0)).expect("as much as parity can mend");
    let took = started.elapsed().as_secs_f64();
    assert!(std::fs::read(&file).expect("it is there") == good, "byte for byte");
    let megabytes = good.len() as f64 / 1e6;
    println!("mended {} places         {took:.2} s, {:.0} MB/s", mended.ranges.len(), megabytes / took);
    let stats = store.stats().expect("the arenas can be listed");
    println!("parity / log            {:.4}", stats.parity_bytes as f64 / stats.log_bytes as f64);
}

fn mebibytes() -> u64 {
    let words: Vec<_> = std::env::args().collect();
    match words.iter().position(|word| word == "--mebibytes") {
        Some(place) => words[place + 1].parse().expect("a number"),
        None if words.iter().any(|word| word == "--bench") => MEBIBYTES,
        None => MEBIBYTES_TEST,
    }
}

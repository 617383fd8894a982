//! By value against by hash: blocks of 8 KiB are put fresh, put again in order and out of order, and read in order and out of order
//! (`--blocks N` for another count). Real files, whatever the machine has cached of them, one thread.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../varve-index/benches/block_count/mod.rs"]
mod block_count;

use std::time::Instant;

use varve_block::{Block, BlockName, BlockStore, BlockType, Score};
use varve_store::{Access, CompareMode, Encryption, PassphraseCost, Secret, Store, StoreConfig};
use varve_world::{Random, SeededRandom, World};
use zeroize::Zeroizing;

use block_count::block_count;

const BLOCK_COUNT: u64 = 40_000;
/// What Cargo's test runner gets.
const BLOCK_COUNT_TEST: u64 = 500;
/// Foundation's "Sort-1024": so many reads are sorted at a time.
const BATCH_COUNT: usize = 1024;
const BLOCK_BYTES: usize = 8192;
/// Reading is done so often; the fastest counts.
const ROUNDS: usize = 3;

const PHASES: [&str; 5] = ["fresh", "again, in order", "again, shuffled", "read, in order", "read, shuffled"];

fn main() {
    let block_count = block_count(BLOCK_COUNT, BLOCK_COUNT_TEST);
    println!("blocks {block_count} of {BLOCK_BYTES} bytes; MiB/s");
    println!(
        "{:<34}{:>10}{:>10}{:>8}{:>16}{:>16}",
        "", "by hash", "by value", "ratio", "index, by hash", "index, by value"
    );
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        for is_random in [true, false] {
            let hash = measure(CompareMode::Hash, encryption, block_count, is_random);
            let value = measure(CompareMode::Value, encryption, block_count, is_random);
            let kind = match encryption {
                Encryption::Aes256Gcm => "encrypted",
                Encryption::None => "plain",
            };
            let content = if is_random { "noise" } else { "text" };
            for ((what, hash), value) in PHASES.iter().zip(&hash).zip(&value) {
                println!(
                    "{:<34}{:>10.0}{:>10.0}{:>8.2}{:>16}{:>16}",
                    format!("{kind}, {content}: {what}"),
                    hash.0,
                    value.0,
                    value.0 / hash.0,
                    hash.1,
                    value.1
                );
            }
        }
    }
}

/// MiB a second, and how often the index was asked, for each phase.
fn measure(
    compare: CompareMode,
    encryption: Encryption,
    block_count: u64,
    is_random: bool,
) -> Vec<(f64, u64)> {
    let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
    let mut config = StoreConfig::new([7; 16]);
    (config.compare, config.encryption) = (compare, encryption);
    let key = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
    let secret = (encryption == Encryption::Aes256Gcm).then_some(&key);
    Store::create(&World::real(folder.path()), &config, secret, PassphraseCost::default())
        .expect("an empty folder");
    let open =
        |access| Store::open(World::real(folder.path()), secret, access, &mut |_| ()).expect("it is a store");
    let write = Access::Write { holder: "a bench" };
    let contents: Vec<Vec<u8>> = (0..block_count).map(|number| content(number, is_random)).collect();
    let in_order: Vec<usize> = (0..contents.len()).collect();
    let shuffled = shuffled(contents.len());
    let mut phases = Vec::new();
    let mut scores = Vec::new();
    for (order, is_new) in [(&in_order, true), (&in_order, false), (&shuffled, false)] {
        let store = open(write);
        let (rate, found) = timed(&store, || {
            let mut found = Vec::with_capacity(order.len());
            for batch in order.chunks(BATCH_COUNT) {
                let blocks: Vec<_> = batch
                    .iter()
                    .map(|at| Block { block_type: BlockType::DATA, bytes: &contents[*at] })
                    .collect();
                found.extend(store.put_batch(&blocks).expect("the disk has space"));
            }
            store.sync().expect("the disk has space");
            found
        });
        if is_new {
            scores = found;
        } else {
            assert_eq!(store.session_growth().0, 0, "all of them are there");
        }
        phases.push(rate);
        store.close().expect("the disk has space");
    }
    for order in [&in_order, &shuffled] {
        let rounds = (0..ROUNDS).map(|_| {
            let store = open(Access::Read);
            timed(&store, || read(&store, order, &scores, &contents)).0
        });
        phases.push(rounds.max_by(|one, other| one.0.total_cmp(&other.0)).expect("there are rounds"));
    }
    phases
}

fn read(store: &Store, order: &[usize], scores: &[Score], contents: &[Vec<u8>]) {
    for batch in order.chunks(BATCH_COUNT) {
        let names: Vec<_> =
            batch.iter().map(|at| BlockName { score: scores[*at], block_type: BlockType::DATA }).collect();
        for (at, found) in batch.iter().zip(store.get_batch(&names)) {
            assert_eq!(found.expect("it was put")[..16], contents[*at][..16]);
        }
    }
}

fn timed<T>(store: &Store, work: impl FnOnce() -> T) -> ((f64, u64), T) {
    let asked = |store: &Store| -> u64 { store.candidates_per_lookup().iter().sum() };
    let (before, started) = (asked(store), Instant::now());
    let done = work();
    let seconds = started.elapsed().as_secs_f64();
    let mebibytes =
        (block_count(BLOCK_COUNT, BLOCK_COUNT_TEST) * BLOCK_BYTES as u64) as f64 / f64::from(1 << 20);
    ((mebibytes / seconds, asked(store) - before), done)
}

fn content(number: u64, is_random: bool) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    SeededRandom::new(number).fill(&mut bytes).expect("it never fails");
    if !is_random {
        // Letters of which few differ, so that zstd finds about half of it to be redundant.
        bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
    }
    bytes
}

/// All numbers below `count`, in an order that is the same in every run.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    let mut state = 1_u64;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = (state >> 33) % (at as u64 + 1);
        order.swap(at, usize::try_from(other).expect("it is smaller than a length"));
    }
    order
}

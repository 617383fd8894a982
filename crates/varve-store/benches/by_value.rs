//! Compares a by-value store with a by-hash store. Blocks of 8 KiB are put fresh, put again in
//! order and out of order, and read in order and out of order (`--blocks N` for another number).
//! The bench uses real files, the page cache as it is, and one thread. The two stores take turns,
//! so that other work of the machine affects both.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../varve-index/benches/block_count/mod.rs"]
mod block_count;

use std::time::Instant;

use varve_block::{Block, BlockName, BlockStore, BlockType, Score};
use varve_store::{CompareMode, Encryption, PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_world::{Random, SeededRandom, World};
use zeroize::Zeroizing;

use block_count::block_count;

const BLOCK_COUNT: u64 = 40_000;
/// The number of blocks under Cargo's test runner.
const BLOCK_COUNT_TEST: u64 = 500;
/// The number of reads that are sorted at a time: Foundation's "Sort-1024".
const BATCH_COUNT: usize = 1024;
const BLOCK_BYTES: usize = 8192;
/// The number of batches in one store's turn.
const TURN_BATCHES: usize = 2;
/// The number of times that everything is read, each time by newly opened stores.
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
            let [hash, value] = measure(encryption, block_count, is_random);
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

/// A store under measurement.
struct Measured {
    folder: tempfile::TempDir,
    secret: Option<Secret>,
    store: Option<Store>,
    scores: Vec<Score>,
    /// The seconds of the current phase.
    seconds: f64,
    asked: u64,
}

impl Measured {
    fn new(compare: CompareMode, encryption: Encryption) -> Self {
        let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
        let mut config = StoreConfig::new([7; 16]);
        (config.compare, config.encryption) = (compare, encryption);
        let key = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
        let secret = (encryption == Encryption::Aes256Gcm).then_some(key);
        Store::create(&World::real(folder.path()), &config, secret.as_ref(), PassphraseCost::default())
            .expect("an empty folder");
        Self { folder, secret, store: None, scores: Vec::new(), seconds: 0.0, asked: 0 }
    }

    fn open(&mut self, access: StoreAccess<'_>) {
        let world = World::real(self.folder.path());
        let opened = Store::open(world, self.secret.as_ref(), access, &mut |_| ()).expect("it is a store");
        self.store = Some(opened);
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// Closes the store, and adds the number of index lookups since it was opened to `asked`.
    fn close(&mut self) {
        self.asked += self.store().candidates_per_lookup().iter().sum::<u64>();
        self.store.take().expect("it is open").close().expect("the disk has space");
    }

    fn put(&mut self, batch: &[usize], contents: &[Vec<u8>], is_new: bool) {
        let blocks: Vec<_> =
            batch.iter().map(|at| Block { block_type: BlockType::DATA, bytes: &contents[*at] }).collect();
        let started = Instant::now();
        let scores = self.store().put_batch(&blocks).expect("the disk has space");
        self.seconds += started.elapsed().as_secs_f64();
        if is_new {
            self.scores.extend(scores);
        }
    }

    fn sync(&mut self) {
        let started = Instant::now();
        self.store().sync().expect("the disk has space");
        self.seconds += started.elapsed().as_secs_f64();
    }

    fn read(&mut self, batch: &[usize], contents: &[Vec<u8>]) {
        let name = |at: &usize| BlockName { score: self.scores[*at], block_type: BlockType::DATA };
        let names: Vec<_> = batch.iter().map(name).collect();
        let started = Instant::now();
        for (at, found) in batch.iter().zip(self.store().get_batch(&names)) {
            assert_eq!(found.expect("it was put")[..16], contents[*at][..16]);
        }
        self.seconds += started.elapsed().as_secs_f64();
    }

    /// Returns the MiB a second and the number of index lookups, and starts the next phase.
    fn result(&mut self, block_count: usize) -> (f64, u64) {
        let mebibytes = (block_count * BLOCK_BYTES) as f64 / f64::from(1 << 20);
        let result = (mebibytes / self.seconds, self.asked);
        (self.seconds, self.asked) = (0.0, 0);
        result
    }
}

/// Returns the MiB a second and the number of index lookups of each phase, first by hash, then by
/// value.
fn measure(encryption: Encryption, block_count: u64, is_random: bool) -> [Vec<(f64, u64)>; 2] {
    let mut stores =
        [CompareMode::Hash, CompareMode::Value].map(|compare| Measured::new(compare, encryption));
    let contents: Vec<Vec<u8>> = (0..block_count).map(|number| content(number, is_random)).collect();
    let in_order: Vec<usize> = (0..contents.len()).collect();
    let shuffled = shuffled(contents.len());
    let mut phases = [Vec::new(), Vec::new()];
    for (order, is_new) in [(&in_order, true), (&in_order, false), (&shuffled, false)] {
        stores.iter_mut().for_each(|store| store.open(StoreAccess::Write { holder: "a bench" }));
        in_turns(&mut stores, order, &mut |store, batch| store.put(batch, &contents, is_new));
        for (store, phases) in stores.iter_mut().zip(&mut phases) {
            store.sync();
            assert_eq!(store.store().session_growth().0, if is_new { block_count } else { 0 });
            store.close();
            phases.push(store.result(order.len()));
        }
    }
    for order in [&in_order, &shuffled] {
        for _ in 0..ROUNDS {
            stores.iter_mut().for_each(|store| store.open(StoreAccess::Read));
            in_turns(&mut stores, order, &mut |store, batch| store.read(batch, &contents));
            stores.iter_mut().for_each(Measured::close);
        }
        for (store, phases) in stores.iter_mut().zip(&mut phases) {
            phases.push(store.result(order.len() * ROUNDS));
        }
    }
    phases
}

/// Does the same work in both stores. Each of them goes first in every second turn.
fn in_turns(stores: &mut [Measured; 2], order: &[usize], work: &mut dyn FnMut(&mut Measured, &[usize])) {
    for (turn, of_turn) in order.chunks(BATCH_COUNT * TURN_BATCHES).enumerate() {
        for at in [turn % 2, 1 - turn % 2] {
            of_turn.chunks(BATCH_COUNT).for_each(|batch| work(&mut stores[at], batch));
        }
    }
}

fn content(number: u64, is_random: bool) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    SeededRandom::new(number).fill(&mut bytes).expect("it never fails");
    if !is_random {
        // These are only 16 different letters, so zstd finds about half of the bytes redundant.
        bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
    }
    bytes
}

/// Returns all numbers below `count` in a shuffled order that is the same in every run.
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

//! Measures reads of single blocks at random and of all blocks in order, with a warm and a cold
//! page cache, by one thread and by several. One store has compressible data (`--image FILE`, or
//! else files in `/usr`), and another has incompressible data.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_store::{PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_world::{Random, SeededRandom, Task, World};
use zeroize::Zeroizing;

const BLOCK_BYTES: usize = 16 << 10;
/// The bytes in each store, and those under Cargo's test runner.
const DATA_BYTES: usize = 1 << 30;
const DATA_BYTES_TEST: usize = 4 << 20;
/// The number of blocks that all threads together read with a warm page cache, and the number that
/// is read with a cold one.
const WARM_COUNT: usize = 40_000;
const COLD_COUNT: usize = 1000;
/// The number of blocks that a reader of an image requests at once.
const BATCH_COUNT: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let data_bytes = if is_bench { DATA_BYTES } else { DATA_BYTES_TEST };
    let image =
        arguments.iter().position(|argument| argument == "--image").and_then(|at| arguments.get(at + 1));
    let random = SeededRandom::new(1);
    let mut noise = vec![0; data_bytes];
    random.fill(&mut noise).expect("a seed does not fail");
    measure("compressible", &compressible(image, data_bytes), is_bench);
    measure("incompressible", &noise, is_bench);
}

/// Returns bytes of the image without its holes, or bytes of files in `/usr`.
fn compressible(image: Option<&String>, data_bytes: usize) -> Vec<u8> {
    let mut files = vec![image.map_or_else(|| PathBuf::from("/usr"), PathBuf::from)];
    let mut data = Vec::new();
    while let Some(path) = files.pop() {
        if path.is_symlink() && image.is_none() {
            continue;
        }
        if let Ok(inside) = std::fs::read_dir(&path) {
            let mut inside: Vec<_> = inside.flatten().map(|entry| entry.path()).collect();
            inside.sort();
            files.extend(inside.into_iter().rev());
        } else if let Ok(mut file) = File::open(&path) {
            let mut block = vec![0; BLOCK_BYTES];
            while data.len() < data_bytes && file.read_exact(&mut block).is_ok() {
                if block.iter().any(|byte| *byte != 0) {
                    data.extend_from_slice(&block);
                }
            }
        }
        if data.len() >= data_bytes {
            break;
        }
    }
    assert!(!data.is_empty(), "there is something to store");
    data
}

fn measure(what: &str, data: &[u8], is_bench: bool) {
    let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
    Store::create(
        &World::real(folder.path()),
        &StoreConfig::new([7; 16]),
        Some(&secret()),
        PassphraseCost::default(),
    )
    .expect("an empty folder");
    let store = open(folder.path(), StoreAccess::Write { holder: "a bench" });
    store.expect_reads_in_pieces(true);
    let started = Instant::now();
    let names = put_all(&store, data);
    store.sync().expect("the disk has space");
    let elapsed = started.elapsed().as_secs_f64();
    let log_bytes = store.stats().expect("the arenas can be listed").log_bytes;
    store.close().expect("the disk has space");
    println!(
        "{what}: {} MB in {} blocks, stored as {:.1} MB",
        data.len() / 1_000_000,
        names.len(),
        log_bytes as f64 / 1e6
    );
    println!("  put and synced             {:8.0} MB/s", data.len() as f64 / 1e6 / elapsed);

    let (warm, cold) = if is_bench { (WARM_COUNT, COLD_COUNT) } else { (50, 10) };
    let width = World::real(folder.path()).workers.width();
    let store = open(folder.path(), StoreAccess::Read);
    let started = Instant::now();
    for batch in names.chunks(BATCH_COUNT) {
        store.get_batch(batch).into_iter().for_each(|block| assert!(block.is_ok()));
    }
    println!(
        "  in order, {BATCH_COUNT} at a time     {:8.0} MB/s",
        data.len() as f64 / 1e6 / started.elapsed().as_secs_f64()
    );
    for hands in [1, width, 16 * width] {
        let (count, before) = (warm / hands * hands, core_seconds());
        let per_second = get_at_random(&store, &names, hands, warm / hands);
        let each = 1e6 * (core_seconds() - before) / count as f64;
        println!(
            "  random, warm, {hands:2} hands     {per_second:8.0} a second, {each:.1} us of a core each"
        );
    }
    drop(store);
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        println!("  random, cold               skipped: only root may drop the page cache");
        return;
    }
    let store = open(folder.path(), StoreAccess::Read);
    let per_second = get_at_random(&store, &names, 1, cold);
    println!("  random, cold,  1 hand      {:8.0} us each", 1e6 / per_second);
}

fn put_all(store: &Store, data: &[u8]) -> Vec<BlockName> {
    let block = |bytes| Block { block_type: BlockType::DATA, bytes };
    let batches: Vec<&[u8]> = data.chunks(BLOCK_BYTES * 256).collect();
    let width = store.world().workers.width();
    let hands = (0..width).map(|hand| {
        let batches = &batches;
        let put = move || {
            for batch in batches.iter().skip(hand).step_by(width) {
                let blocks: Vec<_> = batch.chunks(BLOCK_BYTES).map(block).collect();
                store.put_batch(&blocks).expect("the disk has space");
            }
        };
        Box::new(put) as Task<'_>
    });
    store.world().workers.run_all(hands.collect());
    let name = |bytes| BlockName {
        score: store.namer().score(bytes).expect("it compares by hash"),
        block_type: BlockType::DATA,
    };
    data.chunks(BLOCK_BYTES).map(name).collect()
}

/// Returns the number of blocks a second. Each of `hands` threads reads `each` blocks.
fn get_at_random(store: &Store, names: &[BlockName], hands: usize, each: usize) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for hand in 0..hands {
            scope.spawn(move || {
                let mut state = hand as u64 + 1;
                for _ in 0..each {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let number = (state >> 33) as usize % names.len();
                    assert!(store.get(&names[number]).is_ok());
                }
            });
        }
    });
    (hands * each) as f64 / started.elapsed().as_secs_f64()
}

/// The time that this process has run on all cores together. Other programs on the machine hardly
/// change it.
fn core_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    // The fields are user and system time, in hundredths of a second.
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / 100.0
}

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

fn open(folder: &Path, access: StoreAccess<'_>) -> Store {
    Store::open(World::real(folder), Some(&secret()), access, &mut |_| ())
        .expect("the store that was made above")
}

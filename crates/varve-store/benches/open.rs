//! Measures the opening of a store of 100 million blocks (`--blocks N` for another number). The
//! blocks are really put, with 16 bytes each. Then the store is closed and opened again. The bench
//! needs 7 GB in the folder for temporary files, 2 GB of memory, and some minutes.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../varve-index/benches/block_count/mod.rs"]
mod block_count;

use std::path::Path;
use std::time::Instant;

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_store::{PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_world::{Task, World};
use zeroize::Zeroizing;

use block_count::block_count;

const BLOCK_COUNT: u64 = 100_000_000;
/// The number of blocks under Cargo's test runner.
const BLOCK_COUNT_TEST: u64 = 20_000;
const BATCH_COUNT: usize = 4096;

fn main() {
    let block_count = block_count(BLOCK_COUNT, BLOCK_COUNT_TEST);
    let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
    let config = StoreConfig::new([7; 16]);
    Store::create(&World::real(folder.path()), &config, Some(&secret()), PassphraseCost::default())
        .expect("an empty folder");

    let store = open(folder.path(), StoreAccess::Write { holder: "a bench" });
    let started = Instant::now();
    put_all(&store, block_count);
    println!("blocks                    {block_count}");
    println!(
        "put                       {:.0} ns",
        started.elapsed().as_secs_f64() * 1e9 / block_count as f64
    );
    let stats = store.stats().expect("the arenas can be listed");
    println!("log                       {} MB, {} arenas", stats.log_bytes / 1_000_000, stats.arena_count);
    println!("index                     {:.2} bytes a block", stats.index_bytes as f64 / block_count as f64);
    let started = Instant::now();
    store.close().expect("the disk has space");
    println!("close                     {:.2} s", started.elapsed().as_secs_f64());

    for (what, is_cold, access) in [
        ("read, warm", false, StoreAccess::Read),
        ("read, cold", true, StoreAccess::Read),
        ("write, warm", false, StoreAccess::Write { holder: "a bench" }),
        ("write, cold", true, StoreAccess::Write { holder: "a bench" }),
    ] {
        if is_cold && std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
            println!("open to {what:<17} skipped: only root may drop the page cache");
            continue;
        }
        let started = Instant::now();
        let store = open(folder.path(), access);
        println!("open to {what:<17} {:.2} s", started.elapsed().as_secs_f64());
        let started = Instant::now();
        check_some(&store, block_count);
        println!("1000 blocks found and got {:.2} s", started.elapsed().as_secs_f64());
    }
}

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

fn open(folder: &Path, access: StoreAccess<'_>) -> Store {
    Store::open(World::real(folder), Some(&secret()), access, &mut |_| ())
        .expect("the store that was made above")
}

fn content(number: u64) -> [u8; 16] {
    let mut content = [0; 16];
    content[..8].copy_from_slice(&number.to_le_bytes());
    content[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    content
}

fn put_all(store: &Store, block_count: u64) {
    let workers = store.world().workers.clone();
    let width = workers.width();
    let hands = (0..width).map(|hand| {
        let put = move || {
            for first in (0..block_count).step_by(BATCH_COUNT).skip(hand).step_by(width) {
                let end = block_count.min(first + BATCH_COUNT as u64);
                let contents: Vec<_> = (first..end).map(content).collect();
                let block = |bytes| Block { block_type: BlockType::DATA, bytes };
                let blocks: Vec<_> = contents.iter().map(|content| block(content.as_slice())).collect();
                store.put_batch(&blocks).expect("the disk has space");
            }
        };
        Box::new(put) as Task<'_>
    });
    workers.run_all(hands.collect());
}

fn check_some(store: &Store, block_count: u64) {
    for number in (0..1000).map(|number| number * (block_count / 1000).max(1) % block_count) {
        let score = store.namer().score(&content(number)).expect("it compares by hash");
        let name = BlockName { score, block_type: BlockType::DATA };
        assert_eq!(&store.get(&name).expect("it was put")[..], content(number));
    }
}

//! The index on disk against the one in memory, with a tenth of its memory: 10 million blocks of 4 KiB (`--blocks N` for another count),
//! each of 16 bytes and zeros, are put, put again in order, and read in order. Real files, one thread; needs 2 GB of disk where it is run.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../varve-index/benches/block_count/mod.rs"]
mod block_count;

use std::path::Path;
use std::time::Instant;

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_store::{Access, DiskIndexConfig, Encryption, IndexKind, PassphraseCost, Store, StoreConfig};
use varve_world::World;

use block_count::block_count;

const BLOCK_COUNT: u64 = 10_000_000;
/// What Cargo's test runner gets.
const BLOCK_COUNT_TEST: u64 = 20_000;
const BATCH_COUNT: usize = 256;
const BLOCK_BYTES: usize = 4096;
/// What the index in memory takes.
const MEMORY_BYTES_PER_BLOCK: u64 = 9;

/// Blocks a second, and pages of the index that were read for each look-up.
struct Phase {
    rate: f64,
    reads_per_lookup: f64,
    /// The longest that one batch has taken, in seconds.
    longest: f64,
}

fn main() {
    let block_count = block_count(BLOCK_COUNT, BLOCK_COUNT_TEST);
    println!("blocks {block_count}");
    let memory = measure(IndexKind::Memory, block_count);
    let disk = measure(IndexKind::Disk, block_count);
    println!(
        "{:<14}{:>12}{:>12}{:>8}{:>16}{:>14}{:>14}",
        "", "memory/s", "disk/s", "ratio", "reads a look-up", "longest, mem.", "longest, disk"
    );
    for ((what, memory), disk) in ["fresh", "again", "read"].iter().zip(&memory).zip(&disk) {
        println!(
            "{what:<14}{:>12.0}{:>12.0}{:>8.2}{:>16.5}{:>11.1} ms{:>11.1} ms",
            memory.rate,
            disk.rate,
            disk.rate / memory.rate,
            disk.reads_per_lookup,
            memory.longest * 1e3,
            disk.longest * 1e3,
        );
    }
}

fn measure(index: IndexKind, block_count: u64) -> Vec<Phase> {
    let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
    let mut config = StoreConfig::new([7; 16]);
    config.encryption = Encryption::None;
    config.index = index;
    config.disk_index = DiskIndexConfig {
        memory_bytes: (block_count * MEMORY_BYTES_PER_BLOCK / 10).max(DiskIndexConfig::MEMORY_BYTES_MIN),
        expected_blocks: block_count,
        ..DiskIndexConfig::default()
    };
    Store::create(&World::real(folder.path()), &config, None, PassphraseCost::default())
        .expect("an empty folder");
    let write = Access::Write { holder: "a bench" };
    let mut phases = Vec::new();
    let store = open(folder.path(), write);
    phases.push(timed(&store, block_count, &mut |first, end| put(&store, first, end)));
    assert_eq!(store.session_growth().0, block_count);
    let started = Instant::now();
    store.close().expect("the disk has space");
    println!("{index:?}: closed in {:.2} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let store = open(folder.path(), write);
    println!("{index:?}: opened in {:.2} s", started.elapsed().as_secs_f64());
    phases.push(timed(&store, block_count, &mut |first, end| put(&store, first, end)));
    assert_eq!(store.session_growth().0, 0);
    store.close().expect("the disk has space");
    let store = open(folder.path(), Access::Read);
    phases.push(timed(&store, block_count, &mut |first, end| get(&store, first, end)));
    let stats = store.stats().expect("the arenas can be listed");
    println!("{index:?}: memory {:.2} bytes a block", stats.index_bytes as f64 / block_count as f64);
    if let Some(disk) = stats.disk_index {
        println!(
            "{index:?}: {} of at most {} bytes of memory, {} bytes of filter, {:.2} bytes a block on disk without it",
            disk.memory_bytes,
            disk.memory_bytes_max,
            disk.filter_bytes,
            disk.file_bytes as f64 / disk.file_blocks.max(1) as f64
        );
    }
    phases
}

fn timed(store: &Store, block_count: u64, work: &mut dyn FnMut(u64, u64)) -> Phase {
    let started = Instant::now();
    let mut longest = 0.0_f64;
    for first in (0..block_count).step_by(BATCH_COUNT) {
        let begun = Instant::now();
        work(first, (first + BATCH_COUNT as u64).min(block_count));
        longest = longest.max(begun.elapsed().as_secs_f64());
    }
    store.sync().expect("the disk has space");
    let rate = block_count as f64 / started.elapsed().as_secs_f64();
    let stats = store.stats().expect("the arenas can be listed").disk_index;
    let reads_per_lookup = stats.map_or(0.0, |stats| stats.page_reads as f64 / stats.lookups.max(1) as f64);
    Phase { rate, reads_per_lookup, longest }
}

fn open(folder: &Path, access: Access<'_>) -> Store {
    Store::open(World::real(folder), None, access, &mut |_| ()).expect("the store that was made above")
}

fn content(number: u64) -> [u8; BLOCK_BYTES] {
    let mut content = [0; BLOCK_BYTES];
    content[..8].copy_from_slice(&number.to_le_bytes());
    content[8..16].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    content
}

fn put(store: &Store, first: u64, end: u64) {
    let contents: Vec<_> = (first..end).map(content).collect();
    let blocks: Vec<_> = contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
    store.put_batch(&blocks).expect("the disk has space");
}

fn get(store: &Store, first: u64, end: u64) {
    let name = |number| BlockName {
        score: store.namer().score(&content(number)).expect("it compares by hash"),
        block_type: BlockType::DATA,
    };
    let names: Vec<_> = (first..end).map(name).collect();
    for (number, found) in (first..end).zip(store.get_batch(&names)) {
        assert_eq!(found.expect("it was put")[..16], content(number)[..16]);
    }
}

//! Compares the index on disk with the index in memory, which gets ten times as much memory. 10
//! million blocks of 4 KiB (`--blocks N` for another number), each of 16 bytes and zeros, are put,
//! put again in order, and read in order. The two stores take turns, so that other work of the
//! machine affects both. The bench uses real files and one thread, and needs 3 GB of disk in the
//! working directory.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../../varve-index/benches/block_count/mod.rs"]
mod block_count;

use std::path::Path;
use std::time::Instant;

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_store::{DiskIndexConfig, Encryption, IndexKind, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_world::World;

use block_count::block_count;

const BLOCK_COUNT: u64 = 10_000_000;
/// The number of blocks under Cargo's test runner.
const BLOCK_COUNT_TEST: u64 = 20_000;
const BATCH_COUNT: usize = 256;
const BLOCK_BYTES: usize = 4096;
/// The bytes for each block that the index in memory takes.
const MEMORY_BYTES_PER_BLOCK: u64 = 9;

/// The number of blocks in one store's turn.
const TURN_COUNT: u32 = 1 << 16;

/// A store under measurement.
struct Measured {
    index: IndexKind,
    folder: tempfile::TempDir,
    store: Option<Store>,
}

/// The measurements of one store in one phase.
#[derive(Default)]
struct Phase {
    seconds: f64,
    /// The number of index pages that were read for each lookup.
    reads_per_lookup: f64,
    /// The longest time of one batch, in seconds.
    longest: f64,
}

fn main() {
    let block_count = block_count(BLOCK_COUNT, BLOCK_COUNT_TEST);
    println!("blocks {block_count}");
    let mut stores = [IndexKind::Memory, IndexKind::Disk].map(|index| Measured::new(index, block_count));
    let write = StoreAccess::Write { holder: "a bench" };
    let mut phases = Vec::new();
    for (what, access, work) in [
        ("fresh", write, put as fn(&Store, u64, u64)),
        ("again", write, put),
        ("read", StoreAccess::Read, get),
    ] {
        stores.iter_mut().for_each(|measured| measured.open(access));
        phases.push((what, in_turns(&stores, block_count, work)));
        for measured in &mut stores {
            let expected = if what == "fresh" { block_count } else { 0 };
            assert_eq!(measured.store().session_growth().0, expected);
            measured.close();
        }
    }
    stores.iter_mut().for_each(Measured::tell_sizes);
    println!(
        "{:<14}{:>12}{:>12}{:>8}{:>16}{:>14}{:>14}",
        "", "memory/s", "disk/s", "ratio", "reads a look-up", "longest, mem.", "longest, disk"
    );
    for (what, [memory, disk]) in &phases {
        println!(
            "{what:<14}{:>12.0}{:>12.0}{:>8.2}{:>16.5}{:>11.1} ms{:>11.1} ms",
            block_count as f64 / memory.seconds,
            block_count as f64 / disk.seconds,
            memory.seconds / disk.seconds,
            disk.reads_per_lookup,
            memory.longest * 1e3,
            disk.longest * 1e3,
        );
    }
}

impl Measured {
    fn new(index: IndexKind, block_count: u64) -> Self {
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
        Self { index, folder, store: None }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn open(&mut self, access: StoreAccess<'_>) {
        let started = Instant::now();
        self.store = Some(open(self.folder.path(), access));
        println!("{:?}: opened in {:.2} s", self.index, started.elapsed().as_secs_f64());
    }

    fn close(&mut self) {
        let started = Instant::now();
        self.store.take().expect("it is open").close().expect("the disk has space");
        println!("{:?}: closed in {:.2} s", self.index, started.elapsed().as_secs_f64());
    }

    fn tell_sizes(&mut self) {
        let stats = open(self.folder.path(), StoreAccess::Read).stats().expect("the arenas can be listed");
        let per_block = |bytes: u64| bytes as f64 / stats.block_count as f64;
        println!("{:?}: memory {:.2} bytes a block", self.index, per_block(stats.index_bytes));
        if let Some(disk) = &stats.disk_index {
            println!(
                "{:?}: at most {} bytes of memory beside {} of filter; on disk {:.2} bytes a block, and {:.2} of the filter",
                self.index,
                disk.memory_bytes_max,
                disk.filter_bytes,
                per_block(disk.file_bytes),
                per_block(disk.filter_bytes)
            );
        }
    }
}

/// Does the same work in both stores.
fn in_turns(stores: &[Measured; 2], block_count: u64, work: fn(&Store, u64, u64)) -> [Phase; 2] {
    let mut phases = [Phase::default(), Phase::default()];
    for (turn, first) in (0..block_count).step_by(TURN_COUNT as usize).enumerate() {
        let end = (first + u64::from(TURN_COUNT)).min(block_count);
        // Each store goes first in every second turn.
        for at in [turn % 2, 1 - turn % 2] {
            let (store, phase) = (stores[at].store(), &mut phases[at]);
            for batch in (first..end).step_by(BATCH_COUNT) {
                let begun = Instant::now();
                work(store, batch, (batch + BATCH_COUNT as u64).min(end));
                let seconds = begun.elapsed().as_secs_f64();
                phase.seconds += seconds;
                phase.longest = phase.longest.max(seconds);
            }
        }
    }
    for (phase, measured) in phases.iter_mut().zip(stores) {
        let begun = Instant::now();
        measured.store().sync().expect("the disk has space");
        phase.seconds += begun.elapsed().as_secs_f64();
        let stats = measured.store().stats().expect("the arenas can be listed").disk_index;
        phase.reads_per_lookup =
            stats.map_or(0.0, |stats| stats.page_reads as f64 / stats.lookups.max(1) as f64);
    }
    phases
}

fn open(folder: &Path, access: StoreAccess<'_>) -> Store {
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

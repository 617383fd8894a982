//! Builds an index on disk, opens it again and queries it. It has 100 million blocks (`--blocks N`
//! for another number) within 192 MB and its filter. The bench uses real files and needs 2.5 GB of
//! disk in the working directory. Each insertion is followed by the same number of writes to plain
//! memory, which show the machine's own pauses.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod block_count;
mod plain_memory;

use std::sync::Arc;
use std::time::Instant;

use varve_block::{Fingerprint, LogAddress};
use varve_index::{DiskIndex, DiskIndexSettings, NearAddresses};
use varve_world::{RealStorage, Storage};

use block_count::block_count;
use plain_memory::PlainMemory;

const BLOCK_COUNT: u64 = 100_000_000;
/// The number of blocks under Cargo's test runner.
const BLOCK_COUNT_TEST: u64 = 50_000;
/// The number of blocks that a directory page names.
const PAGE_COUNT: usize = 4096;
const LOOKUP_COUNT: u64 = 100_000;
/// The number of writes for a page: each entry is written to one place of the filter and to two of
/// a buffer.
const WRITES: usize = 3 * PAGE_COUNT;

fn main() {
    let block_count = block_count(BLOCK_COUNT, BLOCK_COUNT_TEST);
    let folder = tempfile::tempdir_in(".").expect("a temporary folder can be made");
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new(folder.path()));
    let memory_bytes = if block_count < 1_000_000 { 256 << 10 } else { 192 << 20 };
    let settings = DiskIndexSettings { memory_bytes, expected_blocks: block_count, fingerprint_bits: 48 };
    let index = DiskIndex::new(Arc::clone(&storage), [1; 32], settings, Some([2; 16]));

    let mut most_memory = 0;
    let mut insertions = Vec::new();
    let stats = index.stats();
    let mut plain = PlainMemory::new(stats.filter_bytes + stats.memory_bytes_max / 2);
    let mut pauses = Vec::new();
    for first in (0..block_count).step_by(PAGE_COUNT) {
        let page: Vec<_> = (first..(first + PAGE_COUNT as u64).min(block_count)).map(entry).collect();
        let (begun, before, faults_before) = (Instant::now(), scheduled(), faults());
        index.insert_all(&page);
        if index.is_due() {
            index.begin(None);
        }
        let (seconds, after) = (begun.elapsed().as_secs_f64(), scheduled());
        let faults = faults() - faults_before;
        insertions.push(Insertion { seconds, ran: after.0 - before.0, waited: after.1 - before.1, faults });
        pauses.push(plain.write(WRITES).as_secs_f64());
        if first % (PAGE_COUNT as u64 * 64) == 0 {
            most_memory = most_memory.max(index.stats().memory_bytes);
        }
    }
    let built = insertions.iter().map(|insertion| insertion.seconds).sum::<f64>();
    println!("blocks                    {block_count}");
    println!("built                     {built:.1} s, {:.0} ns a block", built * 1e9 / block_count as f64);
    print_longest(&mut insertions);
    print_pauses(&mut pauses);
    let started = Instant::now();
    index.save(b"all".to_vec()).expect("the disk has space");
    println!("saved                     {:.2} s", started.elapsed().as_secs_f64());
    let stats = index.stats();
    println!("passes                    {}", stats.passes);
    println!(
        "memory                    {most_memory} of at most {} bytes, and {} of filter",
        stats.memory_bytes_max, stats.filter_bytes
    );
    println!("file                      {:.2} bytes a block", stats.file_bytes as f64 / block_count as f64);
    drop(index);

    let started = Instant::now();
    let (index, _) = DiskIndex::open(storage, [1; 32], settings, None).expect("it was saved");
    println!("opened                    {:.2} s", started.elapsed().as_secs_f64());
    let scattered = |number: u64| number.wrapping_mul(0x2545_f491_4f6c_dd1d) % block_count;
    let started = Instant::now();
    let mut sum = 0;
    for number in 0..LOOKUP_COUNT {
        let (fingerprint, address) = entry(scattered(number));
        let found = index.candidates(fingerprint);
        assert!(found.addresses.contains(&address));
        sum += found.addresses.len();
    }
    println!(
        "a block that is there     {:.0} ns",
        started.elapsed().as_secs_f64() * 1e9 / LOOKUP_COUNT as f64
    );
    let started = Instant::now();
    let mut through = 0;
    for number in 0..LOOKUP_COUNT {
        through += u64::from(index.near(entry(block_count + number).0) != NearAddresses::All(Vec::new()));
    }
    println!(
        "a block that is not there {:.0} ns",
        started.elapsed().as_secs_f64() * 1e9 / LOOKUP_COUNT as f64
    );
    println!(
        "of these the filter let through {:.3} %; candidates a look-up {:.6}",
        through as f64 * 100.0 / LOOKUP_COUNT as f64,
        sum as f64 / LOOKUP_COUNT as f64
    );
    if let Some(kibibytes) = most_resident() {
        println!("memory of the process     {} KiB at most", kibibytes - plain.bytes() / 1024);
    }
}

/// The time that the insertion of a page of blocks took.
struct Insertion {
    seconds: f64,
    /// The seconds that this thread ran, and those that it was ready and had no core. For the rest
    /// it waited for the disk.
    ran: f64,
    waited: f64,
    /// The number of memory pages that this thread was the first to touch.
    faults: u64,
}

fn print_longest(insertions: &mut [Insertion]) {
    insertions.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let milliseconds = |place: usize| insertions.get(place).map_or(0.0, |one| one.seconds * 1e3);
    if let Some(longest) = insertions.first() {
        println!(
            "longest insertion         {:.1} ms, of {PAGE_COUNT} blocks; it ran {:.1} of them, had no core for {:.1}, and touched {} new pages of memory",
            milliseconds(0),
            longest.ran * 1e3,
            longest.waited * 1e3,
            longest.faults
        );
    }
    println!(
        "a hundred take longer than {:.1} ms; one in a hundred takes longer than {:.1}, and every other one than {:.1}",
        milliseconds(100),
        milliseconds(insertions.len() / 100),
        milliseconds(insertions.len() / 2)
    );
    let all: u64 = insertions.iter().map(|one| one.faults).sum();
    println!("new pages of memory       {all} in all");
}

fn print_pauses(pauses: &mut [f64]) {
    pauses.sort_by(|one, other| other.total_cmp(one));
    let milliseconds = |place: usize| pauses.get(place).map_or(0.0, |seconds| seconds * 1e3);
    println!(
        "the machine's own pauses  {WRITES} writes to plain memory take {:.1} ms at most; a hundred take longer than {:.1}, and every other one than {:.2}",
        milliseconds(0),
        milliseconds(100),
        milliseconds(pauses.len() / 2)
    );
}

/// The number of memory pages that this thread was the first to touch: its minor faults, as Linux
/// counts them. 0 on a system without this count.
fn faults() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    // The name of the thread ends at the last bracket. It may contain any characters.
    let fields = told.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(7).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// The seconds that this thread has run, and those that it was ready and had no core, as Linux
/// counts them. 0 on a system without these counts.
fn scheduled() -> (f64, f64) {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut fields = told.split(' ').map(|field| field.trim().parse::<f64>().unwrap_or(0.0) / 1e9);
    (fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0))
}

/// The largest amount of memory that this process has had, as Linux counts it.
fn most_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn entry(number: u64) -> (Fingerprint, LogAddress) {
    // Fingerprints are without order, like scores.
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (Fingerprint(mixed ^ (mixed >> 31)), LogAddress::new(number / 32 * 2000).expect("a log of that size"))
}

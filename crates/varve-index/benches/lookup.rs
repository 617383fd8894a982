//! Measures the index in memory with 100 million blocks (`--blocks N` for another number): memory,
//! insertions, the longest stop, lookups, checkpoints. Prints a hash of the results.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod block_count;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

use varve_block::{Fingerprint, LogAddress};
use varve_index::MemoryIndex;

use block_count::block_count;

const KEY: [u8; 32] = [7; 32];
/// The number of blocks under Cargo's test runner. It is enough to split segments a few times.
const BLOCK_COUNT_TEST: u64 = 50_000;
const BLOCK_COUNT: u64 = 100_000_000;
const LOOKUP_COUNT_MAX: u64 = 10_000_000;
/// The size of a block of 8 KiB that is compressed by half, in granules of 128 bytes.
const BLOCK_GRANULES: u64 = 32;

fn main() {
    let block_count = block_count(BLOCK_COUNT, BLOCK_COUNT_TEST);
    let lookup_count = block_count.min(LOOKUP_COUNT_MAX);
    println!("blocks                    {block_count}");

    let bytes_before = resident_bytes();
    let (index, inserting, slow) = insert_all(block_count);
    println!("insert                    {:.0} ns", nanoseconds_each(inserting, block_count));
    print_memory("", &index, bytes_before);

    let started = Instant::now();
    let found: u64 = (0..lookup_count)
        .map(|number| number * (block_count / lookup_count))
        .flat_map(|number| index.candidates(fingerprint(number)))
        .fold(0, |sum, address| mix(sum ^ address.granule()));
    println!("lookup, hit               {:.0} ns", nanoseconds_each(started.elapsed(), lookup_count));

    let started = Instant::now();
    let misses = block_count..block_count + lookup_count;
    let false_count = misses.flat_map(|number| index.candidates(fingerprint(number))).count();
    println!("lookup, miss              {:.0} ns", nanoseconds_each(started.elapsed(), lookup_count));
    println!(
        "false candidates          {:.1} a million misses",
        false_count as f64 * 1e6 / lookup_count as f64
    );
    println!("{:?}", index.stats());

    let mut file = tempfile::tempfile().expect("a temporary file can be made");
    let started = Instant::now();
    index.write_checkpoint(b"note", &KEY, &mut |piece| file.write_all(piece)).expect("the disk has space");
    println!("checkpoint, write         {:.2} s", started.elapsed().as_secs_f64());
    drop(index);
    let (index, reading) = read_checkpoint(&mut file);
    println!("checkpoint, read          {:.2} s, {} MB", reading.as_secs_f64(), length(&file) / 1_000_000);
    print_memory(", read back", &index, bytes_before);
    println!("hash                      {:016x}", mix(found ^ false_count as u64 ^ index.len()));
    drop(index);

    let (_, _, slow_again) = insert_all(block_count);
    let stops = slow.iter().filter_map(|(number, time)| Some(*time.min(slow_again.get(number)?)));
    println!("longest insert            {:.2} ms", stops.max().unwrap_or_default().as_secs_f64() * 1e3);
}

/// Also returns the time of all insertions, and the times of the slow ones. An insertion that was
/// slow because the machine was busy is fast when it is repeated.
fn insert_all(block_count: u64) -> (MemoryIndex, Duration, BTreeMap<u64, Duration>) {
    const SLOW: Duration = Duration::from_micros(50);
    let mut index = MemoryIndex::new();
    let mut slow = BTreeMap::new();
    let started = Instant::now();
    let mut last = started;
    for number in 0..block_count {
        let address =
            LogAddress::new(number * BLOCK_GRANULES).expect("the log is shorter than 2^40 granules");
        index.insert(fingerprint(number), address).expect("fewer than 2^32 blocks");
        let now = Instant::now();
        if now - last >= SLOW {
            slow.insert(number, now - last);
        }
        last = now;
    }
    (index, started.elapsed(), slow)
}

fn read_checkpoint(file: &mut File) -> (MemoryIndex, Duration) {
    let bytes_total = length(file);
    file.rewind().expect("a file can be rewound");
    let started = Instant::now();
    let (index, note) = MemoryIndex::read_checkpoint(&KEY, bytes_total, &mut |into| file.read_exact(into))
        .expect("what was just written can be read");
    let read_time = started.elapsed();
    assert_eq!(note, b"note");
    (index, read_time)
}

fn print_memory(when: &str, index: &MemoryIndex, bytes_before: u64) {
    let block_count = index.len() as f64;
    let resident_bytes = resident_bytes().saturating_sub(bytes_before);
    println!("resident{when:18}{:.3} bytes a block", resident_bytes as f64 / block_count);
    println!("memory_bytes{when:14}{:.3} bytes a block", index.memory_bytes() as f64 / block_count);
}

fn nanoseconds_each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

fn length(file: &File) -> u64 {
    file.metadata().expect("an open file has a length").len()
}

/// The memory of this process that is in RAM, or 0 on a system without this count.
fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

fn fingerprint(number: u64) -> Fingerprint {
    Fingerprint(mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The finish of SplitMix64 (Steele, Lea, Flood 2014): one to one, and its bits look independent.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

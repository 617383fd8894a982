//! The memory that a block costs, at every fill from one growth to the next. It includes the
//! allocator's part.

use std::io::{Read, Write};

use varve_block::{Fingerprint, LogAddress};
use varve_index::MemoryIndex;

const BYTES_PER_BLOCK_MAX: f64 = 9.5;

fn fingerprint(number: u64) -> Fingerprint {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Fingerprint((word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9))
}

fn address(number: u64) -> LogAddress {
    LogAddress::new(number * 32).unwrap()
}

fn bytes_per_block(index: &MemoryIndex) -> f64 {
    index.memory_bytes() as f64 / index.len() as f64
}

fn read_back(index: &MemoryIndex) -> MemoryIndex {
    let mut bytes = Vec::new();
    index.write_checkpoint(&[], &[0; 32], &mut |piece| bytes.write_all(piece)).unwrap();
    let mut rest = bytes.as_slice();
    let mut read = |into: &mut [u8]| rest.read_exact(into);
    MemoryIndex::read_checkpoint(&[0; 32], bytes.len() as u64, &mut read).unwrap().0
}

/// From a million blocks to more than four times as many: every segment is split twice, and has
/// every size in between.
#[test]
fn a_block_costs_at_most_nine_and_a_half_bytes_and_few_probes_at_every_fill() {
    let mut index = MemoryIndex::new();
    for number in 0..4_500_000 {
        index.insert(fingerprint(number), address(number)).unwrap();
        if number >= 1_000_000 && number % 1000 == 0 {
            assert!(bytes_per_block(&index) <= BYTES_PER_BLOCK_MAX, "{number}: {}", bytes_per_block(&index));
        }
        if number >= 1_000_000 && number % 100_000 == 0 {
            let bytes = bytes_per_block(&read_back(&index));
            assert!(bytes <= BYTES_PER_BLOCK_MAX, "{number}, read back: {bytes}");
            let found_soon: u64 = index.stats().probe_lengths[..=5].iter().sum();
            assert!(found_soon * 100 > index.len() * 99, "{number}: {found_soon} within 32 slots");
        }
    }
}

/// Removal frees the memory of the entries, but not the segments that were made for them.
#[test]
fn removal_gives_memory_back() {
    let mut index = MemoryIndex::new();
    for number in 0..1_000_000 {
        index.insert(fingerprint(number), address(number)).unwrap();
    }
    for number in 0..500_000 {
        assert!(index.remove(fingerprint(number), address(number)));
    }
    assert!(bytes_per_block(&index) < 11.0, "{}", bytes_per_block(&index));
    for number in 500_000..1_000_000 {
        assert!(index.remove(fingerprint(number), address(number)));
    }
    assert!(index.is_empty());
    assert!(index.memory_bytes() < 1 << 20, "{}", index.memory_bytes());
}

#[test]
fn a_new_store_takes_little() {
    let mut index = MemoryIndex::new();
    for number in 0..100 {
        index.insert(fingerprint(number), address(number)).unwrap();
    }
    assert!(index.memory_bytes() < 64 << 10, "{}", index.memory_bytes());
}

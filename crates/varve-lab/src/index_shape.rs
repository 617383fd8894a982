//! The internal shape of an index in memory with a given number of blocks: the two histograms that
//! memventi reports about its own index (Lukkien 2008, section 7.2.4). No block is stored, so the
//! index can be as large as memory permits.

use std::collections::BTreeMap;

use serde::Serialize;
use varve_block::{Fingerprint, LogAddress};
use varve_index::{IndexFull, MemoryIndex};
use varve_log::{ClumpBytes, GRANULE_BYTES};
use varve_plan::shared_fingerprints;

use crate::cases::mix;

/// The entries of an index.
#[derive(Debug, Clone, Copy)]
pub struct IndexLoad {
    pub block_count: u64,
    /// Bytes of each block. The blocks do not compress, so this decides the range of the addresses.
    pub block_bytes: u64,
    pub seed: u64,
}

/// The number of occurrences of each value.
pub type Histogram = BTreeMap<usize, u64>;

/// The shape of a filled index.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexShape {
    pub block_count: u64,
    /// Total memory of the index.
    pub memory_bytes: u64,
    /// Minimum number of fingerprint bits that the index compares.
    pub fingerprint_bits: u32,
    /// Number of segments by entry count. In memventi: number of heads.
    pub segment_lengths: Histogram,
    /// Number of blocks by the neighbouring slots that a look-up visits. Memventi visits half a
    /// head.
    pub slots_looked_at: Histogram,
    /// Number of new blocks by the false candidates that the index proposed.
    pub candidates_when_written: Histogram,
    /// Number of existing blocks by their candidates, including the block itself.
    pub candidates_when_read: Histogram,
    /// Expected number of new blocks that share a fingerprint, by the thesis's formula 7.2 with
    /// these bits.
    pub expected_shared: f64,
}

/// Fills an index and examines it.
///
/// # Errors
/// [`IndexFull`].
#[expect(clippy::cast_precision_loss, reason = "an expectation has few digits")]
pub fn index_shape(load: &IndexLoad) -> Result<IndexShape, IndexFull> {
    let mut index = MemoryIndex::new();
    let mut candidates_when_written = Histogram::new();
    for number in 0..load.block_count {
        let (fingerprint, address) = load.entry(number);
        *candidates_when_written.entry(index.candidates(fingerprint).count()).or_default() += 1;
        index.insert(fingerprint, address)?;
    }
    let read = (0..load.block_count).map(|number| index.candidates(load.entry(number).0).count());
    let candidates_when_read = histogram(read);
    let fingerprint_bits = index.stats().fingerprint_bits;
    Ok(IndexShape {
        block_count: index.len(),
        memory_bytes: index.memory_bytes(),
        fingerprint_bits,
        segment_lengths: histogram(index.segment_lengths()),
        slots_looked_at: histogram(index.probe_lengths()),
        candidates_when_written,
        candidates_when_read,
        expected_shared: shared_fingerprints(load.block_count as f64, f64::from(fingerprint_bits)),
    })
}

impl IndexLoad {
    /// Returns an entry. As in a store, the blocks of one clump have one address.
    fn entry(&self, number: u64) -> (Fingerprint, LogAddress) {
        let clump_bytes = u64::from(ClumpBytes::default().get());
        let blocks_a_clump = (clump_bytes / self.block_bytes.max(1)).max(1);
        // The header of the clump and the names of its blocks need room beside it.
        let granules = (clump_bytes + 40 * blocks_a_clump) / GRANULE_BYTES;
        let granule = number / blocks_a_clump * granules;
        let address = LogAddress::new(granule.min(LogAddress::END - 1)).expect("less than the end");
        (Fingerprint(mix(self.seed ^ mix(number))), address)
    }
}

fn histogram(numbers: impl Iterator<Item = usize>) -> Histogram {
    let mut counts = Histogram::new();
    for number in numbers {
        *counts.entry(number).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_in_each_histogram_once() {
        let load = IndexLoad { block_count: 100_000, block_bytes: 8192, seed: 3 };
        let shape = index_shape(&load).unwrap();
        assert_eq!(shape.block_count, 100_000);
        for counts in [&shape.slots_looked_at, &shape.candidates_when_written, &shape.candidates_when_read] {
            assert_eq!(counts.values().sum::<u64>(), 100_000, "{counts:?}");
        }
        let entries = shape.segment_lengths.iter().map(|(length, count)| *length as u64 * count).sum::<u64>();
        assert_eq!(entries, 100_000);
        assert!(!shape.candidates_when_read.contains_key(&0), "all are found");
        assert!(shape.expected_shared < 1.0, "{shape:?}");
    }

    /// The formula and the count agree with the fewest bits that an index may compare.
    #[test]
    fn what_the_formula_foretells_is_met() {
        // Addresses so far apart leave the fewest bits for fingerprints.
        let load = IndexLoad { block_count: 900_000, block_bytes: 1 << 40, seed: 5 };
        let far = |number: u64| LogAddress::new(number << 19 & (LogAddress::END - 1)).unwrap();
        let mut index = MemoryIndex::new();
        let mut met = 0_u64;
        for number in 0..load.block_count {
            let fingerprint = load.entry(number).0;
            met += index.candidates(fingerprint).count() as u64;
            index.insert(fingerprint, far(number)).unwrap();
        }
        let bits = index.stats().fingerprint_bits;
        let expected = shared_fingerprints(load.block_count as f64, f64::from(bits));
        assert!((0.2..5.0).contains(&((met as f64 + 1.0) / (expected + 1.0))), "{met}, expected {expected}");
    }
}

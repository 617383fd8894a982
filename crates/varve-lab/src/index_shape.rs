//! What an index in memory looks like inside when so many blocks are in it: the two histograms that memventi tells of its own
//! (Lukkien 2008, section 7.2.4), of ours. No block is stored for it, so it can be as large as memory has room for.

use std::collections::BTreeMap;

use serde::Serialize;
use varve_block::{Fingerprint, LogAddress};
use varve_index::{IndexFull, MemoryIndex};
use varve_log::{ClumpBytes, GRANULE_BYTES};
use varve_plan::shared_fingerprints;

use crate::cases::mix;

/// What goes into an index.
#[derive(Debug, Clone, Copy)]
pub struct IndexLoad {
    /// How many blocks.
    pub block_count: u64,
    /// Bytes of each, none of which compress: they say how far the addresses go.
    pub block_bytes: u64,
    /// Which.
    pub seed: u64,
}

/// How often there was each number.
pub type Histogram = BTreeMap<usize, u64>;

/// What it looks like then.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexShape {
    /// Blocks in it.
    pub block_count: u64,
    /// All memory that it takes.
    pub memory_bytes: u64,
    /// Bits of a fingerprint that it compares, at least.
    pub fingerprint_bits: u32,
    /// How many segments have how many entries. Of memventi: how many heads.
    pub segment_lengths: Histogram,
    /// How many blocks are found by looking at how many neighbouring slots. Memventi goes through half a head.
    pub slots_looked_at: Histogram,
    /// How many new blocks met how many candidates that they are not.
    pub candidates_when_written: Histogram,
    /// How many blocks that are there have how many candidates, themselves among them.
    pub candidates_when_read: Histogram,
    /// How many new blocks were to meet another's fingerprint, by the thesis's formula 7.2 and these bits.
    pub expected_shared: f64,
}

/// Fills an index and looks at it.
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
    /// The blocks of one clump have one address, as in a store.
    fn entry(&self, number: u64) -> (Fingerprint, LogAddress) {
        let clump_bytes = u64::from(ClumpBytes::default().get());
        let blocks_a_clump = (clump_bytes / self.block_bytes.max(1)).max(1);
        // Its header, and the names of its blocks, lie beside it.
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

    /// With as few bits as an index may compare, the formula and the count agree.
    #[test]
    fn what_the_formula_foretells_is_met() {
        // So far apart that addresses leave the least of the fingerprints.
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

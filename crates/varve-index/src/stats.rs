//! Statistics of an index in memory, for `varve stats`.

use crate::memory_index::MemoryIndex;
use crate::segment::IndexSegment;

/// The fill of an index, and the cost of its look-ups.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexStats {
    /// Pairs of fingerprint and address.
    pub block_count: u64,
    /// All memory of the index, including overhead and unused capacity.
    pub memory_bytes: u64,
    /// The number of segments, each of which is rebuilt by itself.
    pub segment_count: usize,
    /// The slots of the largest segment, which bound the longest pause of an insertion.
    pub segment_slots_max: usize,
    /// The number of segments that are filled by 0 to 5 %, by 5 to 10 %, and so on.
    pub fills: [usize; 20],
    /// The number of blocks that are found by examining 1 slot, 2, up to 4, 8, 16, and so on; the
    /// last also counts any beyond.
    pub probe_lengths: [u64; 16],
    /// The number of blocks with 1 candidate, 2, 3, and so on, including themselves; the last also
    /// counts any beyond.
    pub candidates: [u64; 8],
    /// The least number of bits in which a candidate's fingerprint agrees with the requested one,
    /// over all segments.
    pub fingerprint_bits: u32,
    /// The average number of candidates that a look-up of an absent fingerprint finds.
    pub false_candidates_per_lookup: f64,
}

impl<const PAGE_SLOTS: usize> MemoryIndex<PAGE_SLOTS> {
    /// Returns the number of blocks of each segment.
    pub fn segment_lengths(&self) -> impl Iterator<Item = usize> {
        self.segments().iter().map(IndexSegment::len)
    }

    /// Returns, for each block, the number of slots that a search for it examines.
    pub fn probe_lengths(&self) -> impl Iterator<Item = usize> {
        self.segments().iter().flat_map(IndexSegment::probe_lengths)
    }

    /// Measures the index. Reads all blocks: about a second for 100 million.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        let segments = self.segments();
        let mut stats = IndexStats {
            block_count: self.len(),
            memory_bytes: self.memory_bytes(),
            segment_count: segments.len(),
            segment_slots_max: 0,
            fills: [0; 20],
            probe_lengths: [0; 16],
            candidates: [0; 8],
            fingerprint_bits: u64::BITS,
            false_candidates_per_lookup: 0.0,
        };
        for segment in segments {
            let slot_count = segment.slot_count();
            let fill = (segment.len() * stats.fills.len()).checked_div(slot_count).unwrap_or(0);
            stats.fills[fill.min(stats.fills.len() - 1)] += 1;
            for probe_length in segment.probe_lengths() {
                let power = probe_length.next_power_of_two().ilog2() as usize;
                stats.probe_lengths[power.min(stats.probe_lengths.len() - 1)] += 1;
            }
            for count in segment.candidate_counts() {
                stats.candidates[count.min(stats.candidates.len()) - 1] += count as u64;
            }
            stats.segment_slots_max = stats.segment_slots_max.max(slot_count);
            stats.fingerprint_bits = stats.fingerprint_bits.min(segment.fingerprint_bits());
            stats.false_candidates_per_lookup +=
                segment.len() as f64 * (-f64::from(segment.fingerprint_bits())).exp2();
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{Fingerprint, LogAddress};

    use super::*;

    #[test]
    fn every_block_is_counted_once() {
        let mut index = MemoryIndex::new();
        for number in 0..100_000u64 {
            let fingerprint = Fingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            index.insert(fingerprint, LogAddress::new(number).unwrap()).unwrap();
        }
        let stats = index.stats();
        assert_eq!(stats.block_count, 100_000);
        assert_eq!(stats.probe_lengths.iter().sum::<u64>(), 100_000);
        assert_eq!(stats.candidates, [100_000, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(stats.fills.iter().sum::<usize>(), stats.segment_count);
        assert_eq!(stats.memory_bytes, index.memory_bytes());
        assert_eq!(stats.fingerprint_bits, 64 - 16, "no address needed more than the 16 bits it began with");
        assert_eq!(stats.false_candidates_per_lookup, 100_000.0 / (1u64 << 48) as f64);
    }

    #[test]
    fn blocks_that_look_alike_are_each_other_s_candidates() {
        let mut index = MemoryIndex::new();
        for (fingerprint, addresses) in [(1 << 40, 0..1), (2 << 40, 1..4), (3 << 40, 4..14)] {
            for address in addresses {
                index.insert(Fingerprint(fingerprint), LogAddress::new(address).unwrap()).unwrap();
            }
        }
        assert_eq!(index.stats().candidates, [1, 0, 3, 0, 0, 0, 0, 10]);
    }

    #[test]
    fn an_empty_index_has_stats() {
        let stats = MemoryIndex::new().stats();
        assert_eq!((stats.block_count, stats.segment_count, stats.segment_slots_max), (0, 1, 0));
        assert_eq!(stats.false_candidates_per_lookup, 0.0);
        assert!(stats.memory_bytes < 1024);
    }
}

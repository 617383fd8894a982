//! The filter of leaves: a set whose memory is fixed when it is made. It may take an absent key for
//! a present one, and never the other way round.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler 2007): a key chooses one line of 512 bits, and
//! one bit in each of its eight words, so that an answer costs one miss of the processor's cache.

use varve_block::to_usize;

/// The words of a line, which is one line of the processor's cache.
const LINE_WORDS: usize = 8;
/// The bytes of a line.
const LINE_BYTES: u64 = 64;
/// The bytes of a filter for each key, if they are not limited.
const BYTES_PER_KEY: u64 = 2;

type LeafFilterLine = [u64; LINE_WORDS];

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct LeafFilter {
    lines: Vec<LeafFilterLine>,
    key_count: u64,
}

impl LeafFilter {
    /// Makes an empty filter for this number of keys, in at most this number of bytes. A filter
    /// that gets more keys stays right, and takes more absent keys for present ones.
    pub(super) fn new(key_count: u64, bytes_max: u64) -> Self {
        let bytes = key_count.saturating_mul(BYTES_PER_KEY).min(bytes_max);
        let line_count = bytes.div_ceil(LINE_BYTES).max(1);
        let line_count = to_usize(line_count);
        Self { lines: vec![LeafFilterLine::default(); line_count], key_count: 0 }
    }

    /// Adds a key of uniform bits. Returns true if it was absent.
    pub(super) fn insert(&mut self, key: (u64, u64)) -> bool {
        let line = self.line_of(key);
        let mut is_new = false;
        for (word, bit) in self.lines[line].iter_mut().zip(bits_of(key)) {
            is_new |= *word >> bit & 1 == 0;
            *word |= 1 << bit;
        }
        self.key_count += u64::from(is_new);
        is_new
    }

    /// Returns true if the key may have been added.
    pub(super) fn may_contain(&self, key: (u64, u64)) -> bool {
        self.lines[self.line_of(key)].iter().zip(bits_of(key)).all(|(word, bit)| word >> bit & 1 == 1)
    }

    /// Returns the number of insertions that found their key absent.
    pub(super) fn key_count(&self) -> u64 {
        self.key_count
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.lines.len() as u64 * LINE_BYTES
    }

    /// Returns the probability that the filter takes an absent key for a present one. It is exact
    /// for the bits as they are: the mean over all lines of the probability that all eight bits of
    /// a key are set.
    pub(super) fn false_positive_rate(&self) -> f64 {
        let share = |word: &u64| f64::from(word.count_ones()) / 64.0;
        let of_lines = self.lines.iter().map(|line| line.iter().map(share).product::<f64>());
        of_lines.sum::<f64>() / self.lines.len() as f64
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the count of lines")]
    fn line_of(&self, (first, _): (u64, u64)) -> usize {
        ((u128::from(first) * self.lines.len() as u128) >> 64) as usize
    }
}

/// Returns the number of a bit in each word of a line.
fn bits_of((_, second): (u64, u64)) -> impl Iterator<Item = u64> {
    (0..LINE_WORDS).map(move |word| second >> (6 * word) & 63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_world::{Random, SeededRandom};

    use super::*;

    fn keys(seed: u64, count: usize) -> Vec<(u64, u64)> {
        let mut bytes = vec![0; count * 16];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        let (words, _) = bytes.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().map(|[one, two]| (u64::from_le_bytes(*one), u64::from_le_bytes(*two))).collect()
    }

    /// Returns the measured share of absent keys that a filter takes for present ones.
    fn measured(filter: &LeafFilter) -> f64 {
        let absent = keys(77, 400_000);
        absent.iter().filter(|key| filter.may_contain(**key)).count() as f64 / absent.len() as f64
    }

    #[test]
    fn the_rate_is_as_computed() {
        for (count, bytes_max, most) in [
            (100_000, u64::MAX, 0.001),
            // 10 bits a key.
            (100_000, 125_000, 0.02),
            // 4 bits a key: still right, and useless.
            (100_000, 50_000, 0.5),
            (0, u64::MAX, 0.0),
        ] {
            let mut filter = LeafFilter::new(count, bytes_max);
            let present = keys(1, to_usize(count));
            for key in &present {
                filter.insert(*key);
            }
            assert!(present.iter().all(|key| filter.may_contain(*key)));
            let (computed, measured) = (filter.false_positive_rate(), measured(&filter));
            assert!((computed - measured).abs() <= 0.0003 + computed / 20.0, "{computed} and {measured}");
            assert!(computed <= most, "{computed} with {bytes_max}");
            assert!(filter.memory_bytes() <= (count * 2 + 64).min(bytes_max.saturating_add(63)));
        }
    }

    proptest! {
        #[test]
        fn a_filter_never_forgets(seed in any::<u64>(), count in 0_usize..500, room in 0_u64..500) {
            let mut filter = LeafFilter::new(room, u64::MAX);
            let keys = keys(seed, count);
            for (number, key) in keys.iter().enumerate() {
                let was_present = filter.may_contain(*key);
                prop_assert_eq!(filter.insert(*key), !was_present);
                prop_assert!(keys[..=number].iter().all(|key| filter.may_contain(*key)));
            }
            prop_assert!(filter.key_count() <= count as u64);
        }
    }
}

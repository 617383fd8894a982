//! The filter in front of the index on disk. It reports with certainty that a key is absent, and
//! seldom lets an absent key through.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler 2007): a key chooses one line of 512 bits, and
//! one bit in each of its eight words, so a look-up costs one miss of the processor's cache. At 16
//! bits a key, a full filter lets fewer than one absent key in a thousand through.

use varve_block::to_usize;

/// The words of a line, which is one line of the processor's cache.
const LINE_WORDS: usize = 8;
/// The bits of a filter for each key of its capacity.
const BITS_PER_KEY: u64 = 16;
/// The bits of a line.
const LINE_BITS: u64 = 512;

/// The bytes of a line.
pub(super) const LINE_BYTES: u64 = LINE_BITS / 8;

pub(super) type FilterLine = [u64; LINE_WORDS];

/// A set of keys with false positives.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    lines: Vec<FilterLine>,
    capacity: u64,
    /// The number of inserted keys. A key that was inserted twice counts twice.
    key_count: u64,
}

impl Filter {
    /// Makes an empty filter for `capacity` keys.
    pub(super) fn new(capacity: u64) -> Self {
        Self::in_memory(vec![FilterLine::default(); Self::lines_for(capacity)], capacity)
    }

    /// Makes an empty filter in the given lines of zeros.
    pub(super) fn in_memory(lines: Vec<FilterLine>, capacity: u64) -> Self {
        Self { lines, capacity, key_count: 0 }
    }

    /// Returns the number of lines of a filter that must fit into memory.
    pub(super) fn lines_for(capacity: u64) -> usize {
        let line_count = Self::line_count(capacity).map(to_usize);
        line_count.expect("a filter that memory can hold")
    }

    /// Returns the number of lines of a filter for `capacity` keys; `None` if there is no such
    /// filter.
    pub(super) fn line_count(capacity: u64) -> Option<u64> {
        Some(capacity.checked_mul(BITS_PER_KEY)?.div_ceil(LINE_BITS).max(1))
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn key_count(&self) -> u64 {
        self.key_count
    }

    pub(super) fn set_key_count(&mut self, key_count: u64) {
        self.key_count = key_count;
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.lines.len() as u64 * LINE_BYTES
    }

    pub(super) fn insert(&mut self, key: u64) {
        let at = self.line_of(key);
        for (word, bit) in self.lines[at].iter_mut().zip(bits_of(key)) {
            *word |= 1 << bit;
        }
        self.key_count = self.key_count.saturating_add(1);
    }

    /// Returns true if `key` may have been inserted. It is always true for inserted keys.
    pub(super) fn may_contain(&self, key: u64) -> bool {
        self.lines[self.line_of(key)].iter().zip(bits_of(key)).all(|(word, bit)| word >> bit & 1 == 1)
    }

    /// Returns the bytes of `count` lines from line `first` on, or of as many as exist.
    pub(super) fn lines_as_bytes(&self, first: usize, count: usize) -> Vec<u8> {
        let lines = self.lines.iter().skip(first).take(count);
        lines.flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Sets the lines from line `first` on from bytes.
    pub(super) fn set_lines(&mut self, first: usize, bytes: &[u8]) {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        for (place, word) in self.lines.iter_mut().skip(first).flatten().zip(words) {
            *place = word;
        }
    }

    /// The upper bits choose the line, so keys in ascending order access the filter sequentially.
    #[expect(clippy::cast_possible_truncation, reason = "less than the count of lines")]
    fn line_of(&self, key: u64) -> usize {
        ((u128::from(key) * self.lines.len() as u128) >> 64) as usize
    }
}

/// Returns the number of a bit in each word of a line.
fn bits_of(key: u64) -> impl Iterator<Item = u64> {
    // The finalizer of MurmurHash3: keys of one line differ in their lower bits only.
    let mut mixed = key;
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^= mixed >> 33;
    (0..LINE_WORDS).map(move |word| mixed >> (6 * word) & 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xffff
    }

    #[test]
    fn a_full_filter_lets_fewer_than_one_in_a_thousand_through() {
        let count = 200_000;
        let mut filter = Filter::new(count);
        (0..count).for_each(|number| filter.insert(key(number)));
        assert!((0..count).all(|number| filter.may_contain(key(number))));
        let through = (count..6 * count).filter(|number| filter.may_contain(key(*number))).count();
        assert!(through < 1000, "{through} of a million");
        assert_eq!((filter.key_count(), filter.memory_bytes()), (count, 2 * count));
    }

    #[test]
    fn a_filter_survives_the_round_trip() {
        let mut filter = Filter::new(1000);
        (0..1000).for_each(|number| filter.insert(key(number)));
        let mut back = Filter::new(1000);
        for first in (0..filter.lines.len()).step_by(3) {
            back.set_lines(first, &filter.lines_as_bytes(first, 3));
        }
        assert_eq!(back.lines, filter.lines);
        assert_eq!(Filter::line_count(1000), Some(filter.lines.len() as u64));
        assert_eq!(Filter::line_count(u64::MAX), None);
    }
}

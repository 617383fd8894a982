//! The filter in front of the index on disk: says for certain that a key is not there, and seldom that it may be when it is not.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler 2007): a key chooses one line of 512 bits, and one bit in each of its eight
//! words, so a look-up costs one miss of the processor's cache. At 16 bits a key, fewer than one absent key in a thousand gets
//! through when it is full.

/// Words of a line: one line of the processor's cache.
const LINE_WORDS: usize = 8;
/// Bits of a filter for each key that it is made for.
const BITS_PER_KEY: u64 = 16;
/// Bits of a line.
const LINE_BITS: u64 = 512;

/// Bytes of one line.
pub(super) const LINE_BYTES: u64 = LINE_BITS / 8;

pub(super) type Line = [u64; LINE_WORDS];

/// Which keys may be there.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    lines: Vec<Line>,
    capacity: u64,
    /// How many keys were inserted; one that was inserted twice counts twice.
    key_count: u64,
}

impl Filter {
    /// An empty filter that is full with so many keys.
    pub(super) fn new(capacity: u64) -> Self {
        Self::in_memory(vec![Line::default(); Self::lines_for(capacity)], capacity)
    }

    /// The same in as many lines of zeros as it has.
    pub(super) fn in_memory(lines: Vec<Line>, capacity: u64) -> Self {
        Self { lines, capacity, key_count: 0 }
    }

    /// How many lines a filter has that memory can hold.
    pub(super) fn lines_for(capacity: u64) -> usize {
        let line_count = Self::line_count(capacity).and_then(|count| usize::try_from(count).ok());
        line_count.expect("a filter that memory can hold")
    }

    /// The lines that a filter for so many keys has; `None` if there is no such filter.
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

    /// Whether `key` may have been inserted; true for all that were.
    pub(super) fn may_contain(&self, key: u64) -> bool {
        self.lines[self.line_of(key)].iter().zip(bits_of(key)).all(|(word, bit)| word >> bit & 1 == 1)
    }

    /// The bytes of `count` lines from line `first` on, or of as many as there are.
    pub(super) fn lines_as_bytes(&self, first: usize, count: usize) -> Vec<u8> {
        let lines = self.lines.iter().skip(first).take(count);
        lines.flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Takes the bits of the lines from line `first` on from bytes.
    pub(super) fn set_lines(&mut self, first: usize, bytes: &[u8]) {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        for (place, word) in self.lines.iter_mut().skip(first).flatten().zip(words) {
            *place = word;
        }
    }

    /// The upper bits choose the line, so keys that come in order go through the filter in order.
    #[expect(clippy::cast_possible_truncation, reason = "less than the count of lines")]
    fn line_of(&self, key: u64) -> usize {
        ((u128::from(key) * self.lines.len() as u128) >> 64) as usize
    }
}

/// One bit for each word of a line.
fn bits_of(key: u64) -> impl Iterator<Item = u64> {
    // MurmurHash3's finalizer: keys of one line differ in their lower bits only.
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

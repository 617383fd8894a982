//! The index in memory: all segments, and the order in which they are split.

use varve_block::{Fingerprint, LogAddress};

use crate::segment::{FINGERPRINT_BITS_MIN, IndexSegment, address_bits};

/// The largest number of blocks that an index holds.
pub const BLOCK_COUNT_MAX: u64 = 1 << 32;

/// The address bits of an empty index, chosen so that the first blocks do not each cause a rebuild
/// of its only segment.
const ADDRESS_BITS_FIRST: u32 = 16;

/// Maps fingerprints to candidates.
///
/// `PAGE_SLOTS` is 512, except in tests: tiny pages grow, overflow and split after a few blocks.
#[derive(Debug, Clone)]
pub struct MemoryIndex<const PAGE_SLOTS: usize = 512> {
    /// The number of a segment is its prefix with the bits reversed. With 2^b segments, all
    /// prefixes have b bits; beyond that, the first segments have been split once more, in order.
    /// So a new segment is always appended.
    segments: Vec<IndexSegment<PAGE_SLOTS>>,
    len: u64,
    /// The slots of the segment that is being rebuilt.
    scratch: Vec<u64>,
}

/// The index is full: it holds [`BLOCK_COUNT_MAX`] blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index is full: it holds {BLOCK_COUNT_MAX} blocks, its limit")]
pub struct IndexFull;

impl MemoryIndex {
    /// Makes an empty index, in less than a kilobyte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<const PAGE_SLOTS: usize> Default for MemoryIndex<PAGE_SLOTS> {
    fn default() -> Self {
        Self::from_segments(vec![IndexSegment::new(0, ADDRESS_BITS_FIRST)])
    }
}

impl<const PAGE_SLOTS: usize> MemoryIndex<PAGE_SLOTS> {
    /// The average number of blocks in a segment; each has half to twice as many.
    const SEGMENT_BLOCKS: u64 = 32 * PAGE_SLOTS as u64;

    /// Makes an index of segments. `segments` is not empty, and each has the prefix of
    /// [`prefix_bits`].
    pub(crate) fn from_segments(segments: Vec<IndexSegment<PAGE_SLOTS>>) -> Self {
        let len = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { segments, len, scratch: Vec::new() }
    }

    pub(crate) fn segments(&self) -> &[IndexSegment<PAGE_SLOTS>] {
        &self.segments
    }

    /// Returns the number of pairs of fingerprint and address.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if it holds no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its memory, including the allocator's overhead and unused capacity. Takes time in
    /// proportion to the segments, not to the blocks.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let segments = self.segments.iter().map(IndexSegment::heap_bytes).sum::<usize>();
        let headers = self.segments.capacity() * size_of::<IndexSegment<PAGE_SLOTS>>();
        (size_of::<Self>() + segments + headers + self.scratch.capacity() * size_of::<u64>()) as u64
    }

    /// Returns the candidates of a fingerprint in order: every address that was inserted for it,
    /// and seldom another. Looks at about seven adjacent slots, and allocates nothing.
    pub fn candidates(&self, fingerprint: Fingerprint) -> impl Iterator<Item = LogAddress> {
        self.segments[self.segment_of(fingerprint)].candidates(fingerprint)
    }

    /// Adds `address` to the candidates of `fingerprint`. Returns true if it was not among them
    /// before.
    ///
    /// An address should have one fingerprint. Two fingerprints with the same address that agree in
    /// all kept bits count as one.
    ///
    /// Pauses for at most one pass over one segment, as long as addresses do not jump: if an
    /// address is more than twice as large as any before it, all segments may be split at once.
    ///
    /// # Errors
    /// [`IndexFull`] when the pair is new and there are [`BLOCK_COUNT_MAX`] already.
    pub fn insert(&mut self, fingerprint: Fingerprint, address: LogAddress) -> Result<bool, IndexFull> {
        if self.len >= BLOCK_COUNT_MAX {
            let present = self.segments[self.segment_of(fingerprint)].contains(fingerprint, address);
            return if present { Ok(false) } else { Err(IndexFull) };
        }
        while self.is_due_to_split(address) {
            self.split_next();
        }
        let number = self.segment_of(fingerprint);
        let segment = &mut self.segments[number];
        let len_before = segment.len() as u64;
        segment.widen(address_bits(address), &mut self.scratch);
        let added = segment.insert(fingerprint, address, &mut self.scratch);
        self.len = self.len - len_before + segment.len() as u64;
        Ok(added)
    }

    /// Removes `address` from the candidates of `fingerprint`. Returns true if it was among them.
    pub fn remove(&mut self, fingerprint: Fingerprint, address: LogAddress) -> bool {
        let number = self.segment_of(fingerprint);
        let removed = self.segments[number].remove(fingerprint, address, &mut self.scratch);
        self.len -= u64::from(removed);
        removed
    }

    fn segment_of(&self, fingerprint: Fingerprint) -> usize {
        let backwards = fingerprint.0.reverse_bits();
        let level = self.segments.len().ilog2();
        let number = low_bits(backwards, level + 1);
        if number < self.segments.len() { number } else { low_bits(backwards, level) }
    }

    /// Segments must not grow too large. Their prefix must also be long enough that a slot with
    /// `address` keeps [`FINGERPRINT_BITS_MIN`] bits: `address_bits - (64 - FINGERPRINT_BITS_MIN)`
    /// bits of prefix are needed. As long as addresses rise by less than 2^25 a block, either
    /// condition requires one segment at a time.
    fn is_due_to_split(&self, address: LogAddress) -> bool {
        let segment_count = self.segments.len() as u64;
        let for_address = (address.granule() + 1) >> (u64::BITS - FINGERPRINT_BITS_MIN - 1);
        segment_count * Self::SEGMENT_BLOCKS <= self.len || segment_count < for_address
    }

    fn split_next(&mut self) {
        let level = self.segments.len().ilog2();
        let split_number = self.segments.len() - (1 << level);
        let split_off = self.segments[split_number].split(&mut self.scratch);
        self.segments.push(split_off);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "`count` is the size of a segment's number")]
fn low_bits(bits: u64, count: u32) -> usize {
    (bits & ((1 << count) - 1)) as usize
}

/// Returns the number of leading bits of a fingerprint that select segment `number` of
/// `segment_count`.
pub(crate) fn prefix_bits(number: usize, segment_count: usize) -> u32 {
    let level = segment_count.ilog2();
    let split_count = segment_count - (1 << level);
    if number % (1 << level) < split_count { level + 1 } else { level }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(granule: u64) -> LogAddress {
        LogAddress::new(granule).unwrap()
    }

    #[test]
    fn a_full_index_takes_no_more() {
        let mut index = MemoryIndex::new();
        assert_eq!(index.insert(Fingerprint(1), address(1)), Ok(true));
        index.len = BLOCK_COUNT_MAX;
        assert_eq!(index.insert(Fingerprint(1), address(1)), Ok(false));
        assert_eq!(index.insert(Fingerprint(1), address(2)), Err(IndexFull));
        assert_eq!(index.insert(Fingerprint(1), address(LogAddress::END - 1)), Err(IndexFull));
        assert!(index.remove(Fingerprint(1), address(1)));
        assert_eq!(index.insert(Fingerprint(1), address(2)), Ok(true));
    }

    #[test]
    fn every_fingerprint_goes_to_the_segment_of_its_prefix() {
        for segment_count in 1..70 {
            let prefixes = (0..segment_count).map(|number| prefix_bits(number, segment_count));
            let index =
                MemoryIndex::<4>::from_segments(prefixes.map(|bits| IndexSegment::new(bits, 16)).collect());
            for first_bits in 0..256u64 {
                let number = index.segment_of(Fingerprint(first_bits << 56));
                let prefix = first_bits >> (8 - prefix_bits(number, segment_count));
                let expected = prefix.reverse_bits() >> (64 - prefix_bits(number, segment_count)).min(63);
                assert_eq!(number as u64, expected, "{first_bits:08b} of {segment_count}");
            }
        }
    }

    /// The first blocks of an index may have high addresses in an old log.
    #[test]
    fn far_addresses_leave_enough_bits_to_fingerprints() {
        let mut index = MemoryIndex::new();
        for far in 1..LogAddress::BITS {
            for granule in [(1 << far) - 1, 1 << far] {
                assert_eq!(index.insert(Fingerprint(u64::MAX << far), address(granule)), Ok(true));
                assert!(
                    index.candidates(Fingerprint(u64::MAX << far)).any(|found| found == address(granule))
                );
            }
            assert!(index.stats().fingerprint_bits >= FINGERPRINT_BITS_MIN, "{far}");
        }
        assert_eq!(index.insert(Fingerprint(0), address(LogAddress::END - 1)), Ok(true));
        assert_eq!(index.candidates(Fingerprint(0)).collect::<Vec<_>>(), [address(LogAddress::END - 1)]);
        assert!(index.stats().fingerprint_bits >= FINGERPRINT_BITS_MIN);
    }

    #[test]
    fn what_a_longer_log_makes_the_same_is_counted_once() {
        let mut index = MemoryIndex::new();
        for fingerprint in [0, 1 << 20, 1 << 40] {
            assert_eq!(index.insert(Fingerprint(fingerprint), address(7)), Ok(true));
        }
        assert_eq!(index.insert(Fingerprint(0), address(1 << 25)), Ok(true));
        assert_eq!(index.len(), 3);
        assert_eq!(index.candidates(Fingerprint(1 << 20)).count(), 2);
    }
}

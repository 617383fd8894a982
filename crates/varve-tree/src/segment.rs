//! Cuts a file in segments that are scanned at the same time, with the same cuts as one scan from
//! its beginning to its end.
//!
//! ```text
//! segment      |          own bytes           |   window    |
//! presumed     |·····|····|·······|···|····|······|            as if a leaf began at the first byte
//! real         ──>|·····|·········|···|····|······|            from the end of the segment before
//!                                 └ here both agree, and so they do in the rest of the segment
//! ```
//!
//! A cut depends only on the start of its leaf and on the bytes after it. So once a real leaf
//! begins where a presumed one does, all that follow are the same, and only the leaves before that
//! place are cut twice.

use crate::cut::{Cutter, Cutting};

/// A segment of a file, with its presumed leaves: those that it has if one begins at its start.
pub struct CutSegment<'a> {
    cutter: Cutter,
    bytes: &'a [u8],
    own_bytes: usize,
    /// The starts of the presumed leaves, in order, and the end of the last one.
    presumed: Vec<usize>,
}

/// The leaves that begin in a segment.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentLeaves<'a> {
    pub leaves: Vec<&'a [u8]>,
    /// The bytes of the next segment that belong to leaves before it. Its first leaf begins after
    /// them.
    pub next_start: usize,
}

impl<'a> CutSegment<'a> {
    /// Scans the first `own_bytes` of `bytes`, which are the segment. The bytes after them are
    /// those of the next segments: [`Cutting::max`] of them, or fewer if the file ends there or a
    /// hole begins.
    ///
    /// # Panics
    /// When there are fewer bytes than `own_bytes`.
    #[must_use]
    pub fn scan(cutting: &Cutting, bytes: &'a [u8], own_bytes: usize) -> Self {
        assert!(own_bytes <= bytes.len(), "a segment has its own bytes");
        let cutter = Cutter::new(cutting);
        let mut presumed = vec![0];
        let mut start = 0;
        while start < own_bytes {
            start += cutter.cut(&bytes[start..]);
            presumed.push(start);
        }
        Self { cutter, bytes, own_bytes, presumed }
    }

    /// Returns the leaves that begin in the segment, if the first of them begins at `start`.
    #[must_use]
    pub fn leaves_from(&self, mut start: usize) -> SegmentLeaves<'a> {
        let mut leaves = Vec::new();
        while start < self.own_bytes {
            if let Ok(number) = self.presumed.binary_search(&start) {
                let rest = self.presumed[number..].windows(2);
                leaves.extend(rest.map(|ends| &self.bytes[ends[0]..ends[1]]));
                start = self.presumed.last().copied().unwrap_or(start);
                break;
            }
            let end = start + self.cutter.cut(&self.bytes[start..]);
            leaves.push(&self.bytes[start..end]);
            start = end;
        }
        SegmentLeaves { leaves, next_start: start - self.own_bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lengths of the leaves, cut in one scan.
    fn whole(cutting: &Cutting, mut bytes: &[u8]) -> Vec<usize> {
        let cutter = Cutter::new(cutting);
        let mut lengths = Vec::new();
        while !bytes.is_empty() {
            let length = cutter.cut(bytes);
            lengths.push(length);
            bytes = &bytes[length..];
        }
        lengths
    }

    /// The same, cut in segments that end at `borders`.
    fn in_segments(cutting: &Cutting, bytes: &[u8], borders: &[usize]) -> Vec<usize> {
        let (mut lengths, mut begin, mut start) = (Vec::new(), 0, 0);
        for end in borders.iter().copied().chain([bytes.len()]) {
            let with_window = (end + cutting.max() as usize).min(bytes.len());
            let segment = CutSegment::scan(cutting, &bytes[begin..with_window], end - begin);
            let SegmentLeaves { leaves, next_start } = segment.leaves_from(start);
            lengths.extend(leaves.iter().map(|leaf| leaf.len()));
            (begin, start) = (end, next_start);
        }
        assert_eq!(start, 0, "the last leaf ends with the file");
        lengths
    }

    /// Runs of noise, of one byte, and of a short pattern, in which the cuts of different starts
    /// agree soon, late, or never.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let run = prop_oneof![
            (any::<u64>(), 1..6000_usize).prop_map(|(seed, length)| noise(seed, length)),
            (any::<u8>(), 1..6000_usize).prop_map(|(byte, length)| vec![byte; length]),
            (proptest::collection::vec(any::<u8>(), 2..40), 1..6000_usize)
                .prop_map(|(pattern, length)| pattern.into_iter().cycle().take(length).collect()),
        ];
        proptest::collection::vec(run, 0..6).prop_map(|runs| runs.concat())
    }

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[7]
        };
        (0..length).map(|_| next()).collect()
    }

    proptest! {
        #[test]
        fn segments_have_the_cuts_of_the_whole(
            bytes in contents(),
            borders in proptest::collection::vec(any::<usize>(), 0..8),
            sizes in prop_oneof![Just((64, 256, 1024)), Just((64, 1024, 2048)), Just((256, 256, 256))],
        ) {
            let cutting = Cutting::new(sizes.0, sizes.1, sizes.2).unwrap();
            let mut borders: Vec<usize> = borders.iter().map(|border| border % (bytes.len() + 1)).collect();
            borders.sort_unstable();
            prop_assert_eq!(in_segments(&cutting, &bytes, &borders), whole(&cutting, &bytes));
        }
    }

    #[test]
    fn every_border_gives_the_same_cuts() {
        let cutting = Cutting::new(64, 256, 1024).unwrap();
        let bytes = [noise(3, 2000), vec![7; 2500], noise(5, 500)].concat();
        let expected = whole(&cutting, &bytes);
        for border in 0..=bytes.len() {
            assert_eq!(in_segments(&cutting, &bytes, &[border]), expected, "{border}");
        }
    }

    #[test]
    fn only_the_first_leaves_of_a_segment_are_cut_twice() {
        let bytes = noise(1, 24 << 20);
        let middle = 12 << 20;
        let segment = CutSegment::scan(&Cutting::FILE, &bytes[middle..], bytes.len() - middle);
        let SegmentLeaves { leaves, .. } = segment.leaves_from(12_345);
        let first =
            leaves.first().map_or(0, |leaf| leaf.as_ptr() as usize - bytes[middle..].as_ptr() as usize);
        assert_eq!(first, 12_345);
        let (mut start, mut cut_again) = (first, 0);
        for leaf in &leaves {
            if segment.presumed.binary_search(&start).is_ok() {
                break;
            }
            (start, cut_again) = (start + leaf.len(), cut_again + 1);
        }
        assert!(cut_again < leaves.len() / 10, "{cut_again} of {} leaves", leaves.len());
    }
}

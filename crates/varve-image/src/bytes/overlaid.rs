//! Bytes that show parts of other bytes in some places.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

use crate::bytes::read_at::ReadAt;

/// A part of other bytes that is shown.
struct ShownPart {
    end: u64,
    source: Arc<dyn ReadAt>,
    /// The offset in the source.
    at: u64,
}

/// Bytes of which some ranges are read from elsewhere. Nothing is written.
pub(crate) struct OverlaidBytes {
    base: Arc<dyn ReadAt>,
    /// By their first offset. They do not overlap.
    parts: BTreeMap<u64, ShownPart>,
}

impl OverlaidBytes {
    pub(crate) fn new(base: Arc<dyn ReadAt>) -> Self {
        Self { base, parts: BTreeMap::new() }
    }

    /// Shows the bytes of `source` from `at` in a range that shows none yet.
    pub(crate) fn show(&mut self, range: Range<u64>, source: Arc<dyn ReadAt>, at: u64) {
        self.parts.insert(range.start, ShownPart { end: range.end, source, at });
    }

    /// Iterates over the ranges that are read from elsewhere, in ascending order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.parts.iter().map(|(start, part)| *start..part.end)
    }
}

impl ReadAt for OverlaidBytes {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.base.read_at(offset, into)?;
        let before = self.parts.range(..offset).next_back();
        for (start, part) in before.into_iter().chain(self.parts.range(offset..end)) {
            let shown = offset.max(*start)..end.min(part.end);
            if shown.is_empty() {
                continue;
            }
            let place = |at: u64| to_usize(at.saturating_sub(offset));
            let into = into.get_mut(place(shown.start)..place(shown.end)).unwrap_or_default();
            part.source.read_at(part.at.saturating_add(shown.start.saturating_sub(*start)), into)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn every_read_shows_the_parts() {
        let base: Arc<dyn ReadAt> = Arc::new(vec![0; 40]);
        let source: Arc<dyn ReadAt> = Arc::new((100..120).collect::<Vec<u8>>());
        let mut bytes = OverlaidBytes::new(base);
        for (range, at) in [(0..3, 7), (10..15, 0), (15..16, 9), (38..40, 18)] {
            bytes.show(range, Arc::clone(&source), at);
        }
        let mut all = [0; 40];
        bytes.read_at(0, &mut all).unwrap();
        assert_eq!(all[..4], [107, 108, 109, 0]);
        assert_eq!(all[9..18], [0, 100, 101, 102, 103, 104, 109, 0, 0]);
        assert_eq!(all[37..], [0, 118, 119]);
        for start in 0..40 {
            for end in start..=40 {
                let mut some = vec![1; end - start];
                bytes.read_at(start as u64, &mut some).unwrap();
                assert_eq!(some, all[start..end], "{start}..{end}");
            }
        }
        assert!(bytes.read_at(39, &mut [0; 2]).is_err() && bytes.read_at(u64::MAX, &mut [0; 2]).is_err());
    }
}

//! The map of a sparse file: the ranges that have data. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::pax::decimal;
use varve_block::to_usize;

/// Upper bound on the ranges of a file.
pub(super) const RANGE_COUNT_MAX: usize = 4 << 20;

/// The map of a sparse file is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the map of a sparse file is malformed, or does not fit its data")]
pub struct SparseError;

/// The ranges of a sparse file that have data, in ascending order, without overlaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// Offset and length.
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) size: u64,
}

impl SparseMap {
    /// A map for a file of `size` bytes whose archived data has `data_bytes`.
    pub(super) fn new(ranges: Vec<(u64, u64)>, size: u64, data_bytes: u64) -> Result<Self, SparseError> {
        let (mut position, mut data) = (0_u64, 0_u64);
        for (offset, length) in &ranges {
            if *offset < position {
                return Err(SparseError);
            }
            position = offset.checked_add(*length).ok_or(SparseError)?;
            data = data.checked_add(*length).ok_or(SparseError)?;
        }
        if position > size || data > data_bytes || ranges.len() > RANGE_COUNT_MAX {
            return Err(SparseError);
        }
        Ok(Self { ranges, size })
    }
}

/// The ranges of versions 0.0 and 0.1: a list of numbers.
pub(super) fn ranges(numbers: &[u64]) -> Result<Vec<(u64, u64)>, SparseError> {
    let pairs = numbers.chunks(2).map(|pair| match pair {
        [offset, length] => Ok((*offset, *length)),
        _ => Err(SparseError),
    });
    pairs.collect()
}

/// The numbers of version 0.1: decimal, with commas.
pub(super) fn listed(text: &[u8]) -> Result<Vec<u64>, SparseError> {
    text.split(|byte| *byte == b',').map(|number| decimal(number).ok_or(SparseError)).collect()
}

/// Collects the map of version 1.0, which is before the data: the number of ranges and then the
/// ranges, one number a line, up to the end of a block.
#[derive(Debug, Default)]
pub(super) struct LeadingMap {
    numbers: Vec<u64>,
    digits: Vec<u8>,
}

impl LeadingMap {
    /// Adds a block. Returns the ranges once they are complete.
    pub(super) fn add(&mut self, block: &[u8]) -> Result<Option<Vec<(u64, u64)>>, SparseError> {
        for byte in block {
            if self.is_complete()? {
                break;
            }
            match byte {
                b'\n' => {
                    self.numbers.push(decimal(&self.digits).ok_or(SparseError)?);
                    self.digits.clear();
                }
                digit if digit.is_ascii_digit() && self.digits.len() < 20 => self.digits.push(*digit),
                _ => return Err(SparseError),
            }
        }
        if self.is_complete()? {
            return ranges(self.numbers.get(1..).unwrap_or_default()).map(Some);
        }
        Ok(None)
    }

    fn is_complete(&self) -> Result<bool, SparseError> {
        let Some(count) = self.numbers.first() else { return Ok(false) };
        let count = Some(to_usize(*count)).filter(|count| *count <= RANGE_COUNT_MAX).ok_or(SparseError)?;
        Ok(self.numbers.len().saturating_sub(1) >= count.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_fit_their_data() {
        assert!(SparseMap::new(vec![(0, 5), (10, 5)], 20, 10).is_ok());
        assert!(SparseMap::new(vec![(0, 5), (4, 5)], 20, 10).is_err(), "overlap");
        assert!(SparseMap::new(vec![(0, 5)], 4, 10).is_err(), "beyond the end");
        assert!(SparseMap::new(vec![(0, 5)], 20, 4).is_err(), "more than there is");
        assert!(SparseMap::new(vec![(u64::MAX, 5)], u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn a_leading_map_may_have_several_blocks() {
        let mut map = LeadingMap::default();
        assert_eq!(map.add(b"2\n0\n5"), Ok(None));
        assert_eq!(map.add(b"\n10\n5\n\0\0"), Ok(Some(vec![(0, 5), (10, 5)])));
        assert_eq!(LeadingMap::default().add(b"0\n"), Ok(Some(Vec::new())));
        assert_eq!(LeadingMap::default().add(b"99999999999\n"), Err(SparseError));
        assert_eq!(LeadingMap::default().add(b"1\nx"), Err(SparseError));
        assert_eq!(listed(b"0,5,10,5").and_then(|numbers| ranges(&numbers)), Ok(vec![(0, 5), (10, 5)]));
        assert_eq!(ranges(&[1]), Err(SparseError));
    }
}

//! Presents several ranges of a disk as one.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

use crate::bytes::read_at::ReadAt;

/// Ranges of a disk, one after the other.
pub(crate) struct JoinedRanges {
    disk: Arc<dyn ReadAt>,
    /// The offset of each piece in the whole, and its range on the disk.
    pieces: Vec<(u64, Range<u64>)>,
    size: u64,
}

impl JoinedRanges {
    pub(crate) fn new(disk: Arc<dyn ReadAt>, pieces: Vec<Range<u64>>) -> Self {
        let mut size = 0_u64;
        let mut placed = Vec::new();
        for piece in pieces {
            let length = piece.end.saturating_sub(piece.start);
            placed.push((size, piece));
            size = size.saturating_add(length);
        }
        Self { disk, pieces: placed, size }
    }
}

impl ReadAt for JoinedRanges {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let after = self.pieces.partition_point(|(begin, _)| *begin <= offset);
        let pieces = self.pieces.get(after.saturating_sub(1)..).unwrap_or_default();
        let (mut offset, mut rest) = (offset, into);
        for (begin, place) in pieces {
            let from = place.start.saturating_add(offset.saturating_sub(*begin));
            let present = to_usize(place.end.saturating_sub(from));
            let (now, later) = rest.split_at_mut(present.min(rest.len()));
            self.disk.read_at(from, now)?;
            offset = offset.saturating_add(now.len() as u64);
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_read_as_one() {
        let disk: Arc<dyn ReadAt> = Arc::new((0..100).collect::<Vec<u8>>());
        let joined = JoinedRanges::new(disk, vec![50..53, 10..12, 90..95]);
        let mut all = [0; 10];
        joined.read_at(0, &mut all).unwrap();
        assert_eq!(all, [50, 51, 52, 10, 11, 90, 91, 92, 93, 94]);
        for from in 0..10 {
            let mut some = vec![0; (10 - from).min(4)];
            joined.read_at(from as u64, &mut some).unwrap();
            assert_eq!(some, &all[from..from + some.len()], "from {from}");
        }
        assert!(joined.read_at(8, &mut [0; 3]).is_err());
        assert!(joined.read_at(u64::MAX, &mut [0; 3]).is_err());
    }
}

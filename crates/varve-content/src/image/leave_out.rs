//! Replaces left-out parts of an image by zeros, whatever the source holds there.

use varve_block::to_usize;
use varve_image::Ranges;

use super::image_piece::ImagePiece;

/// The first part of a piece that is entirely read or entirely left out. Only data is split,
/// because other pieces cost no reading.
///
/// Pieces begin at multiples of the block size. A left-out range therefore becomes a hole only
/// where it fills whole blocks. In blocks that it shares with other data it is [blanked](blank).
pub(super) fn part_of(piece: ImagePiece, left_out: &Ranges, block_bytes: u64) -> ImagePiece {
    let ImagePiece::Data { offset, bytes } = piece else { return piece };
    let end = offset + bytes;
    let Some(next) = left_out.next_after(offset).filter(|next| next.start < end) else { return piece };
    if next.start > offset {
        let start = next.start.next_multiple_of(block_bytes).min(end);
        return ImagePiece::Data { offset, bytes: start - offset };
    }
    let hole_end = if next.end >= end { end } else { next.end / block_bytes * block_bytes };
    if hole_end > offset {
        return ImagePiece::Hole { bytes: hole_end - offset };
    }
    ImagePiece::Data { offset, bytes: block_bytes.min(bytes) }
}

/// Overwrites the left-out ranges with zeros in bytes that were read from `offset` on.
pub(super) fn blank(bytes: &mut [u8], offset: u64, left_out: &Ranges) {
    let end = offset + bytes.len() as u64;
    let mut place = offset;
    while let Some(range) = left_out.next_after(place).filter(|range| range.start < end) {
        let inside = |at: u64| to_usize(at.clamp(offset, end) - offset);
        bytes[inside(range.start)..inside(range.end)].fill(0);
        place = range.end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = 8;

    proptest! {
        #[test]
        fn all_that_is_left_out_is_zeros_and_nothing_else(
            size in 1..300_u64,
            left_out in prop::collection::vec((0..300_u64, 0..60_u64), 0..6),
        ) {
            let left_out: Ranges = left_out.into_iter().map(|(start, length)| start..start + length).collect();
            let source: Vec<u8> = (0..size).map(|at| u8::try_from(at % 255 + 1).unwrap()).collect();
            let mut expected = source.clone();
            for at in left_out.iter().flatten().filter(|at| *at < size) {
                expected[to_usize(at)] = 0;
            }
            let mut archived = Vec::new();
            let mut read = 0;
            while (archived.len() as u64) < size {
                let offset = archived.len() as u64;
                prop_assert_eq!(offset % BLOCK, 0);
                let piece = ImagePiece::Data { offset, bytes: (size - offset).min(4 * BLOCK) };
                match part_of(piece, &left_out, BLOCK) {
                    ImagePiece::Hole { bytes } => archived.extend(std::iter::repeat_n(0, to_usize(bytes))),
                    ImagePiece::Data { offset: from, bytes } => {
                        prop_assert!(from == offset && bytes > 0);
                        let from = to_usize(offset);
                        let mut part = source[from..from + to_usize(bytes)].to_vec();
                        blank(&mut part, offset, &left_out);
                        archived.extend(part);
                        read += bytes;
                    }
                    ImagePiece::Bytes { .. } | ImagePiece::Unchanged { .. } => prop_assert!(false, "it was data"),
                }
            }
            prop_assert_eq!(archived, expected);
            // Only blocks that contain kept data are read.
            let needed = (0..size).step_by(8).filter(|block| (*block..(block + BLOCK).min(size)).any(|at| {
                left_out.next_after(at).is_none_or(|range| range.start > at)
            }));
            prop_assert_eq!(read.div_ceil(BLOCK), needed.count() as u64);
        }
    }
}

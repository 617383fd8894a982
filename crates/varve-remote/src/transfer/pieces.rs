//! Cuts received bytes into pieces that are aligned to the pages of a file.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use varve_block::to_usize;
use varve_world::PAGE_BYTES;

use crate::transfer::spare_buffers::{BorrowedBuffer, SpareBuffers};

/// A piece ends at a multiple of this offset in the file. It is half a huge page: large enough for
/// a disk, and small enough to stay in the processor's cache until it is checked and written.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a file that are being cut into pieces.
pub(crate) struct PieceCutter {
    spare: Arc<SpareBuffers>,
    /// The piece that is being filled, after this many bytes of padding.
    filling: Option<(BorrowedBuffer, usize)>,
    /// The offset of the next byte in the file.
    place: u64,
}

impl PieceCutter {
    /// Begins pieces at offset `place` of the file.
    pub fn new(spare: Arc<SpareBuffers>, place: u64) -> Self {
        Self { spare, filling: None, place }
    }

    /// Returns the memory for the next bytes of the file; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        let within = |unit: usize| to_usize(self.place % unit as u64);
        let (left, before) = (PIECE_BYTES - within(PIECE_BYTES), within(PAGE_BYTES));
        let (filling, _) = self.filling.get_or_insert_with(|| {
            let mut buffer = self.spare.take(PIECE_BYTES);
            // Aligns the piece in memory as in the file, relative to a page.
            buffer.bytes.resize(before);
            (buffer, before)
        });
        filling.bytes.room(left)
    }

    /// Adds `count` bytes that were written to the [room](Self::room). Returns the piece if it is
    /// full.
    pub fn advance(&mut self, count: usize) -> Option<Bytes> {
        let (filling, _) = self.filling.as_mut()?;
        filling.bytes.advance(count);
        self.place += count as u64;
        if self.place.is_multiple_of(PIECE_BYTES as u64) { self.finish() } else { None }
    }

    /// Moves bytes from `part` to the current piece, as many as fit. Returns the piece if it is
    /// full.
    pub fn add(&mut self, part: &mut Bytes) -> Option<Bytes> {
        let room = self.room();
        let count = part.len().min(room.len());
        part.copy_to_slice(&mut room[..count]);
        self.advance(count)
    }

    /// Returns the incomplete piece; `None` if the last one was full.
    pub fn finish(&mut self) -> Option<Bytes> {
        self.filling.take().map(|(buffer, before)| buffer.freeze().slice(before..))
    }

    /// Returns what has come of the last piece, up to the end of a page of the file, if there are
    /// whole pages. The rest is lost.
    pub fn finish_pages(&mut self) -> Option<Bytes> {
        let surplus = to_usize(self.place % PAGE_BYTES as u64);
        let piece = self.finish()?;
        let length = piece.len().checked_sub(surplus).filter(|length| *length > 0)?;
        Some(piece.slice(..length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_piece_ends_with_a_page() {
        for (place, count, expected) in [
            (0, 10_000, Some(8192)),
            (0, 4096, Some(4096)),
            (5, 4090, None),
            (5, 4092, Some(4091)),
            (4096, 0, None),
            (100, 9000, Some(8092)),
        ] {
            let mut pieces = PieceCutter::new(Arc::default(), place);
            let mut part = Bytes::from(vec![7; count]);
            assert!(pieces.add(&mut part).is_none());
            let pages = pieces.finish_pages().map(|pages| pages.len());
            assert_eq!(pages, expected, "{count} bytes at {place}");
        }
    }

    #[test]
    fn pieces_are_pages_of_the_file() {
        let pattern: Vec<u8> =
            (0..5_000_000_u32).map(|number| number.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
        for (place, part_bytes) in
            [(0, 100_000), (128, 999_999), (3 * PIECE_BYTES as u64 - 1, 1), (5000, 5_000_000)]
        {
            let length = if part_bytes == 1 { 10_000 } else { pattern.len() };
            let mut pieces = PieceCutter::new(Arc::default(), place);
            let mut made = Vec::new();
            for part in pattern[..length].chunks(part_bytes) {
                let mut part = Bytes::copy_from_slice(part);
                while !part.is_empty() {
                    made.extend(pieces.add(&mut part));
                }
            }
            made.extend(pieces.finish());
            assert!(pieces.finish().is_none());
            assert!(made.concat() == pattern[..length], "from {place}");
            let mut at = place;
            for (number, piece) in made.iter().enumerate() {
                let within_page = to_usize(at % PAGE_BYTES as u64);
                assert_eq!(piece.as_ptr().addr() % PAGE_BYTES, within_page, "piece {number} from {place}");
                at += piece.len() as u64;
                assert!(
                    number + 1 == made.len() || at.is_multiple_of(PIECE_BYTES as u64),
                    "piece {number} from {place}"
                );
            }
        }
    }
}

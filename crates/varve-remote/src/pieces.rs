//! What comes over a line, cut into pieces that are pages of a file.

use std::sync::Arc;

use bytes::Bytes;
use varve_world::PAGE_BYTES;

use crate::spare_buffers::{Buffer, SpareBuffers};

/// A piece ends where the file has a multiple of this: large enough for a disk, and small enough to be in the processor's own memory still
/// when it is checked and written.
const PIECE_BYTES: usize = 2 << 20;

/// Bytes of a file on their way into pieces.
pub(crate) struct Pieces {
    spare: Arc<SpareBuffers>,
    /// The piece that is being filled, behind so many bytes that are none of it.
    filling: Option<(Buffer, usize)>,
    /// Where in the file the next byte goes.
    place: u64,
}

impl Pieces {
    /// Pieces of a file from `place` on.
    pub fn new(spare: Arc<SpareBuffers>, place: u64) -> Self {
        Self { spare, filling: None, place }
    }

    /// Takes from `part` what the piece at hand has room for; returns that piece if it is whole with it. To be called until it returns `None`.
    pub fn add(&mut self, part: &mut &[u8]) -> Option<Bytes> {
        if part.is_empty() {
            return None;
        }
        let within = |unit: usize| usize::try_from(self.place % unit as u64).unwrap_or(0);
        let (room, before) = (PIECE_BYTES - within(PIECE_BYTES), within(PAGE_BYTES));
        let (filling, _) = self.filling.get_or_insert_with(|| {
            let mut buffer = self.spare.take(PIECE_BYTES);
            // In memory it begins as far behind a page's beginning as in the file.
            buffer.bytes.resize(before);
            (buffer, before)
        });
        let (now, later) = part.split_at(part.len().min(room));
        filling.bytes.extend_from_slice(now);
        *part = later;
        let count = now.len();
        self.place += count as u64;
        if count == room { self.finish() } else { None }
    }

    /// What there is of a piece; `None` if the last one was whole.
    pub fn finish(&mut self) -> Option<Bytes> {
        self.filling.take().map(|(buffer, before)| buffer.freeze().slice(before..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_pages_of_the_file() {
        let pattern: Vec<u8> =
            (0..5_000_000_u32).map(|number| number.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
        for (place, part_bytes) in
            [(0, 100_000), (128, 999_999), (3 * PIECE_BYTES as u64 - 1, 1), (5000, 5_000_000)]
        {
            let length = if part_bytes == 1 { 10_000 } else { pattern.len() };
            let mut pieces = Pieces::new(Arc::default(), place);
            let mut made = Vec::new();
            for mut part in pattern[..length].chunks(part_bytes) {
                while let Some(piece) = pieces.add(&mut part) {
                    made.push(piece);
                }
                assert!(part.is_empty());
            }
            made.extend(pieces.finish());
            assert!(pieces.finish().is_none());
            assert!(made.concat() == pattern[..length], "from {place}");
            let mut at = place;
            for (number, piece) in made.iter().enumerate() {
                let within_page = usize::try_from(at % PAGE_BYTES as u64).unwrap();
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

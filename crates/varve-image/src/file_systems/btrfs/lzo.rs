//! LZO1X in the frames of Btrfs.
//!
//! A compressed extent is its whole length (4 bytes), then segments: a length (4 bytes) and the
//! bytes, each for up to one sector of content. The length of a segment never lies in two sectors:
//! if less than 4 bytes of a sector are left, they are zeros.
//!
//! LZO1X is a list of instructions. The first bits tell the form, and the last two bits the number
//! of literal bytes after it.
//!
//! | first byte  | more bytes     | meaning                                                          |
//! |-------------|----------------|------------------------------------------------------------------|
//! | `0000LLLL`  | length         | after a match without literals: 3 + L literals                   |
//! | `0000DDSS`  | H              | after 1 to 3 literals: 2 bytes from (H << 2) + D + 1             |
//! | `0000DDSS`  | H              | after a longer run of literals: 3 bytes from (H << 2) + D + 2049 |
//! | `0001HLLL`  | length, D (2)  | 2 + L bytes from (H << 14) + D + 16384; the end if that is 16384 |
//! | `001LLLLL`  | length, D (2)  | 2 + L bytes from D + 1                                           |
//! | `LLLDDDSS`  | H              | 1 + L bytes from (H << 3) + D + 1                                |
//!
//! A length of which all bits are zero continues in more bytes: 255 for each zero, and the first
//! byte that is not zero.

use crate::bytes::fields::u32_at;
use varve_block::to_usize;

const LENGTH_BYTES: usize = 4;

/// Decompresses the segments of an extent. Stops when `into` is full. Returns the number of bytes;
/// `None` if the segments make no sense.
pub(super) fn decompress(bytes: &[u8], into: &mut [u8], sector_bytes: usize) -> Option<usize> {
    let length = to_usize(u32_at(bytes, 0));
    let bytes = bytes.get(..length)?;
    let (mut at, mut filled) = (LENGTH_BYTES, 0_usize);
    while at < length && filled < into.len() {
        let segment_bytes = to_usize(u32_at(bytes, at));
        let start = at.checked_add(LENGTH_BYTES)?;
        let end = start.checked_add(segment_bytes)?;
        let room = into.get_mut(filled..)?;
        let room_bytes = room.len().min(sector_bytes);
        let count = decompress_segment(bytes.get(start..end)?, room.get_mut(..room_bytes)?)?;
        filled = filled.checked_add(count)?;
        let left = sector_bytes.checked_sub(end.checked_rem(sector_bytes)?)?;
        at = if left < LENGTH_BYTES { end.checked_add(left)? } else { end };
    }
    Some(filled)
}

/// The literals before an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    None,
    /// One to three, which belong to a match.
    Few,
    /// A run of its own.
    Run,
}

/// Reads instructions, and writes what they mean.
struct LzoSegment<'a> {
    rest: &'a [u8],
    into: &'a mut [u8],
    filled: usize,
}

/// Decompresses one segment, and returns its length.
fn decompress_segment(bytes: &[u8], into: &mut [u8]) -> Option<usize> {
    let mut segment = LzoSegment { rest: bytes, into, filled: 0 };
    let mut before = Before::None;
    // The first byte may be a run of literals without the usual minimum.
    if let Some(count) = bytes.first()?.checked_sub(17).filter(|count| *count > 0) {
        segment.byte()?;
        segment.copy_literals(count.into())?;
        before = if count < 4 { Before::Few } else { Before::Run };
    }
    loop {
        let first = usize::from(segment.byte()?);
        let literals = match (first, before) {
            (0..16, Before::None) => {
                let count = segment.length(first, 15)?.checked_add(3)?;
                segment.copy_literals(count)?;
                before = Before::Run;
                continue;
            }
            (0..16, _) => {
                let (length, base) = if before == Before::Few { (2, 1) } else { (3, 2049) };
                let distance = usize::from(segment.byte()?) << 2 | first >> 2;
                segment.repeat(distance.checked_add(base)?, length)?;
                first & 3
            }
            (16..32, _) => {
                let length = segment.length(first & 7, 7)?.checked_add(2)?;
                let pair = segment.pair()?;
                let distance = (first & 8) << 11 | pair >> 2;
                if distance == 0 {
                    return Some(segment.filled);
                }
                segment.repeat(distance.checked_add(16384)?, length)?;
                pair & 3
            }
            (32..64, _) => {
                let length = segment.length(first & 31, 31)?.checked_add(2)?;
                let pair = segment.pair()?;
                segment.repeat((pair >> 2).checked_add(1)?, length)?;
                pair & 3
            }
            _ => {
                let distance = usize::from(segment.byte()?) << 3 | first >> 2 & 7;
                segment.repeat(distance.checked_add(1)?, (first >> 5).checked_add(1)?)?;
                first & 3
            }
        };
        segment.copy_literals(literals)?;
        before = if literals == 0 { Before::None } else { Before::Few };
    }
}

impl LzoSegment<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn pair(&mut self) -> Option<usize> {
        let (pair, rest) = self.rest.split_first_chunk::<2>()?;
        self.rest = rest;
        Some(u16::from_le_bytes(*pair).into())
    }

    /// Returns a length: `short`, unless it is zero.
    fn length(&mut self, short: usize, base: usize) -> Option<usize> {
        if short > 0 {
            return Some(short);
        }
        let mut length = base;
        loop {
            match self.byte()? {
                0 => length = length.checked_add(255)?,
                last => return length.checked_add(last.into()),
            }
        }
    }

    fn copy_literals(&mut self, count: usize) -> Option<()> {
        let (literals, rest) = self.rest.split_at_checked(count)?;
        let end = self.filled.checked_add(count)?;
        self.into.get_mut(self.filled..end)?.copy_from_slice(literals);
        (self.rest, self.filled) = (rest, end);
        Some(())
    }

    /// Repeats bytes that lie `distance` before, also while they are written.
    fn repeat(&mut self, distance: usize, length: usize) -> Option<()> {
        let end = self.filled.checked_add(length).filter(|end| *end <= self.into.len())?;
        for at in self.filled..end {
            *self.into.get_mut(at)? = *self.into.get(at.checked_sub(distance)?)?;
        }
        self.filled = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(segment: &[u8]) -> Vec<u8> {
        let length = u32::try_from(segment.len()).unwrap();
        [&length.wrapping_add(8).to_le_bytes()[..], &length.to_le_bytes(), segment].concat()
    }

    #[test]
    fn segments_are_decompressed() {
        // Four literals, then 8 bytes from a distance of 4, one literal, and the end.
        let segment = [21, b'a', b'b', b'c', b'd', 0xed, 0, b'!', 17, 0, 0];
        let mut into = [0; 100];
        assert_eq!(decompress(&framed(&segment), &mut into, 4096), Some(13));
        assert_eq!(&into[..13], b"abcdabcdabcd!");
        for length in 0..segment.len() {
            assert_eq!(decompress(&framed(&segment[..length]), &mut into, 4096), None, "{length}");
        }
        // It repeats bytes before the beginning.
        assert_eq!(decompress(&framed(&[18, b'a', 0x40, 9, 17, 0, 0]), &mut into, 4096), None);
        // It is longer than its sector.
        assert_eq!(decompress(&framed(&segment), &mut into, 8), None);
    }

    #[test]
    fn long_lengths_are_bounded_by_the_room() {
        let mut segment = vec![18, b'a', 32];
        segment.extend([0; 4000]);
        segment.extend([1, 0, 0, 17, 0, 0]);
        let mut into = [0; 4096];
        assert_eq!(decompress(&framed(&segment), &mut into, 4096), None);
        segment.splice(3..4003, [0; 15]);
        assert_eq!(decompress(&framed(&segment), &mut into, 4096), Some(1 + 31 + 15 * 255 + 1 + 2));
        assert!(into[..3860].iter().all(|byte| *byte == b'a'));
    }
}

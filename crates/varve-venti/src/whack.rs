//! Whack, the compression of plan9port's Venti. A stream of bits, the highest bit of each byte
//! first, without an end mark.
//!
//! ```text
//! 0 byte                a literal: 8 bits if one of the last four was not text; else 7, 9, 10
//! 1 length distance     a copy of earlier bytes, at most 16,384 back
//! ```
//!
//! The stream ends when fewer than 8 bits are left. They are ignored.

/// Why bytes are not a compressed block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnwhackError {
    /// The stream ends within a literal or a match.
    #[error("a compressed block ends after {produced} of {wanted} bytes")]
    Short {
        /// The number of decompressed bytes.
        produced: usize,
        wanted: usize,
    },
    /// The block is longer than expected.
    #[error("a compressed block has more than its {wanted} bytes")]
    Long { wanted: usize },
    /// A match refers to bytes before the block.
    #[error(
        "a compressed block refers back by {distance} bytes, before its start: it has only {produced} bytes so far"
    )]
    Distance {
        distance: usize,
        /// The number of bytes before the match.
        produced: usize,
    },
}

struct BitReader<'a> {
    bytes: &'a [u8],
    taken: usize,
}

impl BitReader<'_> {
    fn left(&self) -> usize {
        self.bytes.len().saturating_mul(8).saturating_sub(self.taken)
    }

    fn bit(&mut self) -> Option<usize> {
        let byte = self.bytes.get(self.taken.div_euclid(8))?;
        let shift = 7_usize.saturating_sub(self.taken.rem_euclid(8));
        self.taken = self.taken.saturating_add(1);
        Some(usize::from(byte >> shift & 1))
    }

    fn bits(&mut self, count: u32) -> Option<usize> {
        let mut number = 0;
        for _ in 0..count {
            number = number << 1 | self.bit()?;
        }
        Some(number)
    }

    /// Reads a literal, in the coding for binary data or for text.
    fn literal(&mut self, is_binary: bool) -> Option<u8> {
        let number = if is_binary {
            self.bits(8)?
        } else {
            match self.bits(7)? {
                text @ 32.. => text,
                low @ ..24 => (low << 2 | self.bits(2)?).wrapping_sub(64),
                high => (high << 3 | self.bits(3)?).wrapping_sub(64),
            }
        };
        number.to_le_bytes().first().copied()
    }

    /// Reads the length of a match. Its marker bit has already been read.
    fn length(&mut self) -> Option<usize> {
        for length in [3, 4] {
            if self.bit()? == 0 {
                return Some(length);
            }
        }
        if self.bit()? == 0 {
            return self.bit()?.checked_add(5);
        }
        let (mut code, mut length, mut width) = (self.bits(2)?, 7_usize, 1_usize);
        let mut doubles = true;
        while code >= width {
            length = length.checked_add(width)?;
            code = code.checked_sub(width)?.checked_mul(2)?.checked_add(self.bit()?)?;
            if doubles {
                width = width.checked_mul(2)?;
            }
            doubles = !doubles;
        }
        length.checked_add(code)
    }

    fn distance(&mut self) -> Option<usize> {
        let code = self.bits(4)?;
        let (extra, base) = match code {
            0..4 => (5, code << 5),
            14 => (12, 4096),
            15 => (13, 8192),
            _ => {
                let step = code.checked_sub(4)?;
                let extra = u32::try_from(step >> 1).ok()?.checked_add(6)?;
                (extra, (2 | step & 1) << extra)
            }
        };
        self.bits(extra)?.checked_add(base)?.checked_add(1)
    }
}

/// Reports whether a literal counts as text.
fn is_text(byte: u8) -> bool {
    (32..=127).contains(&byte)
}

/// Decompresses a block of `wanted` bytes. Allocates no more memory than that.
///
/// # Errors
/// [`UnwhackError`]: the bytes are not a compressed block of this length.
pub fn unwhack(compressed: &[u8], wanted: usize) -> Result<Vec<u8>, UnwhackError> {
    let mut bits = BitReader { bytes: compressed, taken: 0 };
    let mut block = Vec::with_capacity(wanted.min(compressed.len().saturating_mul(8)));
    // For each of the last four literals: true if it was not text.
    let mut recent = [true; 4];
    while bits.left() >= 8 {
        let short = UnwhackError::Short { produced: block.len(), wanted };
        let long = UnwhackError::Long { wanted };
        if bits.bit() == Some(0) {
            let byte = bits.literal(recent.contains(&true)).ok_or(short)?;
            if block.len() >= wanted {
                return Err(long);
            }
            block.push(byte);
            let [_, second, third, fourth] = recent;
            recent = [second, third, fourth, !is_text(byte)];
            continue;
        }
        let length = bits.length().ok_or_else(|| short.clone())?;
        let distance = bits.distance().ok_or(short)?;
        let produced = block.len();
        let start = produced.checked_sub(distance).ok_or(UnwhackError::Distance { distance, produced })?;
        if length > wanted.saturating_sub(produced) {
            return Err(long);
        }
        for place in start..start.saturating_add(length) {
            // A match may overlap the bytes that it produces.
            let byte = block.get(place).copied().ok_or(UnwhackError::Distance { distance, produced })?;
            block.push(byte);
        }
    }
    if block.len() == wanted { Ok(block) } else { Err(UnwhackError::Short { produced: block.len(), wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_matches_come_back() {
        // 0 'a' in eight bits; 1 0 length 3; distance 1: four and five zero bits; the rest is
        // padding.
        let compressed = [0b0011_0000, 0b1100_0000, 0b0000_0000];
        assert_eq!(unwhack(&compressed, 4).unwrap(), b"aaaa");
        assert_eq!(unwhack(&compressed, 3), Err(UnwhackError::Long { wanted: 3 }));
        assert_eq!(unwhack(&compressed, 5), Err(UnwhackError::Short { produced: 4, wanted: 5 }));
        assert_eq!(unwhack(&compressed[..2], 4), Err(UnwhackError::Short { produced: 1, wanted: 4 }));
        assert_eq!(unwhack(&[0x80, 0, 0], 3), Err(UnwhackError::Distance { distance: 1, produced: 0 }));
        assert_eq!(unwhack(&[], 0), Ok(Vec::new()));
    }
}

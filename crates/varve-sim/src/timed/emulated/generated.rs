//! Blocks whose contents follow from a number, so that a storage need not keep them.

/// The first bytes of every generated block.
pub(super) const MAGIC: [u8; 8] = *b"\xf1gen\x9cblk";
/// The bytes that hold the magic, the number, the length and a check.
pub(super) const HEADER_BYTES: usize = 24;

/// A block of incompressible bytes that its number and its length determine.
///
/// | offset | bytes | field  | meaning                                  |
/// |-------:|------:|--------|------------------------------------------|
/// |      0 |     8 | magic  | the same in all blocks                   |
/// |      8 |     8 | number | little-endian                            |
/// |     16 |     4 | length | of the whole block in bytes              |
/// |     20 |     4 | check  | mixed from number and length             |
/// |     24 |       | body   | words mixed from the number and the word's place |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratedBlock {
    pub number: u64,
    /// The length in bytes. Blocks of at most 24 bytes are only a part of the header, and are kept
    /// as they are.
    pub bytes: u32,
}

impl GeneratedBlock {
    /// Returns the contents.
    #[must_use]
    pub fn contents(self) -> Vec<u8> {
        let mut contents = vec![0; self.bytes as usize];
        self.fill(0, &mut contents);
        contents
    }

    /// Fills `into` with the contents from `offset` on. The part must lie within the block.
    pub(super) fn fill(self, offset: usize, into: &mut [u8]) {
        let mut done = 0;
        if offset < HEADER_BYTES {
            let header = self.header();
            done = into.len().min(HEADER_BYTES - offset);
            into[..done].copy_from_slice(&header[offset..offset + done]);
        }
        let mut at = offset + done;
        // The rest of a word in whose middle the part begins.
        if !at.is_multiple_of(8) && done < into.len() {
            let word = self.word(at / 8).to_le_bytes();
            let count = (8 - at % 8).min(into.len() - done);
            into[done..done + count].copy_from_slice(&word[at % 8..at % 8 + count]);
            done += count;
            at += count;
        }
        for (place, piece) in into[done..].chunks_mut(8).enumerate() {
            let word = self.word(at / 8 + place).to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }

    /// Reads the header of a block at the beginning of `bytes`. Returns the block if all of it is
    /// there.
    pub(super) fn at_start_of(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let number = u64::from_le_bytes(*header[8..].first_chunk()?);
        let length = u32::from_le_bytes(*header[16..].first_chunk()?);
        let block = Self { number, bytes: length };
        if length as usize <= HEADER_BYTES || *header != block.header() {
            return None;
        }
        let body = bytes.get(HEADER_BYTES..length as usize)?;
        let is_same = body
            .chunks(8)
            .enumerate()
            .all(|(place, piece)| block.word(place + HEADER_BYTES / 8).to_le_bytes().starts_with(piece));
        is_same.then_some(block)
    }

    fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&self.number.to_le_bytes());
        header[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        let check = mix(self.number ^ (u64::from(self.bytes) << 40)).to_le_bytes();
        header[20..].copy_from_slice(&check[..4]);
        header
    }

    fn word(self, place: usize) -> u64 {
        mix(self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place as u64) << 32 ^ u64::from(self.bytes))
    }
}

/// Mixes a number into all bits of the result: splitmix64 (Steele, Lea and Flood 2014).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_the_same_as_in_the_whole() {
        for bytes in [5_u32, 24, 25, 100, 512] {
            let block = GeneratedBlock { number: 77, bytes };
            let whole = block.contents();
            for from in 0..whole.len() {
                for to in from..whole.len() {
                    let mut part = vec![0; to - from];
                    block.fill(from, &mut part);
                    assert_eq!(part, whole[from..to], "{bytes}: {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn a_block_is_recognised_only_if_it_is_whole_and_unchanged() {
        let block = GeneratedBlock { number: 3, bytes: 1001 };
        let mut contents = block.contents();
        contents.extend([1, 2, 3]);
        assert_eq!(GeneratedBlock::at_start_of(&contents), Some(block));
        assert_eq!(GeneratedBlock::at_start_of(&contents[..1000]), None);
        for place in [0, 9, 17, 21, 24, 500, 1000] {
            let mut changed = contents.clone();
            changed[place] ^= 1;
            assert_eq!(GeneratedBlock::at_start_of(&changed), None, "byte {place}");
        }
    }

    #[test]
    fn blocks_of_other_numbers_and_lengths_differ() {
        let of = |number, bytes| GeneratedBlock { number, bytes }.contents();
        assert_ne!(of(1, 64)[24..], of(2, 64)[24..]);
        assert_ne!(of(1, 64)[24..40], of(1, 65)[24..40]);
    }
}

//! LZNT1, the compression of NTFS (MS-XCA, section 2.5).
//!
//! The bytes are cut into chunks of 4 KiB. A chunk begins with a number of two bytes: its stored
//! length less three in the lower twelve bits, and the highest bit if it is compressed. In a
//! compressed chunk, a byte of eight flags precedes eight items: a byte as it is, or a number of
//! two bytes that repeats earlier bytes of the chunk. The number's bits for the distance grow with
//! the position in the chunk.

const CHUNK_BYTES: usize = 4096;
const IS_COMPRESSED: u16 = 0x8000;

/// Decompresses chunks until `into` is full or the chunks end. The rest is zeros. Returns `None` if
/// the bytes make no sense.
pub(super) fn decompress(mut bytes: &[u8], into: &mut [u8]) -> Option<()> {
    for chunk in into.chunks_mut(CHUNK_BYTES) {
        let Some((head, rest)) = bytes.split_first_chunk::<2>() else {
            chunk.fill(0);
            continue;
        };
        let head = u16::from_le_bytes(*head);
        if head == 0 {
            bytes = &[];
            chunk.fill(0);
            continue;
        }
        let length = usize::from(head & 0xfff).checked_add(1)?;
        let (stored, rest) = rest.split_at_checked(length)?;
        let filled = match head & IS_COMPRESSED {
            0 => {
                let length = stored.len().min(chunk.len());
                chunk.get_mut(..length)?.copy_from_slice(stored.get(..length)?);
                length
            }
            _ => decompress_chunk(stored, chunk)?,
        };
        chunk.get_mut(filled..)?.fill(0);
        bytes = rest;
    }
    Some(())
}

/// Decompresses one chunk, and returns its length.
fn decompress_chunk(mut bytes: &[u8], into: &mut [u8]) -> Option<usize> {
    let mut filled = 0_usize;
    while let Some((flags, rest)) = bytes.split_first() {
        bytes = rest;
        for item in 0..8 {
            if bytes.is_empty() || filled == into.len() {
                break;
            }
            if flags >> item & 1 == 0 {
                let (byte, rest) = bytes.split_first()?;
                *into.get_mut(filled)? = *byte;
                filled = filled.checked_add(1)?;
                bytes = rest;
                continue;
            }
            let (pair, rest) = bytes.split_first_chunk::<2>()?;
            bytes = rest;
            let pair = u16::from_le_bytes(*pair);
            let length_bits = length_bits(filled)?;
            let length = usize::from(pair & (1_u16 << length_bits).checked_sub(1)?).checked_add(3)?;
            let distance = usize::from(pair >> length_bits).checked_add(1)?;
            for _ in 0..length.min(into.len().checked_sub(filled)?) {
                *into.get_mut(filled)? = *into.get(filled.checked_sub(distance)?)?;
                filled = filled.checked_add(1)?;
            }
        }
    }
    Some(filled)
}

/// Returns the bits of a pair that are its length, at a position in the chunk. The others are its
/// distance, which needs at least four.
fn length_bits(filled: usize) -> Option<u32> {
    let distance_bits = usize::BITS.checked_sub(filled.checked_sub(1)?.leading_zeros())?;
    16_u32.checked_sub(distance_bits.max(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_decompressed() {
        // The example of MS-XCA, section 3.3.
        let stored = [
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2, 0x47, 0x01,
            0xa0, 0x45, 0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0, 0x45, 0x20, 0x05, 0x24,
            0x13, 0x88, 0x05, 0xb4, 0x02, 0x4a, 0x44, 0xef, 0x03, 0x58, 0x02, 0x8c, 0x09, 0x16, 0x01, 0x48,
            0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00, 0x04, 0x01, 0x18, 0x90, 0x00,
        ];
        let text = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        let mut into = [1; 4200];
        decompress(&stored, &mut into).unwrap();
        assert_eq!(&into[..text.len()], text);
        assert!(into[text.len()..].iter().all(|byte| *byte == 0));
        for length in 0..stored.len() {
            let _ = decompress(&stored[..length], &mut into);
        }
    }

    #[test]
    fn stored_chunks_are_copied() {
        let chunk = [7; 4096];
        let bytes = [&0x3fff_u16.to_le_bytes()[..], &chunk, &0x3000_u16.to_le_bytes(), &[9]].concat();
        let mut into = [1; 8192];
        decompress(&bytes, &mut into).unwrap();
        assert_eq!((&into[..4096], into[4096], into[4097]), (&chunk[..], 9, 0));
        // A repetition of bytes before the chunk.
        assert_eq!(decompress(&[3, 0xb0, 1, 0, 0, 0], &mut into), None);
    }
}

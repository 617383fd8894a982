//! A checkpoint: the whole index as bytes, little-endian. A header, a note, then one section for
//! each segment.
//!
//! | offset | bytes | field          | meaning                                                           |
//! |-------:|------:|----------------|-------------------------------------------------------------------|
//! |      0 |     8 | magic, version | `varveIX1`                                                        |
//! |      8 |     8 | segment_count  | sections after the note, at least 1                               |
//! |     16 |     8 | block_count    | slots in all sections together                                    |
//! |     24 |     8 | note_bytes     | length of the note, at most 16 MiB                                |
//! |     32 |    32 | authentication | `BLAKE3(key, x)`, where `x` is bytes 0..32                        |
//! |     64 |     n | note           | opaque: which part of the log the checkpoint covers               |
//! | 64 + n |    32 | authentication | `BLAKE3(key, x)`, where `x` is the code before ‖ the note         |
//!
//! A section; that of segment 0 comes first:
//!
//! | offset  | bytes | field          | meaning                                                             |
//! |--------:|------:|----------------|---------------------------------------------------------------------|
//! |       0 |     8 | slot_count     | blocks in this segment                                              |
//! |       8 |     8 | address_bits   | low bits of a slot that are its address: 1 or p to p + 26           |
//! |      16 |    8s | slots          | `slot_count` of them, strictly ascending; remainder, then address   |
//! | 16 + 8s |    32 | authentication | `BLAKE3(key, x)`, where `x` is the code before ‖ bytes 0..16 + 8s   |
//!
//! A segment holds the fingerprints that begin with its prefix. Its number is its prefix with the
//! bits reversed: the first bit is the lowest. Of `2^b + m` segments, `m < 2^b`, those numbered
//! `0..m` and `2^b..2^b + m` have a prefix of `b + 1` bits, the others one of `b` bits (p, in the
//! table). The `64 - address_bits` bits of the fingerprint that follow the prefix are the slot's
//! remainder.
//!
//! Invariant: the checkpoint has `96 + note_bytes + 48 × segment_count + 8 × block_count` bytes.
//!
//! The key belongs to one store and serves this purpose only. Each code covers the one before it,
//! so no section can be moved, within a checkpoint or to another one.

mod read;
mod write;

pub use read::ReadCheckpointError;

/// The longest note of a checkpoint.
pub const CHECKPOINT_NOTE_BYTES_MAX: u64 = 16 << 20;

const MAGIC: &[u8; 8] = b"varveIX1";
const HEADER_BYTES: usize = 32;
const SECTION_HEADER_BYTES: usize = 16;
const SLOT_BYTES: usize = 8;
const CODE_BYTES: usize = blake3::OUT_LEN;

/// The largest number of bytes that are read or written in one call.
const PIECE_BYTES: usize = 1 << 20;

struct CheckpointHeader {
    segment_count: u64,
    block_count: u64,
    note_bytes: u64,
}

impl CheckpointHeader {
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [u64::from_le_bytes(*MAGIC), self.segment_count, self.block_count, self.note_bytes];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Returns the length of the whole checkpoint; `None` if it exceeds 64 bits.
    fn checkpoint_bytes(&self) -> Option<u64> {
        let sections = self.segment_count.checked_mul((SECTION_HEADER_BYTES + CODE_BYTES) as u64)?;
        let slots = self.block_count.checked_mul(SLOT_BYTES as u64)?;
        let fixed = (HEADER_BYTES + 2 * CODE_BYTES) as u64;
        fixed.checked_add(self.note_bytes)?.checked_add(sections)?.checked_add(slots)
    }
}

/// Begins the code that covers `before` and the bytes after it.
fn code_after(before: &blake3::Hash, key: &[u8; 32]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(before.as_bytes());
    hasher
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryIndex;
    use varve_block::to_usize;

    const KEY: [u8; 32] = [9; 32];

    /// Makes a checkpoint with correct codes and any contents.
    fn authentic(header: &CheckpointHeader, sections: &[&[u64]]) -> Vec<u8> {
        let mut bytes = header.to_bytes().to_vec();
        let mut code = blake3::keyed_hash(&KEY, &bytes);
        bytes.extend(code.as_bytes());
        let note = vec![0; to_usize(header.note_bytes)];
        for part in std::iter::once(note).chain(sections.iter().map(|words| little_endian(words))) {
            code = code_after(&code, &KEY).update(&part).finalize();
            bytes.extend(part);
            bytes.extend(code.as_bytes());
        }
        bytes
    }

    fn little_endian(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(header: &CheckpointHeader, sections: &[&[u64]]) -> Result<MemoryIndex, ReadCheckpointError> {
        read_bytes(&authentic(header, sections))
    }

    fn read_bytes(bytes: &[u8]) -> Result<MemoryIndex, ReadCheckpointError> {
        let mut rest = bytes;
        let mut fill = |into: &mut [u8]| std::io::Read::read_exact(&mut rest, into);
        MemoryIndex::read_checkpoint(&KEY, bytes.len() as u64, &mut fill).map(|(index, _)| index)
    }

    #[test]
    fn what_is_authentic_but_senseless_is_refused() {
        let header = CheckpointHeader { segment_count: 1, block_count: 2, note_bytes: 0 };
        assert_eq!(read(&header, &[&[2, 16, 5, 6]]).unwrap().len(), 2);
        let section_at = (HEADER_BYTES + 2 * CODE_BYTES) as u64;
        for senseless in [[2, 16, 6, 5], [2, 64, 5, 6], [2, u64::MAX, 5, 6]] {
            let error = read(&header, &[&senseless]).unwrap_err();
            assert!(
                matches!(error, ReadCheckpointError::Senseless { offset } if offset == section_at),
                "{error}"
            );
        }
    }

    #[test]
    fn counts_that_do_not_agree_are_refused() {
        let header = CheckpointHeader { segment_count: 1, block_count: 2, note_bytes: 0 };
        for slot_count in [0, 1, 3, u64::MAX / 8, u64::MAX] {
            let error = read(&header, &[&[slot_count, 16, 5, 6]]).unwrap_err();
            assert!(!matches!(error, ReadCheckpointError::Read { .. }), "{slot_count}: {error}");
        }
        let one_block_and_rubbish = [authentic(&header, &[&[1, 16, 5]]).as_slice(), &[0; 8]].concat();
        let error = read_bytes(&one_block_and_rubbish).unwrap_err();
        assert!(matches!(error, ReadCheckpointError::Senseless { offset: 0 }), "{error}");
        let error = read(&header, &[&[1, 16, 5], &[1, 16, 6]]).unwrap_err();
        assert!(matches!(error, ReadCheckpointError::Length { .. }), "{error}");
        for (segment_count, block_count) in [(0, 0), (u64::MAX, 0), (1, u64::MAX), (u64::MAX / 48, 0)] {
            let error =
                read(&CheckpointHeader { segment_count, block_count, note_bytes: 0 }, &[]).unwrap_err();
            assert!(
                matches!(
                    error,
                    ReadCheckpointError::Senseless { offset: 0 } | ReadCheckpointError::Length { .. }
                ),
                "{error}"
            );
        }
        let note_bytes = CHECKPOINT_NOTE_BYTES_MAX + 1;
        let error = read(&CheckpointHeader { segment_count: 1, block_count: 0, note_bytes }, &[&[0, 16]])
            .unwrap_err();
        assert!(matches!(error, ReadCheckpointError::Senseless { offset: 0 }), "{error}");
    }
}

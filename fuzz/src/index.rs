//! The checkpoint of the index.

use std::io;

use varve_block::{Fingerprint, LogAddress};
use varve_index::MemoryIndex;

use crate::input::Input;

const KEY: [u8; 32] = [5; 32];

fn read(checkpoint: &[u8]) -> Option<(MemoryIndex, Vec<u8>)> {
    let mut rest = checkpoint;
    let mut fill = |into: &mut [u8]| {
        let (taken, left) = rest.split_at_checked(into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(taken);
        rest = left;
        Ok(())
    };
    MemoryIndex::read_checkpoint(&KEY, checkpoint.len() as u64, &mut fill).ok()
}

fn write(index: &MemoryIndex, note: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    let mut append = |piece: &[u8]| {
        written.extend_from_slice(piece);
        Ok(())
    };
    index.write_checkpoint(note, &KEY, &mut append).expect("in memory");
    written
}

/// A checkpoint whose codes are good. The header's numbers, the note and the sections come from the
/// input. Each of them is followed by its code.
pub fn checkpoint(bytes: &[u8]) {
    drop(read(bytes));
    let forged = forge(bytes);
    let Some((mut index, note)) = read(&forged) else { return };
    assert_eq!(write(&index, &note), forged, "what was read is what was written");
    let before = index.len();
    for number in 0..64_u64 {
        let fingerprint = Fingerprint(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let address = LogAddress::new(number * 1000).expect("small");
        index.insert(fingerprint, address).expect("far from full");
        assert!(
            index.candidates(fingerprint).any(|candidate| candidate == address),
            "what was inserted is found"
        );
    }
    assert!(index.len() <= before + 64);
}

/// Builds the checkpoint. The input has `segment_count` (one byte), `block_count` (two bytes), the
/// length of the note (one byte) and the note. Then it has for each section the `slot_count`, the
/// `address_bits`, and the slots as differences.
fn forge(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input(bytes);
    let segment_count = u64::from(input.byte());
    let block_count = u64::from(u16::from_le_bytes(input.array()));
    let note_bytes = u64::from(input.byte());
    let mut checkpoint = b"varveIX1".to_vec();
    for number in [segment_count, block_count, note_bytes] {
        checkpoint.extend(number.to_le_bytes());
    }
    let mut code = blake3::keyed_hash(&KEY, &checkpoint);
    checkpoint.extend(code.as_bytes());
    let mut note = input.take(usize::try_from(note_bytes).expect("a byte")).to_vec();
    note.resize(usize::try_from(note_bytes).expect("a byte"), 0);
    code = blake3::Hasher::new_keyed(&KEY).update(code.as_bytes()).update(&note).finalize();
    checkpoint.extend(note);
    checkpoint.extend(code.as_bytes());
    for _ in 0..segment_count {
        let slot_count = u64::from(input.byte());
        let mut section = slot_count.to_le_bytes().to_vec();
        section.extend(u64::from(input.byte()).to_le_bytes());
        let mut slot = 0_u64;
        for _ in 0..slot_count {
            slot = slot.wrapping_add(u64::from_le_bytes(input.array()));
            section.extend(slot.to_le_bytes());
        }
        code = blake3::Hasher::new_keyed(&KEY).update(code.as_bytes()).update(&section).finalize();
        checkpoint.extend(section);
        checkpoint.extend(code.as_bytes());
    }
    checkpoint
}

/// An empty index, one segment of three blocks, two segments of three blocks in all, and a real
/// checkpoint of an empty index.
#[must_use]
pub fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let empty = [&[1, 0, 0, 4][..], b"note", &[0, 20]].concat();
    let slots = [(1_u64 << 21) + 7, 1 << 60, 1 << 50].map(u64::to_le_bytes).concat();
    let few = [&[1, 3, 0, 0, 3, 20][..], &slots].concat();
    let two = [&[2, 3, 0, 0, 2, 21][..], &slots[..16], &[1, 21], &slots[..8]].concat();
    vec![empty, few, two, write(&MemoryIndex::new(), b"note")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_believes_the_forger() {
        let believed: Vec<_> =
            checkpoint_seeds()[..3].iter().map(|seed| read(&forge(seed)).unwrap().0.len()).collect();
        assert_eq!(believed, [0, 3, 3]);
    }
}

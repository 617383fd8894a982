//! A damaged checkpoint is refused: every bit flipped, every length cut, bytes appended, sections
//! exchanged, another key, and a reader that fails.

use std::io::{self, Read, Write};

use varve_block::{Fingerprint, LogAddress};
use varve_index::{CHECKPOINT_NOTE_BYTES_MAX, MemoryIndex, ReadCheckpointError};

const KEY: [u8; 32] = [3; 32];
const NOTE: &[u8] = b"arenas 0 to 7";
const HEADER_BYTES: usize = 64;

/// Checkpoints of the same blocks. Their place in the log begins at `first_granule`.
fn checkpoint_of(block_count: u64, first_granule: u64) -> Vec<u8> {
    let mut index = MemoryIndex::<4>::default();
    for number in 0..block_count {
        let fingerprint = Fingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        index.insert(fingerprint, LogAddress::new(first_granule + number).unwrap()).unwrap();
    }
    let mut bytes = Vec::new();
    index.write_checkpoint(NOTE, &KEY, &mut |piece| bytes.write_all(piece)).unwrap();
    bytes
}

fn read(bytes: &[u8], key: &[u8; 32]) -> Result<(MemoryIndex<4>, Vec<u8>), ReadCheckpointError> {
    let mut rest = bytes;
    MemoryIndex::read_checkpoint(key, bytes.len() as u64, &mut |into| rest.read_exact(into))
}

#[test]
fn every_flipped_bit_is_found() {
    let mut bytes = checkpoint_of(300, 0);
    read(&bytes, &KEY).unwrap();
    for place in 0..bytes.len() * 8 {
        bytes[place / 8] ^= 1 << (place % 8);
        let error = read(&bytes, &KEY).expect_err("a bit is flipped");
        match error {
            ReadCheckpointError::Magic { .. } => assert!(place < 64, "{place}: {error}"),
            ReadCheckpointError::Unauthentic { offset } => {
                assert!(offset <= place as u64 / 8, "{place}: {error}")
            }
            ReadCheckpointError::Length { .. } => assert!(place >= 64, "{place}: {error}"),
            _ => panic!("{place}: {error}"),
        }
        bytes[place / 8] ^= 1 << (place % 8);
    }
}

#[test]
fn every_cut_is_found() {
    let bytes = checkpoint_of(300, 0);
    for length in 0..bytes.len() {
        let error = read(&bytes[..length], &KEY).expect_err("the end is missing");
        assert!(
            matches!(error, ReadCheckpointError::Length { actual, .. } if actual == length as u64),
            "{error}"
        );
    }
    let error = read(&[bytes.as_slice(), &[0]].concat(), &KEY).expect_err("there is a byte too many");
    assert!(matches!(error, ReadCheckpointError::Length { .. }), "{error}");
}

/// The file became shorter after its length was read, or the disk fails.
#[test]
fn a_reader_that_fails_is_told_of() {
    let bytes = checkpoint_of(300, 0);
    for length in 0..bytes.len() {
        let mut rest = &bytes[..length];
        let mut fill = |into: &mut [u8]| rest.read_exact(into);
        let error =
            MemoryIndex::<4>::read_checkpoint(&KEY, bytes.len() as u64, &mut fill).expect_err("it is cut");
        match error {
            ReadCheckpointError::Read { offset, bytes, source } => {
                assert!(offset <= length as u64 && offset + bytes as u64 > length as u64);
                assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof);
            }
            _ => panic!("{length}: {error}"),
        }
    }
}

#[test]
fn another_key_and_other_bytes_are_refused() {
    let error = read(&checkpoint_of(10, 0), &[4; 32]).expect_err("the key is another");
    assert!(matches!(error, ReadCheckpointError::Unauthentic { offset: 0 }), "{error}");
    let error = read(&[7; 1000], &KEY).expect_err("it is no checkpoint");
    assert!(matches!(error, ReadCheckpointError::Magic { found } if found == [7; 8]), "{error}");
}

/// An attacker cannot make codes, but can move whole sections with their codes between two very
/// similar checkpoints.
#[test]
fn sections_of_another_checkpoint_do_not_fit() {
    let (one, other) = (checkpoint_of(300, 0), checkpoint_of(300, 1000));
    let sections_at = HEADER_BYTES + NOTE.len() + 32;
    assert_eq!(one[..sections_at], other[..sections_at], "same counts, same note, same key");
    let slot_count = u64::from_le_bytes(one[sections_at..][..8].try_into().unwrap());
    let second_at = sections_at + 16 + 8 * usize::try_from(slot_count).unwrap() + 32;
    assert!(second_at < one.len());
    let error =
        read(&[&one[..second_at], &other[second_at..]].concat(), &KEY).expect_err("of two checkpoints");
    assert!(
        matches!(error, ReadCheckpointError::Unauthentic { offset } if offset == second_at as u64),
        "{error}"
    );
}

#[test]
fn a_note_too_long_is_not_written() {
    let index = MemoryIndex::new();
    let note = vec![0; usize::try_from(CHECKPOINT_NOTE_BYTES_MAX).unwrap() + 1];
    let error = index.write_checkpoint(&note, &KEY, &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn pieces_are_at_most_a_mebibyte() {
    let mut index = MemoryIndex::new();
    for granule in 0..300_000 {
        index.insert(Fingerprint(granule << 45), LogAddress::new(granule).unwrap()).unwrap();
    }
    let note = vec![5; 3 << 20];
    let mut bytes = Vec::new();
    let mut write = |piece: &[u8]| {
        assert!(piece.len() <= 1 << 20);
        bytes.write_all(piece)
    };
    index.write_checkpoint(&note, &KEY, &mut write).unwrap();
    let mut rest = bytes.as_slice();
    let mut read = |into: &mut [u8]| {
        assert!(into.len() <= 1 << 20);
        rest.read_exact(into)
    };
    let (read_back, note_read) =
        MemoryIndex::<512>::read_checkpoint(&KEY, bytes.len() as u64, &mut read).unwrap();
    assert_eq!((read_back.len(), note_read), (index.len(), note));
}

//! Writes an index as the bytes of a checkpoint.

use std::io;

use super::{CHECKPOINT_NOTE_BYTES_MAX, CODE_BYTES, CheckpointHeader, PIECE_BYTES, SLOT_BYTES, code_after};
use crate::memory_index::MemoryIndex;
use crate::segment::IndexSegment;

impl<const PAGE_SLOTS: usize> MemoryIndex<PAGE_SLOTS> {
    /// Passes the bytes of a checkpoint to `write`, in pieces of at most 1 MiB: the index, and
    /// `note`, in which the caller records the part of the log that the index covers. `key`
    /// authenticates all of it.
    ///
    /// # Errors
    /// The first error of `write`; and `InvalidInput` when `note` has more than
    /// [`CHECKPOINT_NOTE_BYTES_MAX`] bytes.
    pub fn write_checkpoint(
        &self,
        note: &[u8],
        key: &[u8; 32],
        write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if note.len() as u64 > CHECKPOINT_NOTE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the note of the checkpoint is too long",
            ));
        }
        let header = CheckpointHeader {
            segment_count: self.segments().len() as u64,
            block_count: self.len(),
            note_bytes: note.len() as u64,
        }
        .to_bytes();
        let mut code = blake3::keyed_hash(key, &header);
        write(&[header.as_slice(), code.as_bytes()].concat())?;
        code = code_after(&code, key).update(note).finalize();
        note.chunks(PIECE_BYTES).try_for_each(&mut *write)?;
        write(code.as_bytes())?;

        let mut piece = Vec::with_capacity(PIECE_BYTES);
        for segment in self.segments() {
            code = write_section(segment, code_after(&code, key), &mut piece, write)?;
        }
        Ok(())
    }
}

/// Writes a section, and returns its code.
fn write_section<const PAGE_SLOTS: usize>(
    segment: &IndexSegment<PAGE_SLOTS>,
    mut hasher: blake3::Hasher,
    piece: &mut Vec<u8>,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<blake3::Hash> {
    piece.clear();
    piece.extend((segment.len() as u64).to_le_bytes());
    piece.extend(u64::from(segment.address_bits()).to_le_bytes());
    for slot in segment.slots() {
        if piece.len() + SLOT_BYTES + CODE_BYTES > PIECE_BYTES {
            hasher.update(piece);
            write(piece)?;
            piece.clear();
        }
        piece.extend_from_slice(&slot.to_le_bytes());
    }
    hasher.update(piece);
    let code = hasher.finalize();
    piece.extend_from_slice(code.as_bytes());
    write(piece)?;
    Ok(code)
}

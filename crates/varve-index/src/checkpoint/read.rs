//! Reads an index from the bytes of a checkpoint. Bytes are used only after the code that covers
//! them has been checked, and a length before that only after it was compared with the bytes that
//! exist.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use varve_block::to_usize;

use super::{
    CHECKPOINT_NOTE_BYTES_MAX, CODE_BYTES, CheckpointHeader, HEADER_BYTES, MAGIC, PIECE_BYTES,
    SECTION_HEADER_BYTES, SLOT_BYTES, code_after,
};
use crate::memory_index::{MemoryIndex, prefix_bits};
use crate::segment::IndexSegment;

/// The reason why a checkpoint could not be read. The index can always be rebuilt from the
/// directories of the log.
#[derive(Debug, thiserror::Error)]
pub enum ReadCheckpointError {
    /// The magic number is wrong.
    #[error("this is not an index checkpoint, or has another version: it begins with {found:02x?}")]
    Magic { found: [u8; 8] },
    /// The checkpoint was truncated, or bytes were appended.
    #[error("the checkpoint should have {needed} bytes, but has {actual}")]
    Length {
        /// The length according to the header, or the length of a header if there is no whole one.
        needed: u64,
        actual: u64,
    },
    /// The code does not match the bytes.
    #[error(
        "checkpoint, offset {offset}: the part that begins here is damaged, or was written with another key"
    )]
    Unauthentic {
        /// The start of the damaged header, note or section.
        offset: u64,
    },
    /// The code is correct, but no index has such content.
    #[error("checkpoint, offset {offset}: the part that begins here is authentic, but invalid")]
    Senseless {
        /// The start of the header or section.
        offset: u64,
    },
    #[error("checkpoint, offset {offset}: cannot read {bytes} bytes")]
    Read {
        offset: u64,
        bytes: usize,
        /// The error of the reader.
        source: io::Error,
    },
}

/// Fills a slice with the next bytes.
type FillBytes<'a> = dyn FnMut(&mut [u8]) -> io::Result<()> + 'a;

/// The unread rest of a checkpoint.
struct CheckpointSource<'a, 'b> {
    read: &'a mut FillBytes<'b>,
    key: &'a [u8; 32],
    offset: u64,
    bytes_total: u64,
}

impl<const PAGE_SLOTS: usize> MemoryIndex<PAGE_SLOTS> {
    /// Reads a checkpoint of `bytes_total` bytes, and returns the index and its note. `read` fills
    /// the slice that it gets, at most 1 MiB, with the next bytes.
    ///
    /// A damaged checkpoint takes no more memory than the index of an undamaged one of
    /// `bytes_total` bytes.
    ///
    /// # Errors
    /// [`ReadCheckpointError`] when the bytes are not exactly those that
    /// [`write_checkpoint`](Self::write_checkpoint) wrote with `key`, or when `read` fails.
    pub fn read_checkpoint(
        key: &[u8; 32],
        bytes_total: u64,
        read: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<(Self, Vec<u8>), ReadCheckpointError> {
        let mut source = CheckpointSource { read, key, offset: 0, bytes_total };
        let (header, code) = source.header()?;
        let (note, code) = source.note(&header, &code)?;
        let segment_count = header.segment_count;
        let mut sections =
            CheckpointSections { source, code, segment_count, piece: Vec::new(), slots: Vec::new() };
        let segments =
            (0..segment_count).map(|number| sections.next(number)).collect::<Result<Vec<_>, _>>()?;
        let index = Self::from_segments(segments);
        if index.len() != header.block_count {
            return Err(ReadCheckpointError::Senseless { offset: 0 });
        }
        Ok((index, note))
    }
}

impl CheckpointSource<'_, '_> {
    fn header(&mut self) -> Result<(CheckpointHeader, blake3::Hash), ReadCheckpointError> {
        let mut bytes = [0; HEADER_BYTES];
        self.fill(&mut bytes)?;
        let [magic, segment_count, block_count, note_bytes] = words(&bytes);
        if magic.to_le_bytes() != *MAGIC {
            return Err(ReadCheckpointError::Magic { found: magic.to_le_bytes() });
        }
        let code = blake3::keyed_hash(self.key, &bytes);
        self.check(&code, 0)?;
        let header = CheckpointHeader { segment_count, block_count, note_bytes };
        match header.checkpoint_bytes() {
            Some(needed) if needed != self.bytes_total => {
                Err(ReadCheckpointError::Length { needed, actual: self.bytes_total })
            }
            Some(_) if segment_count > 0 && note_bytes <= CHECKPOINT_NOTE_BYTES_MAX => Ok((header, code)),
            _ => Err(ReadCheckpointError::Senseless { offset: 0 }),
        }
    }

    fn note(
        &mut self,
        header: &CheckpointHeader,
        code_before: &blake3::Hash,
    ) -> Result<(Vec<u8>, blake3::Hash), ReadCheckpointError> {
        let offset = self.offset;
        let mut note = vec![0; self.present(header.note_bytes, offset)?];
        for piece in note.chunks_mut(PIECE_BYTES) {
            self.fill(piece)?;
        }
        let code = code_after(code_before, self.key).update(&note).finalize();
        self.check(&code, offset)?;
        Ok((note, code))
    }

    /// Compares the next bytes with the code of the bytes read since `offset`, in constant time.
    fn check(&mut self, code: &blake3::Hash, offset: u64) -> Result<(), ReadCheckpointError> {
        let mut recorded = [0; CODE_BYTES];
        self.fill(&mut recorded)?;
        if *code == recorded { Ok(()) } else { Err(ReadCheckpointError::Unauthentic { offset }) }
    }

    /// Returns the length that the part at `offset` claims, if that many bytes exist.
    fn present(&self, claimed: u64, offset: u64) -> Result<usize, ReadCheckpointError> {
        if claimed <= self.bytes_total.saturating_sub(self.offset) {
            Ok(to_usize(claimed))
        } else {
            Err(ReadCheckpointError::Unauthentic { offset })
        }
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), ReadCheckpointError> {
        let bytes = into.len();
        match self.offset.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes_total => {
                (self.read)(into).map_err(|source| ReadCheckpointError::Read {
                    offset: self.offset,
                    bytes,
                    source,
                })?;
                self.offset = end;
                Ok(())
            }
            end => {
                let needed = end.unwrap_or(u64::MAX);
                Err(ReadCheckpointError::Length { needed, actual: self.bytes_total })
            }
        }
    }
}

struct CheckpointSections<'a, 'b> {
    source: CheckpointSource<'a, 'b>,
    /// The code of the part that was read last.
    code: blake3::Hash,
    segment_count: u64,
    /// The bytes that were read last.
    piece: Vec<u8>,
    /// The slots of the section that is being read.
    slots: Vec<u64>,
}

impl CheckpointSections<'_, '_> {
    fn next<const PAGE_SLOTS: usize>(
        &mut self,
        number: u64,
    ) -> Result<IndexSegment<PAGE_SLOTS>, ReadCheckpointError> {
        let offset = self.source.offset;
        let mut hasher = code_after(&self.code, self.source.key);
        let mut header = [0; SECTION_HEADER_BYTES];
        self.source.fill(&mut header)?;
        hasher.update(&header);
        let [slot_count, address_bits] = words(&header);
        let slots_bytes = slot_count.saturating_mul(SLOT_BYTES as u64);
        let mut left = self.source.present(slots_bytes, offset)?;

        self.slots.clear();
        while left > 0 {
            self.piece.resize(left.min(PIECE_BYTES), 0);
            self.source.fill(&mut self.piece)?;
            hasher.update(&self.piece);
            self.slots.extend(self.piece.as_chunks().0.iter().map(|slot| u64::from_le_bytes(*slot)));
            left = left.saturating_sub(self.piece.len());
        }
        self.code = hasher.finalize();
        self.source.check(&self.code, offset)?;
        self.segment(number, address_bits).ok_or(ReadCheckpointError::Senseless { offset })
    }

    /// Returns `None` if no segment with this number has such slots.
    fn segment<const PAGE_SLOTS: usize>(
        &self,
        number: u64,
        address_bits: u64,
    ) -> Option<IndexSegment<PAGE_SLOTS>> {
        let prefix_bits = prefix_bits(to_usize(number), to_usize(self.segment_count));
        IndexSegment::from_slots(prefix_bits, u32::try_from(address_bits).ok()?, &self.slots)
    }
}

/// Decodes `bytes` as `WORDS` numbers. The length must match exactly.
fn words<const WORDS: usize>(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

//! The bytes of a checkpoint to an index. Nothing is believed before the code that covers it has been checked, and no
//! length before it has been compared with what is there.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use super::{
    CHECKPOINT_NOTE_BYTES_MAX, CODE_BYTES, HEADER_BYTES, Header, MAGIC, PIECE_BYTES, SECTION_HEADER_BYTES,
    SLOT_BYTES, code_after,
};
use crate::MemoryIndex;
use crate::memory_index::prefix_bits;
use crate::segment::Segment;

/// Why no index came from a checkpoint. It can always be made again from the directories of the log.
#[derive(Debug, thiserror::Error)]
pub enum ReadCheckpointError {
    /// It begins with something else.
    #[error("this is not the checkpoint of an index, or one of another version: it begins with {found:02x?}")]
    Magic {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// It was cut, or something was appended.
    #[error("the checkpoint needs {needed} bytes, but has {actual}")]
    Length {
        /// What its header says; where it is shorter than that, what a header takes.
        needed: u64,
        /// What there is.
        actual: u64,
    },
    /// Bytes are not what was written.
    #[error("checkpoint, offset {offset}: what begins here is damaged, or was written under another key")]
    Unauthentic {
        /// Where the damaged header, note or section begins.
        offset: u64,
    },
    /// The key is right, but no index writes such a thing.
    #[error("checkpoint, offset {offset}: what begins here is authentic, but makes no sense")]
    Senseless {
        /// Where the header or section begins.
        offset: u64,
    },
    /// Reading failed.
    #[error("checkpoint, offset {offset}: cannot read {bytes} bytes")]
    Read {
        /// Where.
        offset: u64,
        /// How many.
        bytes: usize,
        /// What the reader said.
        source: io::Error,
    },
}

/// Fills a slice with the next bytes.
type Read<'a> = dyn FnMut(&mut [u8]) -> io::Result<()> + 'a;

/// What has not been read yet of a checkpoint.
struct Source<'a, 'b> {
    read: &'a mut Read<'b>,
    key: &'a [u8; 32],
    offset: u64,
    bytes_total: u64,
}

impl<const PAGE_SLOTS: usize> MemoryIndex<PAGE_SLOTS> {
    /// Reads a checkpoint of `bytes_total` bytes, and returns the index and the note that it was written with. `read` fills
    /// the slice that it is handed, at most 1 MiB, with the next bytes.
    ///
    /// However damaged the checkpoint, this takes no more memory than the index of an undamaged one of `bytes_total` bytes.
    ///
    /// # Errors
    /// [`ReadCheckpointError`] when it is not, to the byte, what [`write_checkpoint`](Self::write_checkpoint) wrote with
    /// `key`, or when `read` fails.
    pub fn read_checkpoint(
        key: &[u8; 32],
        bytes_total: u64,
        read: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<(Self, Vec<u8>), ReadCheckpointError> {
        let mut source = Source { read, key, offset: 0, bytes_total };
        let (header, code) = source.header()?;
        let (note, code) = source.note(&header, &code)?;
        let segment_count = header.segment_count;
        let mut sections = Sections { source, code, segment_count, piece: Vec::new(), slots: Vec::new() };
        let segments =
            (0..segment_count).map(|number| sections.next(number)).collect::<Result<Vec<_>, _>>()?;
        let index = Self::from_segments(segments);
        if index.len() != header.block_count {
            return Err(ReadCheckpointError::Senseless { offset: 0 });
        }
        Ok((index, note))
    }
}

impl Source<'_, '_> {
    fn header(&mut self) -> Result<(Header, blake3::Hash), ReadCheckpointError> {
        let mut bytes = [0; HEADER_BYTES];
        self.fill(&mut bytes)?;
        let [magic, segment_count, block_count, note_bytes] = words(&bytes);
        if magic.to_le_bytes() != *MAGIC {
            return Err(ReadCheckpointError::Magic { found: magic.to_le_bytes() });
        }
        let code = blake3::keyed_hash(self.key, &bytes);
        self.check(&code, 0)?;
        let header = Header { segment_count, block_count, note_bytes };
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
        header: &Header,
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

    /// Compares the next bytes with the code of what was read since `offset`; in constant time.
    fn check(&mut self, code: &blake3::Hash, offset: u64) -> Result<(), ReadCheckpointError> {
        let mut recorded = [0; CODE_BYTES];
        self.fill(&mut recorded)?;
        if *code == recorded { Ok(()) } else { Err(ReadCheckpointError::Unauthentic { offset }) }
    }

    /// A length that the thing at `offset` claims: believed only when so many bytes are there.
    fn present(&self, claimed: u64, offset: u64) -> Result<usize, ReadCheckpointError> {
        match usize::try_from(claimed) {
            Ok(length) if claimed <= self.bytes_total.saturating_sub(self.offset) => Ok(length),
            _ => Err(ReadCheckpointError::Unauthentic { offset }),
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

struct Sections<'a, 'b> {
    source: Source<'a, 'b>,
    /// The code of what was read last.
    code: blake3::Hash,
    segment_count: u64,
    /// The bytes last read.
    piece: Vec<u8>,
    /// The slots of the section that is being read.
    slots: Vec<u64>,
}

impl Sections<'_, '_> {
    fn next<const PAGE_SLOTS: usize>(
        &mut self,
        number: u64,
    ) -> Result<Segment<PAGE_SLOTS>, ReadCheckpointError> {
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

    /// `None` where no segment with this number has such slots.
    fn segment<const PAGE_SLOTS: usize>(
        &self,
        number: u64,
        address_bits: u64,
    ) -> Option<Segment<PAGE_SLOTS>> {
        let prefix_bits =
            prefix_bits(usize::try_from(number).ok()?, usize::try_from(self.segment_count).ok()?);
        Segment::from_slots(prefix_bits, u32::try_from(address_bits).ok()?, &self.slots)
    }
}

/// `bytes` as `WORDS` numbers: exactly as many as there are.
fn words<const WORDS: usize>(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

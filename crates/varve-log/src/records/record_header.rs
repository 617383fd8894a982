//! The 64 bytes in front of every clump and every directory page.
//!
//! This module compares the checksum. The code needs the store's keys: `keys/cipher.rs` computes it
//! over the header, the body, and the uid, a random number in the header of the arena.
//!
//! | offset | bytes | field       | meaning                                                                          |
//! |-------:|------:|-------------|----------------------------------------------------------------------------------|
//! |      0 |     4 | magic       | `clmp` for a clump, `page` for a directory page                                  |
//! |      4 |     4 | body_bytes  | length of the body                                                               |
//! |      8 |     8 | counter     | counts the records that the session has made; no two are alike                   |
//! |     16 |    16 | session     | random; drawn anew each time a writer opens the store                            |
//! |     32 |     4 | granule     | the record's place in the arena, in units of 128 bytes                           |
//! |     36 |     4 | table_bytes | of a framed clump: length of the table with which its body begins; else 0        |
//! |     40 |    16 | code        | authenticates bytes 0..40, the arena's uid, and the body (or the table)          |
//! |     56 |     8 | checksum    | `XXH3` of bytes 0..56                                                            |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::LittleEndian;
use xxhash_rust::xxh3::xxh3_64;

use crate::keys::cipher::CODE_BYTES;
use crate::records::granule::{GRANULE_BYTES, Granule};
use crate::records::record_sizes::{BODY_BYTES_MAX, RECORD_HEADER_BYTES};

/// The part of the header that the code covers.
const AUTHENTICATED_BYTES: usize = 40;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Holds blocks.
    Clump,
    /// Names the blocks before it.
    Page,
}

impl RecordKind {
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Clump => *b"clmp",
            Self::Page => *b"page",
        }
    }
}

/// A record's header: its checksum and bounds are right, its code is not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    pub kind: RecordKind,
    /// The length of the body in bytes.
    pub body_bytes: u32,
    /// The number of the record in its session.
    pub counter: u64,
    /// The salt of the session that wrote it.
    pub session: [u8; 16],
    /// The place in the arena that the header claims.
    pub granule: Granule,
    /// The length of the frame table in the body; 0 for a page, and for a clump without frames.
    pub table_bytes: u32,
    /// The authentication code.
    pub code: [u8; CODE_BYTES],
}

/// The reason why bytes are not a record's header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes are not the header of a clump or a page, or the header was damaged.
    #[error("no record begins here")]
    NotARecord,
    /// The record belongs at another place.
    #[error("the record here belongs at offset {actual} of its arena")]
    Misplaced {
        /// The place in the header, in bytes.
        actual: u64,
    },
    /// The length exceeds that of every record.
    #[error("a record of {body_bytes} bytes is too long: the limit is {BODY_BYTES_MAX} bytes")]
    TooLong {
        /// The length in the header.
        body_bytes: u32,
    },
}

impl RecordHeader {
    /// The length of the header in bytes.
    pub const BYTES: usize = RECORD_HEADER_BYTES;

    pub(crate) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(RECORD_HEADER_BYTES);
        bytes.extend_from_slice(&self.authenticated());
        bytes.extend_from_slice(&self.code);
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        let mut header = [0; RECORD_HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Returns the part of the header that the code covers.
    pub(crate) fn authenticated(&self) -> [u8; AUTHENTICATED_BYTES] {
        let mut bytes = Vec::with_capacity(AUTHENTICATED_BYTES);
        bytes.extend_from_slice(&self.kind.magic());
        bytes.extend_from_slice(&self.body_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.counter.to_le_bytes());
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&self.granule.0.to_le_bytes());
        bytes.extend_from_slice(&self.table_bytes.to_le_bytes());
        let mut header = [0; AUTHENTICATED_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Parses the header of the record that is expected at `granule`.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES], granule: Granule) -> Result<Self, RecordError> {
        let (header, checksum) = bytes.split_at(56);
        if checksum != xxh3_64(header).to_le_bytes() {
            return Err(RecordError::NotARecord);
        }
        let header = Self::fields(LittleEndian::new(header)).ok_or(RecordError::NotARecord)?;
        if header.granule != granule {
            return Err(RecordError::Misplaced { actual: header.granule.byte_offset() });
        }
        if header.body_bytes > BODY_BYTES_MAX {
            return Err(RecordError::TooLong { body_bytes: header.body_bytes });
        }
        Ok(header)
    }

    fn fields(mut decoder: LittleEndian<'_>) -> Option<Self> {
        let magic = decoder.array()?;
        let kind = [RecordKind::Clump, RecordKind::Page].into_iter().find(|kind| kind.magic() == magic)?;
        let body_bytes = decoder.u32()?;
        let counter = decoder.u64()?;
        let session = decoder.array()?;
        let granule = Granule(decoder.u32()?);
        let table_bytes = decoder.u32()?;
        let code = decoder.array()?;
        let sound = table_bytes == 0 || kind == RecordKind::Clump && table_bytes <= body_bytes;
        sound.then_some(Self { kind, body_bytes, counter, session, granule, table_bytes, code })
    }

    /// Returns the length of the record in its file, including the gap after it.
    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(self.body_bytes)
    }

    /// Returns the end of the record in its arena, including the gap after it, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.granule.byte_offset().saturating_add(self.record_bytes())
    }

    /// Returns the place of the next record; `None` if it is too large for a granule number.
    #[must_use]
    pub fn next(&self) -> Option<Granule> {
        Granule::at_or_after(self.granule.byte_offset().checked_add(self.record_bytes())?)
    }
}

/// Returns the length of a record with such a body in its file.
pub(crate) fn record_bytes(body_bytes: u32) -> u64 {
    let used = u64::from(body_bytes).saturating_add(RECORD_HEADER_BYTES as u64);
    used.next_multiple_of(GRANULE_BYTES)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    const HEADER: RecordHeader = RecordHeader {
        kind: RecordKind::Page,
        body_bytes: 100,
        counter: 7,
        session: [3; 16],
        granule: Granule(12),
        table_bytes: 0,
        code: [5; 16],
    };

    #[test]
    fn a_header_survives_the_round_trip() {
        assert_eq!(RecordHeader::decode(&HEADER.encode(), Granule(12)), Ok(HEADER));
        assert_eq!(HEADER.record_bytes(), 256);
        assert_eq!(HEADER.next(), Some(Granule(14)));
    }

    #[test]
    fn every_flip_is_noticed() {
        for bit in 0..RECORD_HEADER_BYTES * 8 {
            let mut bytes = HEADER.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bytes, Granule(12)), Err(RecordError::NotARecord), "bit {bit}");
        }
    }

    #[test]
    fn a_moved_or_endless_record_is_refused() {
        assert_eq!(
            RecordHeader::decode(&HEADER.encode(), Granule(13)),
            Err(RecordError::Misplaced { actual: 1536 })
        );
        let endless = RecordHeader { body_bytes: BODY_BYTES_MAX + 1, ..HEADER };
        let found = RecordHeader::decode(&endless.encode(), Granule(12));
        assert_eq!(found, Err(RecordError::TooLong { body_bytes: BODY_BYTES_MAX + 1 }));
    }
}

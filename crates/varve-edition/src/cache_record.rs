//! A record of the cache on disk: a header, and a stored block exactly as its server sent it.
//! Little-endian.
//!
//! | offset | bytes | field        | meaning                             |
//! |-------:|------:|--------------|-------------------------------------|
//! |      0 |     8 | magic        | `VRVBLK1` and a zero byte           |
//! |      8 |    32 | name         | the SHA-256 of the stored block     |
//! |     40 |     4 | stored_bytes | the length of the stored block      |
//! |     44 |     4 | reserved     | 0                                   |
//! |     48 |     8 | checksum     | XXH3-64 of the 48 bytes before      |
//!
//! The checksum finds the end of the records after a crash. The stored block itself is compared
//! with its name each time it is read.

use varve_block::LittleEndian;
use xxhash_rust::xxh3::xxh3_64;

use crate::OBJECT_BYTES_MAX;
use crate::object_name::ObjectName;

const MAGIC: [u8; 8] = *b"VRVBLK1\0";
const CHECKED_BYTES: usize = 48;

/// The length of a header in bytes.
pub const CACHE_RECORD_HEADER_BYTES: usize = 56;

/// The header of a record in a reader's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRecordHeader {
    pub name: ObjectName,
    /// The length of the stored block, in bytes.
    pub stored_bytes: u32,
}

impl CacheRecordHeader {
    /// Returns the length of the whole record in bytes.
    #[must_use]
    pub fn record_bytes(self) -> u64 {
        (CACHE_RECORD_HEADER_BYTES as u64).saturating_add(u64::from(self.stored_bytes))
    }

    /// Writes the header.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let numbers = [self.stored_bytes, 0].map(u32::to_le_bytes).concat();
        let mut bytes = [&MAGIC[..], self.name.as_bytes(), &numbers].concat();
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if the bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (checked, _) = bytes.split_at_checked(CHECKED_BYTES)?;
        let mut reader = LittleEndian::new(bytes);
        let (magic, name) = (reader.array()?, ObjectName::from_bytes(reader.array()?));
        let (stored_bytes, reserved) = (reader.u32()?, reader.u32()?);
        let checksum = u64::from_le_bytes(reader.array()?);
        let is_good = magic == MAGIC && reserved == 0 && checksum == xxh3_64(checked);
        let is_possible = (1..=OBJECT_BYTES_MAX as u64).contains(&u64::from(stored_bytes));
        (is_good && is_possible).then_some(Self { name, stored_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_any_other_byte_is_none() {
        let header = CacheRecordHeader { name: ObjectName::of(b"x"), stored_bytes: 77 };
        let bytes = header.encode();
        assert_eq!(
            (bytes.len(), CacheRecordHeader::decode(&bytes)),
            (CACHE_RECORD_HEADER_BYTES, Some(header))
        );
        assert_eq!(header.record_bytes(), 56 + 77);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(CacheRecordHeader::decode(&bad), None, "byte {at}");
            assert_eq!(CacheRecordHeader::decode(&bytes[..at]), None, "{at} bytes");
        }
        let empty = CacheRecordHeader { stored_bytes: 0, ..header };
        assert_eq!(CacheRecordHeader::decode(&empty.encode()), None);
    }
}

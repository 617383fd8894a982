//! The header of a Venti partition of arenas.
//!
//! | at   | size | what         |                                                       |
//! |-----:|-----:|--------------|-------------------------------------------------------|
//! |    0 |    4 | magic        | 0xa9e4a5e7; 256 KiB from the partition's beginning    |
//! |    4 |    4 | version      | 3                                                     |
//! |    8 |    4 | block_bytes  | a power of two                                        |
//! |   12 |    4 | arenas_at    | position of the first arena                           |
//!
//! The table of arenas is a text between the next multiple of a block after the header and the
//! first arena. It has the number of arenas, and for each of them a line with its name, start and
//! end.

use std::ops::Range;

use varve_block::BigEndian;

use super::is_block_size;

/// The position of the header in a partition.
pub const PARTITION_HEADER_AT: u64 = 256 << 10;
/// The length of the header.
pub const PARTITION_HEADER_BYTES: usize = 512;

const MAGIC: u32 = 0xa9e4_a5e7;
const VERSION: u32 = 3;
/// The limit for the length of the table.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// The header of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionHeader {
    /// The block size of the partition.
    pub block_bytes: u32,
    /// The position of the first arena.
    pub arenas_at: u64,
}

/// An arena in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaPlace {
    pub name: String,
    /// From the head to the end of the trailer.
    pub range: Range<u64>,
}

/// Why bytes are not a header or a table of arenas.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodePartitionError {
    /// The bytes are something else.
    #[error("it is not a partition of Venti arenas")]
    NotOne,
    #[error("the partition has version {version}: {VERSION} is supported")]
    Version { version: u32 },
    /// Contradictory sizes.
    #[error(
        "the partition is invalid: its blocks have {block_bytes} bytes, and its first arena is at {arenas_at}"
    )]
    Sizes {
        block_bytes: u32,
        /// The position of the first arena.
        arenas_at: u64,
    },
    /// A line of the table is malformed.
    #[error("line {line} of the table of arenas is malformed")]
    Table {
        /// Counted from 1.
        line: usize,
    },
}

impl PartitionHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`DecodePartitionError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodePartitionError> {
        let mut rest = BigEndian::new(bytes);
        let mut number = || rest.u32().ok_or(DecodePartitionError::NotOne);
        if number()? != MAGIC {
            return Err(DecodePartitionError::NotOne);
        }
        let (version, block_bytes, arenas_at) = (number()?, number()?, u64::from(number()?));
        if version != VERSION {
            return Err(DecodePartitionError::Version { version });
        }
        let header = Self { block_bytes, arenas_at };
        let table = header.table();
        let length = table.end.saturating_sub(table.start);
        if !is_block_size(block_bytes) || length == 0 || length > TABLE_BYTES_MAX {
            return Err(DecodePartitionError::Sizes { block_bytes, arenas_at });
        }
        Ok(header)
    }

    /// The range of the table of arenas, which is at most a few MiB long.
    #[must_use]
    pub fn table(&self) -> Range<u64> {
        let header_end = PARTITION_HEADER_AT.saturating_add(PARTITION_HEADER_BYTES as u64);
        let start = header_end.checked_next_multiple_of(u64::from(self.block_bytes).max(1));
        start.unwrap_or(u64::MAX)..self.arenas_at
    }

    /// Decodes the table of arenas. Arenas that overlap each other or the table are an error.
    ///
    /// # Errors
    /// [`DecodePartitionError::Table`].
    pub fn decode_table(&self, bytes: &[u8]) -> Result<Vec<ArenaPlace>, DecodePartitionError> {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut lines = text.split(|byte| *byte == b'\n');
        let wrong = |line| DecodePartitionError::Table { line };
        let count: usize = lines.next().and_then(parsed).ok_or(wrong(1))?;
        let mut places: Vec<ArenaPlace> = Vec::new();
        for (line, text) in (2..).zip(lines.take(count)) {
            let place = place_of(text).ok_or(wrong(line))?;
            let free_from = places.last().map_or(self.arenas_at, |last| last.range.end);
            if place.range.start < free_from || place.range.is_empty() {
                return Err(wrong(line));
            }
            places.push(place);
        }
        if places.len() == count { Ok(places) } else { Err(wrong(places.len().saturating_add(2))) }
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn place_of(line: &[u8]) -> Option<ArenaPlace> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let name = String::from_utf8_lossy(fields.next()?).into_owned();
    let (start, stop) = (parsed(fields.next()?)?, parsed(fields.next()?)?);
    fields.next().is_none().then_some(ArenaPlace { name, range: start..stop })
}

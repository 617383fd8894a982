//! What a partition of arenas begins with.
//!
//! | at   | size | what         |                                                       |
//! |-----:|-----:|--------------|-------------------------------------------------------|
//! |    0 |    4 | magic        | 0xa9e4a5e7; 256 KiB from the partition's beginning    |
//! |    4 |    4 | version      | 3                                                     |
//! |    8 |    4 | block_bytes  | a power of two                                        |
//! |   12 |    4 | arenas_at    | where the first arena begins                          |
//!
//! At the next multiple of a block after that, up to the first arena, stands a text: how many arenas there are, and for each
//! of them a line of its name, where it begins and where it ends.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use super::{Rest, is_block_size};

/// Where the header stands in a partition.
pub const PARTITION_HEADER_AT: u64 = 256 << 10;
/// How long it is.
pub const PARTITION_HEADER_BYTES: usize = 512;

const MAGIC: u32 = 0xa9e4_a5e7;
const VERSION: u32 = 3;
/// How many arenas a table may list, and how long it may be.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// The header of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionHeader {
    /// The size of a block of its files.
    pub block_bytes: u32,
    /// Where the first arena begins.
    pub arenas_at: u64,
}

/// Where an arena lies in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaPlace {
    /// Its name.
    pub name: String,
    /// From its head to the end of its trailer.
    pub range: Range<u64>,
}

/// Why bytes are no header, or no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodePartitionError {
    /// Something else.
    #[error("it is no partition of Venti's arenas")]
    NotOne,
    /// A version that nobody knows.
    #[error("a partition of arenas of version {version}: {VERSION} is known")]
    Version {
        /// The version.
        version: u32,
    },
    /// Sizes that do not fit together.
    #[error("a partition of arenas with blocks of {block_bytes} bytes, and its first arena at {arenas_at}")]
    Sizes {
        /// The size of a block.
        block_bytes: u32,
        /// Where the first arena should begin.
        arenas_at: u64,
    },
    /// The table of arenas is none.
    #[error("line {line} of the table of arenas is none")]
    Table {
        /// Counted from 1.
        line: usize,
    },
}

impl PartitionHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// [`DecodePartitionError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodePartitionError> {
        let mut rest = Rest(bytes);
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

    /// Where the table of arenas stands; a few MiB at most.
    #[must_use]
    pub fn table(&self) -> Range<u64> {
        let header_end = PARTITION_HEADER_AT.saturating_add(PARTITION_HEADER_BYTES as u64);
        let start = header_end.checked_next_multiple_of(u64::from(self.block_bytes).max(1));
        start.unwrap_or(u64::MAX)..self.arenas_at
    }

    /// Reads the table of arenas. Those that overlap, or begin within the table, are an error.
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

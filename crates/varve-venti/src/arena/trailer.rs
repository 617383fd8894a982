//! The trailer of a Venti arena, in a block of its own.
//!
//! |  version 4 | version 5 | size | what          | meaning                             |
//! |-----------:|----------:|-----:|---------------|-------------------------------------|
//! |          0 |         0 |    4 | magic         | 0xf2a14ead                          |
//! |          4 |         4 |    4 | version       |                                     |
//! |          8 |         8 |   64 | name          |                                     |
//! |         72 |        72 |    4 | clumps        | number of clumps in the index       |
//! |         76 |        76 |    4 | compressed    | number of compressed clumps         |
//! |         80 |        80 |    8 | times         | of the first and the last write     |
//! |            |        88 |    4 | clump_magic   |                                     |
//! |         88 |        92 |    8 | used          | length of the clumps                |
//! |         96 |       100 |    8 | plain_bytes   | length of the uncompressed blocks   |
//! |        104 |       108 |    1 | sealed        |                                     |
//! |        105 |       109 |    1 | has_extension | 0 or 1                              |
//! | at the end |           |   20 | score         | of the arena; zeros if not computed |
//!
//! If `has_extension` is 1, the fields clumps, compressed, used, plain_bytes and sealed follow
//! again, with the values of the log. The score is the hash of the whole arena, with these 20 bytes
//! as zeros. They are the last ones of the block.

use varve_block::BigEndian;

use super::read_name;
use crate::SCORE_BYTES;

const MAGIC: u32 = 0xf2a1_4ead;

/// The trailer of an arena. Its counts are those of the log, not those of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaTrailer {
    /// The same as in the head.
    pub version: u32,
    /// The same as in the head.
    pub name: String,
    /// The number of clumps.
    pub clumps: u32,
    /// The length of the clumps, with their headers.
    pub used: u64,
    /// The length of the uncompressed blocks.
    pub plain_bytes: u64,
    /// Nothing will be added to the arena.
    pub is_sealed: bool,
    /// The hash of the arena; `None` if it has not been computed yet.
    pub score: Option<[u8; SCORE_BYTES]>,
}

/// Why bytes are not the trailer of an arena.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeArenaTrailerError {
    /// The bytes are something else.
    #[error("the trailer of the arena is malformed")]
    NotOne,
    #[error("the trailer of the arena has version {version}: 4 and 5 are supported")]
    Version { version: u32 },
}

/// The counts of clumps. The trailer has them for the index, and optionally once more for the log.
struct ClumpCounts {
    clumps: u32,
    used: u64,
    plain_bytes: u64,
    is_sealed: bool,
}

fn tail_counts(clumps: u32, rest: &mut BigEndian<'_>) -> Option<ClumpCounts> {
    Some(ClumpCounts { clumps, used: rest.u64()?, plain_bytes: rest.u64()?, is_sealed: rest.u8()? == 1 })
}

impl ArenaTrailer {
    /// Decodes a trailer from the last block of an arena.
    ///
    /// # Errors
    /// [`DecodeArenaTrailerError`].
    pub fn decode(block: &[u8]) -> Result<Self, DecodeArenaTrailerError> {
        let not_one = || DecodeArenaTrailerError::NotOne;
        let mut rest = BigEndian::new(block);
        if rest.u32() != Some(MAGIC) {
            return Err(not_one());
        }
        let version = rest.u32().ok_or_else(not_one)?;
        if !(4..=5).contains(&version) {
            return Err(DecodeArenaTrailerError::Version { version });
        }
        let (name, indexed, logged) = fields(&mut rest, version).ok_or_else(not_one)?;
        let (_, score) = block.split_last_chunk::<SCORE_BYTES>().ok_or_else(not_one)?;
        let is_sealed = indexed.is_sealed || logged.as_ref().is_some_and(|logged| logged.is_sealed);
        let ClumpCounts { clumps, used, plain_bytes, .. } = logged.unwrap_or(indexed);
        let score = Some(*score).filter(|score| *score != [0; SCORE_BYTES]);
        Ok(Self { version, name, clumps, used, plain_bytes, is_sealed, score })
    }
}

fn fields(rest: &mut BigEndian<'_>, version: u32) -> Option<(String, ClumpCounts, Option<ClumpCounts>)> {
    let name = read_name(rest)?;
    let (clumps, _compressed, _first, _last) = (rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?);
    if version == 5 {
        rest.u32()?;
    }
    let indexed = tail_counts(clumps, rest)?;
    let has_extension = rest.u8()? == 1;
    let logged = if has_extension {
        let (clumps, _compressed) = (rest.u32()?, rest.u32()?);
        Some(tail_counts(clumps, rest)?)
    } else {
        None
    };
    Some((name, indexed, logged))
}

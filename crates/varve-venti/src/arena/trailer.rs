//! What an arena ends with, in a block of its own.
//!
//! | version 4 | version 5 | size | what           |                                                              |
//! |----------:|----------:|-----:|----------------|--------------------------------------------------------------|
//! |         0 |         0 |    4 | magic          | 0xf2a14ead                                                   |
//! |         4 |         4 |    4 | version        |                                                              |
//! |         8 |         8 |   64 | name           |                                                              |
//! |        72 |        72 |    4 | clumps         | how many are in the index                                    |
//! |        76 |        76 |    4 | compressed     | how many of them are compressed                              |
//! |        80 |        80 |    8 | times          | of the first and the last write                              |
//! |           |        88 |    4 | clump_magic    |                                                              |
//! |        88 |        92 |    8 | used           | how long the clumps are                                      |
//! |        96 |       100 |    8 | plain_bytes    | how long they would be uncompressed                          |
//! |       104 |       108 |    1 | sealed         |                                                              |
//! |       105 |       109 |    1 | has_extension  | 1: clumps, compressed, used, plain_bytes and sealed follow once more, as they are in the log |
//! | last 20 bytes |   |   20 | score          | of the whole arena, these bytes taken as zeros; zeros if it was not summed |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::Rest;
use crate::SCORE_BYTES;

/// How much of its block has to be read for a trailer, but for the score at the block's end.
pub const ARENA_TRAILER_BYTES: usize = 135;

const MAGIC: u32 = 0xf2a1_4ead;

/// The trailer of an arena: of its log, whatever is in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaTrailer {
    /// As the head's.
    pub version: u32,
    /// As the head's.
    pub name: String,
    /// How many clumps there are.
    pub clumps: u32,
    /// How long they are, with their headers.
    pub used: u64,
    /// How long their blocks are.
    pub plain_bytes: u64,
    /// Whether nothing will be added.
    pub is_sealed: bool,
    /// The hash of the arena; `None` if nobody has made it yet.
    pub score: Option<[u8; SCORE_BYTES]>,
}

/// Why bytes are no trailer of an arena.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeArenaTrailerError {
    /// Something else.
    #[error("the arena does not end as an arena does")]
    NotOne,
    /// A version that nobody knows.
    #[error("an arena that ends with version {version}: 4 and 5 are known")]
    Version {
        /// The version.
        version: u32,
    },
}

/// What is said of the clumps, once of the index and perhaps once more of the log.
struct Counts {
    clumps: u32,
    used: u64,
    plain_bytes: u64,
    is_sealed: bool,
}

fn tail_counts(clumps: u32, rest: &mut Rest<'_>) -> Option<Counts> {
    Some(Counts { clumps, used: rest.u64()?, plain_bytes: rest.u64()?, is_sealed: rest.u8()? == 1 })
}

impl ArenaTrailer {
    /// Reads a trailer: the last block of an arena.
    ///
    /// # Errors
    /// [`DecodeArenaTrailerError`].
    pub fn decode(block: &[u8]) -> Result<Self, DecodeArenaTrailerError> {
        let not_one = || DecodeArenaTrailerError::NotOne;
        let mut rest = Rest(block);
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
        let Counts { clumps, used, plain_bytes, .. } = logged.unwrap_or(indexed);
        let score = Some(*score).filter(|score| *score != [0; SCORE_BYTES]);
        Ok(Self { version, name, clumps, used, plain_bytes, is_sealed, score })
    }
}

fn fields(rest: &mut Rest<'_>, version: u32) -> Option<(String, Counts, Option<Counts>)> {
    let name = rest.name()?;
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

//! A clump: a block in an arena, behind its header.
//!
//! | at | size | what        |                                               |
//! |---:|-----:|-------------|-----------------------------------------------|
//! |  0 |    4 | magic       | of the arena; 0 ends the clumps               |
//! |  4 |    1 | type        | 255: was found corrupt                        |
//! |  5 |    2 | size        | how long it is here                           |
//! |  7 |    2 | plain_bytes | how long its block is                         |
//! |  9 |   20 | score       | of the block                                  |
//! | 29 |    1 | encoding    | 1 as it is, 2 compressed                      |
//! | 30 |    4 | creator     |                                               |
//! | 34 |    4 | time        | when it was written                           |
//!
//! The arena's directory has the 25 bytes from the type to the score of each clump, in their order.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;

use super::Rest;
use crate::whack::{UnwhackError, unwhack};
use crate::{SCORE_BYTES, WireType};

/// The size of a clump's header.
pub const CLUMP_HEADER_BYTES: usize = 38;
/// The size of an entry of the arena's directory: a part of the header.
pub const DIRECTORY_ENTRY_BYTES: usize = 25;

const CORRUPT: u8 = 255;
const PLAIN: u8 = 1;
const COMPRESSED: u8 = 2;

/// The header of a clump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClumpHeader {
    /// What its block is for.
    pub wire_type: WireType,
    /// How many bytes follow the header.
    pub size: u16,
    /// How many bytes the block has.
    pub plain_bytes: u16,
    /// The block's name.
    pub score: [u8; SCORE_BYTES],
    /// How it is stored.
    pub encoding: u8,
    /// In seconds since 1970.
    pub time: u32,
}

/// Why there is no block in a clump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenClumpError {
    /// Venti itself has found that it is damaged.
    #[error("it was marked as corrupt")]
    MarkedCorrupt,
    /// Neither plain nor compressed.
    #[error("its encoding is {encoding}: 1 and 2 are known")]
    Encoding {
        /// What it says.
        encoding: u8,
    },
    /// Its sizes do not fit its encoding, or what is there.
    #[error("{size} bytes stand for {plain_bytes}, with encoding {encoding}")]
    Sizes {
        /// How many bytes are stored.
        size: usize,
        /// How many they stand for.
        plain_bytes: u16,
        /// How.
        encoding: u8,
    },
    /// The compressed bytes are none.
    #[error(transparent)]
    Whack(#[from] UnwhackError),
}

impl ClumpHeader {
    /// Reads a header; `None` where the bytes do not begin with this magic, or are too few.
    #[must_use]
    pub fn decode(bytes: &[u8], magic: u32) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.u32()? != magic {
            return None;
        }
        let wire_type = WireType::from_byte(rest.u8()?);
        let (size, plain_bytes) = (rest.u16()?, rest.u16()?);
        let (score, encoding) = (rest.array()?, rest.u8()?);
        let (_creator, time) = (rest.u32()?, rest.u32()?);
        Some(Self { wire_type, size, plain_bytes, score, encoding, time })
    }

    /// The header and what follows it.
    #[must_use]
    pub fn clump_bytes(&self) -> usize {
        CLUMP_HEADER_BYTES.saturating_add(usize::from(self.size))
    }

    /// The block that is stored as `data`. Whether it has the score that it should have is for the caller to see.
    ///
    /// # Errors
    /// [`OpenClumpError`].
    pub fn open<'d>(&self, data: &'d [u8]) -> Result<Cow<'d, [u8]>, OpenClumpError> {
        let Self { size, plain_bytes, encoding, .. } = *self;
        if self.wire_type.to_byte() == CORRUPT {
            return Err(OpenClumpError::MarkedCorrupt);
        }
        let is_whole = data.len() == usize::from(size);
        match encoding {
            PLAIN if is_whole && size == plain_bytes => Ok(Cow::Borrowed(data)),
            COMPRESSED if is_whole && size < plain_bytes => {
                Ok(Cow::Owned(unwhack(data, usize::from(plain_bytes))?))
            }
            PLAIN | COMPRESSED => Err(OpenClumpError::Sizes { size: data.len(), plain_bytes, encoding }),
            encoding => Err(OpenClumpError::Encoding { encoding }),
        }
    }
}

//! A clump in a Venti arena: a block with its header.
//!
//! | at | size | what        |                                               |
//! |---:|-----:|-------------|-----------------------------------------------|
//! |  0 |    4 | magic       | of the arena; 0 ends the clumps               |
//! |  4 |    1 | type        | 255: found corrupt                            |
//! |  5 |    2 | size        | stored length                                 |
//! |  7 |    2 | plain_bytes | length of the block                           |
//! |  9 |   20 | score       | of the block                                  |
//! | 29 |    1 | encoding    | 1 plain, 2 compressed                         |
//! | 30 |    4 | creator     |                                               |
//! | 34 |    4 | time        | seconds since 1970                            |
//!
//! The arena's directory has the 25 bytes from the type to the score of each clump, in their order.

use std::borrow::Cow;

use varve_block::BigEndian;

use crate::SCORE_BYTES;
use crate::whack::{UnwhackError, unwhack};
use crate::wire_type::WireType;

/// The size of a clump's header.
pub const CLUMP_HEADER_BYTES: usize = 38;
/// The size of an entry of the arena's directory, which is a part of the header.
pub const DIRECTORY_ENTRY_BYTES: usize = 25;

const CORRUPT: u8 = 255;
const PLAIN: u8 = 1;
const COMPRESSED: u8 = 2;

/// The header of a clump; see the table above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClumpHeader {
    pub wire_type: WireType,
    /// The number of bytes after the header.
    pub size: u16,
    /// The length of the uncompressed block.
    pub plain_bytes: u16,
    /// The score of the block.
    pub score: [u8; SCORE_BYTES],
    /// 1 for plain, 2 for compressed.
    pub encoding: u8,
    /// In seconds since 1970.
    pub time: u32,
}

/// Why a clump cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenVentiClumpError {
    /// Venti itself found the clump damaged.
    #[error("it was marked as corrupt")]
    MarkedCorrupt,
    #[error("its encoding {encoding} is unknown: 1 and 2 are supported")]
    Encoding { encoding: u8 },
    /// The sizes contradict the encoding, or the bytes that are present.
    #[error("its sizes are invalid: {size} bytes for {plain_bytes}, with encoding {encoding}")]
    Sizes {
        size: usize,
        /// The length of the uncompressed block.
        plain_bytes: u16,
        encoding: u8,
    },
    /// The compressed bytes are invalid.
    #[error("{0}")]
    Whack(#[from] UnwhackError),
}

impl ClumpHeader {
    /// Decodes a header. Returns `None` if the bytes are too few, or do not begin with this magic.
    #[must_use]
    pub fn decode(bytes: &[u8], magic: u32) -> Option<Self> {
        let mut rest = BigEndian::new(bytes);
        if rest.u32()? != magic {
            return None;
        }
        let wire_type = WireType::from_byte(rest.u8()?);
        let (size, plain_bytes) = (rest.u16()?, rest.u16()?);
        let (score, encoding) = (rest.array()?, rest.u8()?);
        let (_creator, time) = (rest.u32()?, rest.u32()?);
        Some(Self { wire_type, size, plain_bytes, score, encoding, time })
    }

    /// The length of the header and the bytes after it.
    #[must_use]
    pub fn clump_bytes(&self) -> usize {
        CLUMP_HEADER_BYTES.saturating_add(usize::from(self.size))
    }

    /// Decodes the block that is stored as `data`. The caller checks its score.
    ///
    /// # Errors
    /// [`OpenVentiClumpError`].
    pub fn open<'d>(&self, data: &'d [u8]) -> Result<Cow<'d, [u8]>, OpenVentiClumpError> {
        let Self { size, plain_bytes, encoding, .. } = *self;
        if self.wire_type.to_byte() == CORRUPT {
            return Err(OpenVentiClumpError::MarkedCorrupt);
        }
        let is_whole = data.len() == usize::from(size);
        match encoding {
            PLAIN if is_whole && size == plain_bytes => Ok(Cow::Borrowed(data)),
            COMPRESSED if is_whole && size < plain_bytes => {
                Ok(Cow::Owned(unwhack(data, usize::from(plain_bytes))?))
            }
            PLAIN | COMPRESSED => Err(OpenVentiClumpError::Sizes { size: data.len(), plain_bytes, encoding }),
            encoding => Err(OpenVentiClumpError::Encoding { encoding }),
        }
    }
}

//! The head of a Venti arena, in a block of its own.
//!
//! | at | size | what         |                                                |
//! |---:|-----:|--------------|------------------------------------------------|
//! |  0 |    4 | magic        | 0xd15c4ead                                     |
//! |  4 |    4 | version      | 4 or 5                                         |
//! |  8 |   64 | name         | padded with zeros                              |
//! | 72 |    4 | block_bytes  |                                                |
//! | 76 |    8 | size         | of the arena, with head and trailer            |
//! | 84 |    4 | clump_magic  | version 5 only                                 |

use varve_block::BigEndian;

use super::{is_block_size, read_name};

/// The number of bytes to read for a head.
pub const ARENA_HEAD_BYTES: usize = 88;

const MAGIC: u32 = 0xd15c_4ead;
/// The magic of clumps in version 4.
const CLUMP_MAGIC_4: u32 = 0xd15c_b10c;

/// The head of an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaHead {
    /// 4 or 5.
    pub version: u32,
    pub name: String,
    /// The block size of the arena's partition.
    pub block_bytes: u32,
    /// From the head to the end of the trailer; more than four blocks.
    pub size: u64,
    /// The magic of each clump.
    pub clump_magic: u32,
}

/// Why bytes are not the head of an arena.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeArenaHeadError {
    /// The bytes are something else.
    #[error("it is not a Venti arena")]
    NotOne,
    #[error("the arena has version {version}: 4 and 5 are supported")]
    Version { version: u32 },
    /// Contradictory sizes.
    #[error("the arena is invalid: it has {size} bytes, with blocks of {block_bytes}")]
    Sizes { block_bytes: u32, size: u64 },
}

impl ArenaHead {
    /// Decodes a head.
    ///
    /// # Errors
    /// [`DecodeArenaHeadError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeArenaHeadError> {
        let mut rest = BigEndian::new(bytes);
        let not_one = || DecodeArenaHeadError::NotOne;
        if rest.u32() != Some(MAGIC) {
            return Err(not_one());
        }
        let version = rest.u32().ok_or_else(not_one)?;
        let name = read_name(&mut rest).ok_or_else(not_one)?;
        let block_bytes = rest.u32().ok_or_else(not_one)?;
        let size = rest.u64().ok_or_else(not_one)?;
        let clump_magic = match version {
            4 => CLUMP_MAGIC_4,
            5 => rest.u32().ok_or_else(not_one)?,
            version => return Err(DecodeArenaHeadError::Version { version }),
        };
        if !is_block_size(block_bytes) || size <= u64::from(block_bytes).saturating_mul(4) || size > 1 << 50 {
            return Err(DecodeArenaHeadError::Sizes { block_bytes, size });
        }
        Ok(Self { version, name, block_bytes, size, clump_magic })
    }

    /// The range of the clumps and their directory in the arena.
    #[must_use]
    pub fn middle(&self) -> std::ops::Range<u64> {
        let block_bytes = u64::from(self.block_bytes);
        block_bytes..self.size.saturating_sub(block_bytes)
    }
}

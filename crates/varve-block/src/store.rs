//! The waist of the hourglass.

use std::error::Error;

use bytes::Bytes;

use crate::{BlockType, Score};

/// The largest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// What is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// What the bytes are for.
    pub block_type: BlockType,
    /// At most [`BLOCK_BYTES_MAX`] of them.
    pub bytes: &'a [u8],
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockName {
    /// The score that a put returned.
    pub score: Score,
    /// The type that was put.
    pub block_type: BlockType,
}

impl std::fmt::Display for BlockName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} block {}", self.block_type, self.score)
    }
}

/// A store of blocks. Every form of it (the local engine, a remote server, a cache, a set of shards) passes the suite
/// in `contract`.
///
/// Callable from many threads at once. A block is readable, through the same store, as soon as its put has returned;
/// it survives power loss as soon as a `sync` that began later has returned.
pub trait BlockStore: Send + Sync {
    /// How many bytes each score of this store has.
    fn score_bytes(&self) -> usize;

    /// The score that stands for the empty block. Trees use it for all zeros and never put that block; a store that is
    /// given it stores it like any other.
    fn empty_score(&self) -> Score;

    /// Stores `block`, unless it is there already, and returns its name.
    ///
    /// # Errors
    /// See [`PutError`]. Blocks put earlier stay as they were.
    fn put(&self, block: Block<'_>) -> Result<Score, PutError>;

    /// Reads a block back.
    ///
    /// # Errors
    /// See [`GetError`]. Never returns bytes that were not put under this name.
    fn get(&self, name: &BlockName) -> Result<Bytes, GetError>;

    /// Returns once every block put before the call survives power loss.
    ///
    /// # Errors
    /// See [`SyncError`]: some earlier block may be lost, and the store says so at every later sync as well.
    fn sync(&self) -> Result<(), SyncError>;

    /// Puts many blocks; the scores come back in the blocks' order. Duplicates within the batch are stored once.
    ///
    /// # Errors
    /// As [`put`](Self::put); some of the blocks may have been stored.
    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        blocks.iter().map(|block| self.put(*block)).collect()
    }

    /// Reads many blocks, in whatever order is cheapest; the results come back in the names' order, one each, so that
    /// a damaged block does not hide its neighbours.
    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        names.iter().map(|name| self.get(name)).collect()
    }

    /// Told that some of these blocks, and others like them, will be asked for one at a time. A store may have in memory what will
    /// make that quicker, or do nothing; nothing follows from it.
    fn expect(&self, _names: &[BlockName]) {}

    /// Whether each of these blocks is stored, without reading it.
    ///
    /// # Errors
    /// As [`get`](Self::get), but a block that is missing is an answer and not an error.
    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        names
            .iter()
            .map(|name| match self.get(name) {
                Ok(_) => Ok(true),
                Err(GetError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            })
            .collect()
    }
}

/// Why a block was not stored.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// No store takes a block this large.
    #[error("a block of {bytes} bytes: the largest has {BLOCK_BYTES_MAX}")]
    TooLarge {
        /// The block's size.
        bytes: usize,
    },
    /// Another block with other bytes already has this name. Happens only where somebody has forged a hash collision.
    #[error("{name}: another block with this score but other bytes is stored; the new one is refused")]
    Collision {
        /// The name that two blocks share.
        name: BlockName,
    },
    /// The store was opened to be read, or has turned read-only after a fault.
    #[error("the store is read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// The store could not do it.
    #[error("a block could not be stored")]
    Failed {
        /// What went wrong below.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Why a block was not read.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No block has this name.
    #[error("{name} is not in the store")]
    NotFound {
        /// What was asked for.
        name: BlockName,
    },
    /// The block's place is known, but what is there is not the block.
    #[error("{name} is damaged")]
    Damaged {
        /// What was asked for.
        name: BlockName,
        /// What was found in its place.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The store could not do it: the block may well be there.
    #[error("{name} could not be read")]
    Failed {
        /// What was asked for.
        name: BlockName,
        /// What went wrong below.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Why earlier blocks may not survive power loss.
#[derive(Debug, thiserror::Error)]
#[error("what was written since the last sync may be lost")]
pub struct SyncError {
    /// What went wrong below.
    pub source: Box<dyn Error + Send + Sync>,
}

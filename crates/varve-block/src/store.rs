//! The trait of block stores, and its errors.

use std::error::Error;

use bytes::Bytes;

use crate::block_type::BlockType;
use crate::has_kind;
use crate::score::Score;

/// The largest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// A block to put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    pub block_type: BlockType,
    /// At most [`BLOCK_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
}

/// The name under which a block is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockName {
    /// The score that `put` returned.
    pub score: Score,
    /// The type with which the block was put.
    pub block_type: BlockType,
}

impl std::fmt::Display for BlockName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} block {}", self.block_type, self.score)
    }
}

/// The way in which blocks will probably be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExpectedReads {
    /// From the beginning of a file to its end.
    #[default]
    InOrder,
    /// In small pieces at random places, as those of a disk or of a database.
    AtRandom,
}

/// The knowledge of a caller about the blocks that it puts.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutHints<'a> {
    pub reads: ExpectedReads,
    /// The data leaf that each of the first blocks has replaced at its place in a disk or a file;
    /// `None` if that is not known.
    pub replaced: &'a [Option<Score>],
}

/// A store of blocks. Every implementation (the local store, a remote server, a cache, a set of
/// shards) passes the suite in `contract`.
///
/// A store may be used from several threads at once. A block is readable, through the same store,
/// as soon as its put has returned. It survives power loss as soon as a `sync` that began later has
/// returned.
pub trait BlockStore: Send + Sync {
    /// Returns the width of this store's scores in bytes.
    fn score_bytes(&self) -> usize;

    /// Returns the score of the block without bytes. A tree uses this score for a subtree of zeros
    /// and does not put the block. The block can still be put, like any other.
    fn empty_score(&self) -> Score;

    /// Stores `block`, unless it is already stored, and returns its score.
    ///
    /// # Errors
    /// See [`PutError`]. Blocks that were put earlier are unchanged.
    fn put(&self, block: Block<'_>) -> Result<Score, PutError>;

    /// Reads a block.
    ///
    /// # Errors
    /// See [`GetError`]. Never returns bytes that were not put under this name.
    fn get(&self, name: &BlockName) -> Result<Bytes, GetError>;

    /// Returns once every block that was put before the call survives power loss.
    ///
    /// # Errors
    /// See [`SyncError`]: an earlier block may be lost, and every later sync reports the error
    /// again.
    fn sync(&self) -> Result<(), SyncError>;

    /// Puts many blocks, and returns the scores in the order of the blocks. Duplicates within the
    /// batch are stored once.
    ///
    /// # Errors
    /// As [`put`](Self::put); some of the blocks may have been stored.
    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        blocks.iter().map(|block| self.put(*block)).collect()
    }

    /// Like [`put_batch`](Self::put_batch), with what the caller knows of the blocks. A store may
    /// keep them accordingly, or do the same as for other blocks.
    ///
    /// # Errors
    /// As [`put_batch`](Self::put_batch).
    fn put_batch_with(&self, blocks: &[Block<'_>], _hints: PutHints<'_>) -> Result<Vec<Score>, PutError> {
        self.put_batch(blocks)
    }

    /// Reads many blocks, in the cheapest order. Returns one result for each name, in the order of
    /// the names, so that a damaged block does not hide its neighbours.
    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        names.iter().map(|name| self.get(name)).collect()
    }

    /// Announces that some of these blocks, and similar ones, will be requested one at a time. A
    /// store may prefetch data in memory that makes this faster, or do nothing. The call has no
    /// other effect.
    fn expect(&self, _names: &[BlockName]) {}

    /// Returns, for each of these blocks, true if it is stored. Need not read the blocks.
    ///
    /// # Errors
    /// As [`get`](Self::get), but a missing block is an answer and not an error.
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

/// The reason why a block was not stored.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The block is larger than any store accepts.
    #[error("a block of {bytes} bytes is too large: the limit is {BLOCK_BYTES_MAX} bytes")]
    TooLarge {
        /// The size of the block.
        bytes: usize,
    },
    /// Another block with other bytes already has this name. Only a forged hash collision causes
    /// this.
    #[error(
        "{name}: the store already has a block with this score but different bytes; the new block is refused"
    )]
    Collision {
        /// The name that the two blocks share.
        name: BlockName,
    },
    /// The store was opened read-only, or became read-only after a fault.
    #[error("the store is read-only: {reason}")]
    ReadOnly { reason: String },
    /// The store failed.
    #[error("a block could not be stored")]
    Failed { source: Box<dyn Error + Send + Sync> },
}

/// The reason why a block was not read.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No block has this name.
    #[error("{name} is not in the store")]
    NotFound { name: BlockName },
    /// The place of the block is known, but the bytes there are unreadable or are not the block.
    #[error("{name} is damaged")]
    Damaged {
        name: BlockName,
        /// The check that failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The store failed: the block may still be there.
    #[error("{name} could not be read")]
    Failed { name: BlockName, source: Box<dyn Error + Send + Sync> },
}

has_kind!(GetError: Self::NotFound { .. } | Self::Damaged { .. } => Damage);

/// The reason why earlier blocks may not survive power loss.
#[derive(Debug, thiserror::Error)]
#[error("data written since the last sync may be lost")]
pub struct SyncError {
    pub source: Box<dyn Error + Send + Sync>,
}

//! The blocks that deltas are made of. The log does not know where a block is, so its callers
//! supply them.

use std::error::Error;

use bytes::Bytes;
use varve_block::Score;

/// Supplies the blocks that deltas need.
pub trait DeltaBases: Sync {
    /// Returns the bytes of a data leaf that is stored whole, not as a delta itself. So a block
    /// needs at most one other block, and blocks that were made to need each other end in an error.
    ///
    /// # Errors
    /// [`BaseError`].
    fn base(&self, score: &Score) -> Result<Bytes, BaseError>;
}

/// The reason why the base of a delta could not be supplied.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// It is damaged, or it is not in the store as a whole block.
    #[error("it is lost")]
    Lost(#[source] Box<dyn Error + Send + Sync>),
    /// It could not be read now. That proves nothing about it.
    #[error("it cannot be read")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// The caller reads blocks that need no others.
    #[error("no other block is read here")]
    NotSought,
}

/// Supplies nothing, for callers that read blocks which are never deltas.
pub(crate) struct NoBases;

impl DeltaBases for NoBases {
    fn base(&self, _: &Score) -> Result<Bytes, BaseError> {
        Err(BaseError::NotSought)
    }
}

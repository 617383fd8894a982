//! Checks of bytes against their names.

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, SHA1_BYTES, Score};

/// Reports whether a store names its blocks by SHA-1.
pub(crate) fn is_sha1(blocks: &dyn BlockStore) -> bool {
    blocks.score_bytes() == SHA1_BYTES && blocks.empty_score() == Score::sha1(&[])
}

/// Reports whether bytes match their name. Scores other than SHA-1 can only be checked by the store
/// that returned the block, and it has done so.
pub(crate) fn is_right(name: &BlockName, block: &Bytes) -> bool {
    name.score.as_bytes().len() != SHA1_BYTES || Score::sha1(block) == name.score
}

/// A store returned bytes that do not match the requested score.
#[derive(Debug, thiserror::Error)]
#[error("{store} returned bytes that do not have the requested score")]
pub(crate) struct WrongBytes {
    pub(crate) store: &'static str,
}

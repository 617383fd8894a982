//! Whether bytes are what their name says.

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, SHA1_BYTES, Score};

/// Whether a store names its blocks by SHA-1.
pub(crate) fn is_sha1(blocks: &dyn BlockStore) -> bool {
    blocks.score_bytes() == SHA1_BYTES && blocks.empty_score() == Score::sha1(&[])
}

/// Whether these are the bytes of a name. Where names are not SHA-1 only the store that gave them can tell, and has.
pub(crate) fn is_right(name: &BlockName, block: &Bytes) -> bool {
    name.score.as_bytes().len() != SHA1_BYTES || Score::sha1(block) == name.score
}

/// A store gave bytes that have another name.
#[derive(Debug, thiserror::Error)]
#[error("{store} gives other bytes than those that have the score")]
pub(crate) struct WrongBytes {
    pub(crate) store: &'static str,
}

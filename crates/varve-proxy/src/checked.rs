//! Whether bytes are what their name says.

use bytes::Bytes;
use sha1::{Digest as _, Sha1};
use varve_block::{BlockName, BlockStore, Score};

/// How wide the scores are that anybody can compute.
const SHA1_BYTES: usize = 20;

/// The score of a block in a store of SHA-1 scores.
pub(crate) fn sha1_score(bytes: &[u8]) -> Score {
    Score::try_from(Sha1::digest(bytes).as_slice()).expect("SHA-1 has 20 bytes")
}

/// Whether a store names its blocks by SHA-1.
pub(crate) fn is_sha1(blocks: &dyn BlockStore) -> bool {
    blocks.score_bytes() == SHA1_BYTES && blocks.empty_score() == sha1_score(&[])
}

/// Whether these are the bytes of a name. Where names are not SHA-1 only the store that gave them can tell, and has.
pub(crate) fn is_right(name: &BlockName, block: &Bytes) -> bool {
    name.score.as_bytes().len() != SHA1_BYTES || sha1_score(block) == name.score
}

/// A store gave bytes that have another name.
#[derive(Debug, thiserror::Error)]
#[error("{store} gives other bytes than those that have the score")]
pub(crate) struct WrongBytes {
    pub(crate) store: &'static str,
}

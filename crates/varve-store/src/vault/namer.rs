//! What a block is called: its score, its second digest, and the fingerprint that the index keys on.

use varve_block::{BlockName, Fingerprint, PLACED_SCORE_BYTES, PlacedName, Score};
use varve_log::{Digest, LogKeys};

use crate::config::{CompareMode, ScoreAlgorithm};

/// Names blocks as this store does. Pure: the costly part of every put and get, for as many threads as there are.
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

    /// The score of a block; `None` in a by-value store, where that does not follow from its bytes.
    #[must_use]
    pub fn score(&self, bytes: &[u8]) -> Option<Score> {
        (self.compare == CompareMode::Hash).then(|| self.hash(bytes))
    }

    /// The hash of a block.
    pub(crate) fn hash(&self, bytes: &[u8]) -> Score {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => self.keys.blake3_score(bytes),
            ScoreAlgorithm::Sha1 => Score::sha1(bytes),
        }
    }

    /// The hashes of several blocks, in their order.
    pub(crate) fn hash_each<'a>(&self, blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Score> {
        match self.algorithm {
            ScoreAlgorithm::Blake3 => blocks.into_iter().map(|bytes| self.hash(bytes)).collect(),
            ScoreAlgorithm::Sha1 => Score::sha1_of_each(blocks),
        }
    }

    /// What a block is called that is called `recorded` if nobody has changed it: the same, or something else if somebody has. Of a
    /// by-value store's name the fingerprint alone can tell.
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

    /// The score of the empty block.
    #[must_use]
    pub fn empty_score(&self) -> Score {
        self.empty
    }

    /// Whether the store is encrypted, so that nobody without its key can write what reads as its own.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.keys.is_encrypted()
    }

    /// Whether a score is that of the empty block in a by-value store: it lies nowhere, and is always there.
    pub(crate) fn is_everywhere(&self, score: &Score) -> bool {
        self.compare == CompareMode::Value && *score == self.empty
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

    /// What a by-value store's names begin with: where to look for blocks that may be equal to this one. Keyed, so that nobody can
    /// choose blocks with one fingerprint.
    pub(crate) fn value_fingerprint(&self, bytes: &[u8]) -> [u8; 8] {
        first_eight(blake3::keyed_hash(&self.fingerprint_key, bytes).as_bytes())
    }

    /// Whether a block of one name may be the one that is looked for: in a by-value store if their fingerprints are alike.
    pub(crate) fn may_be(&self, named: &BlockName, wanted: &BlockName) -> bool {
        match self.compare {
            CompareMode::Hash => named == wanted,
            CompareMode::Value => {
                named.block_type == wanted.block_type && self.fingerprint(named) == self.fingerprint(wanted)
            }
        }
    }

    /// The fingerprint of a name. Keyed, so that nobody can choose blocks that crowd one part of the index, and a
    /// checkpoint of it tells nothing about what is stored.
    pub(crate) fn fingerprint(&self, name: &BlockName) -> Fingerprint {
        let bytes = match (self.compare, self.algorithm, self.keys.is_encrypted()) {
            // So is what a by-value name begins with.
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

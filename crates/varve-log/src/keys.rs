//! The keys that a log works with. `docs/format.md`, section 1, has how each comes from the master key.

use varve_block::{Score, to_hex};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Length of a second digest in bytes.
pub const DIGEST_BYTES: usize = 16;

/// A second digest of a block, which tells a forged score from a duplicate without reading the stored block.
pub type Digest = [u8; DIGEST_BYTES];

/// What a process may do with a log: write to it (the names key), and read it (the read key as well).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct LogKeys {
    read: Option<[u8; 32]>,
    names: [u8; 32],
    score: [u8; 32],
    digest: [u8; 32],
    seal: [u8; 32],
    encrypted: bool,
}

impl std::fmt::Debug for LogKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogKeys").field("encrypted", &self.encrypted).finish_non_exhaustive()
    }
}

impl LogKeys {
    /// All keys of an encrypted store, from its master key.
    #[must_use]
    pub fn from_master(master: &[u8; 32]) -> Self {
        let read = blake3::derive_key("varve 1 read", master);
        Self::new(Some(read), blake3::derive_key("varve 1 names", master), true)
    }

    /// The keys of a store without encryption: they protect against accidents, and against nobody who can compute them.
    #[must_use]
    pub fn plain(binding: &[u8; 32]) -> Self {
        Self::new(None, blake3::derive_key("varve 1 plain", binding), false)
    }

    fn new(read: Option<[u8; 32]>, names: [u8; 32], encrypted: bool) -> Self {
        Self {
            read,
            score: blake3::derive_key("varve 1 score", &names),
            digest: blake3::derive_key("varve 1 digest", &names),
            seal: blake3::derive_key("varve 1 seal", &names),
            names,
            encrypted,
        }
    }

    /// Whether clumps and pages are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// The BLAKE3 score of a block: keyed in an encrypted store, so that scores tell nothing to whoever lacks the key.
    #[must_use]
    pub fn blake3_score(&self, bytes: &[u8]) -> Score {
        let hash = if self.encrypted { blake3::keyed_hash(&self.score, bytes) } else { blake3::hash(bytes) };
        Score::from(*hash.as_bytes())
    }

    /// The second digest of a block.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        first_bytes(blake3::keyed_hash(&self.digest, bytes).as_bytes())
    }

    /// A key for something beside the log (an index, a checkpoint) that only this store's writers can compute.
    #[must_use]
    pub fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.names)
    }

    pub(crate) fn seal_code(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.seal);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// The code of a parity file's header.
    pub(crate) fn parity_code(&self, header: &[u8]) -> [u8; 32] {
        let key = blake3::derive_key("varve 1 parity", &self.seal);
        *blake3::keyed_hash(&key, header).as_bytes()
    }

    /// The key of the codes in the parity file whose header has this code.
    pub(crate) fn parity_file_key(&self, parity_code: &[u8; 32]) -> [u8; 32] {
        blake3::derive_key("varve 1 parity file", &[&self.seal[..], parity_code].concat())
    }

    pub(crate) fn directory_key(&self, uid: &[u8; 16]) -> [u8; 32] {
        blake3::derive_key("varve 1 directory", &[&self.names[..], uid].concat())
    }

    /// `None` for whoever may write and not read.
    pub(crate) fn wrap_key(&self, uid: &[u8; 16]) -> Option<[u8; 32]> {
        let read = self.read.as_ref()?;
        Some(blake3::derive_key("varve 1 wrap", &[&read[..], uid].concat()))
    }
}

pub(crate) fn first_bytes(hash: &[u8; 32]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hash[..16]);
    first
}

/// An identity as people see it.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(self.0))
    }
}

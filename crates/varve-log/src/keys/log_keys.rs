//! The keys that a log works with. `docs/internals/format.md`, section 1, has how each comes from the master key.

use std::sync::Arc;

use varve_block::{Score, to_hex};
use zeroize::{Zeroize, Zeroizing};

use crate::keys::arena_keys::{KeptKey, KeyShelf};
use crate::keys::cipher::first_bytes;
use crate::keys::hpke;
use crate::keys::locked_memory::LockedMemory;

/// Length of a second digest in bytes.
pub const DIGEST_BYTES: usize = 16;

/// Length of two keys, one after the other, in bytes.
pub const KEY_PAIR_BYTES: usize = 64;

/// A second digest of a block, which tells a forged score from a duplicate without reading the stored block.
pub type Digest = [u8; DIGEST_BYTES];

/// What a process may do with a log: tell duplicates and check codes (the names key); and read it (the read key as well), or
/// write to it without reading (the write key, which only seals).
#[derive(Clone)]
pub struct LogKeys {
    bytes: Arc<LockedMemory<KeyBytes>>,
    shelf: Arc<KeyShelf>,
    encrypted: bool,
}

#[derive(Default, Zeroize)]
struct KeyBytes {
    read: Option<[u8; 32]>,
    /// Opens what the write key has sealed; comes from the read key.
    open: Option<[u8; 32]>,
    /// The public half of `open`, for whoever has nothing but that.
    write: Option<[u8; 32]>,
    names: [u8; 32],
    score: [u8; 32],
    digest: [u8; 32],
    seal: [u8; 32],
}

/// How the data key of a new arena is wrapped.
pub(crate) enum Wrapping<'a> {
    /// Without encryption there is none.
    None,
    /// Under a key that whoever may read has.
    ReadKey(Zeroizing<[u8; 32]>),
    /// To the store's write key.
    WriteKey(&'a [u8; 32]),
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
        Self::new(true, |bytes| {
            bytes.read = Some(blake3::derive_key("varve 1 read", master));
            bytes.names = blake3::derive_key("varve 1 names", master);
        })
    }

    /// All keys of an encrypted store, from its read key and its names key.
    #[must_use]
    pub fn from_read_and_names(keys: &[u8; KEY_PAIR_BYTES]) -> Self {
        Self::new(true, |bytes| {
            let (read, names) = keys.split_at(32);
            bytes.read.insert([0; 32]).copy_from_slice(read);
            bytes.names.copy_from_slice(names);
        })
    }

    /// The keys of somebody who may write and not read, from the names key and the write key.
    #[must_use]
    pub fn from_names_and_write(keys: &[u8; KEY_PAIR_BYTES]) -> Self {
        Self::new(true, |bytes| {
            let (names, write) = keys.split_at(32);
            bytes.names.copy_from_slice(names);
            bytes.write.insert([0; 32]).copy_from_slice(write);
        })
    }

    /// The keys of a store without encryption: they protect against accidents, and against nobody who can compute them.
    #[must_use]
    pub fn plain(binding: &[u8; 32]) -> Self {
        Self::new(false, |bytes| bytes.names = blake3::derive_key("varve 1 plain", binding))
    }

    fn new(encrypted: bool, fill: impl FnOnce(&mut KeyBytes)) -> Self {
        let bytes = LockedMemory::filled(|bytes: &mut KeyBytes| {
            fill(bytes);
            bytes.open = bytes.read.as_ref().map(|read| blake3::derive_key("varve 1 open", read));
            bytes.score = blake3::derive_key("varve 1 score", &bytes.names);
            bytes.digest = blake3::derive_key("varve 1 digest", &bytes.names);
            bytes.seal = blake3::derive_key("varve 1 seal", &bytes.names);
        });
        Self { bytes: Arc::new(bytes), shelf: Arc::default(), encrypted }
    }

    /// Whether clumps and pages are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Whether clumps can be read with them.
    #[must_use]
    pub fn can_read(&self) -> bool {
        !self.encrypted || self.bytes.read.is_some()
    }

    /// The read key and the names key, for somebody who is to read and to write; `None` unless these keys can.
    #[must_use]
    pub fn read_and_names(&self) -> Option<Zeroizing<[u8; KEY_PAIR_BYTES]>> {
        Some(pair(self.bytes.read.as_ref()?, &self.bytes.names))
    }

    /// The names key and the write key, for somebody who is to write and not to read; `None` unless these keys can read.
    #[must_use]
    pub fn names_and_write(&self) -> Option<Zeroizing<[u8; KEY_PAIR_BYTES]>> {
        Some(pair(&self.bytes.names, &hpke::public_key(self.bytes.open.as_ref()?)))
    }

    /// The BLAKE3 score of a block: keyed in an encrypted store, so that scores tell nothing to whoever lacks the key.
    #[must_use]
    pub fn blake3_score(&self, bytes: &[u8]) -> Score {
        let hash =
            if self.encrypted { blake3::keyed_hash(&self.bytes.score, bytes) } else { blake3::hash(bytes) };
        Score::from(*hash.as_bytes())
    }

    /// The second digest of a block.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        first_bytes(blake3::keyed_hash(&self.bytes.digest, bytes).as_bytes())
    }

    /// A key for something beside the log (an index, a checkpoint) that only this store's writers can compute.
    #[must_use]
    pub fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.bytes.names)
    }

    pub(crate) fn seal_code(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.bytes.seal);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// The code of a parity file's header.
    pub(crate) fn parity_code(&self, header: &[u8]) -> [u8; 32] {
        let key = blake3::derive_key("varve 1 parity", &self.bytes.seal);
        *blake3::keyed_hash(&key, header).as_bytes()
    }

    /// The key of the codes in the parity file whose header has this code.
    pub(crate) fn parity_file_key(&self, parity_code: &[u8; 32]) -> [u8; 32] {
        blake3::derive_key("varve 1 parity file", &[&self.bytes.seal[..], parity_code].concat())
    }

    pub(crate) fn directory_key(&self, uid: &[u8; 16]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(derive_with("varve 1 directory", &self.bytes.names, uid))
    }

    /// Keeps the key of a single arena in locked memory, beside those of others.
    pub(crate) fn keep(&self, key: &[u8; 32]) -> KeptKey {
        self.shelf.keep(key)
    }

    pub(crate) fn wrapping(&self, uid: &[u8; 16]) -> Wrapping<'_> {
        match (self.wrap_key(uid), &self.bytes.write) {
            (Some(key), _) => Wrapping::ReadKey(key),
            (None, Some(write)) => Wrapping::WriteKey(write),
            (None, None) => Wrapping::None,
        }
    }

    /// `None` for whoever may write and not read.
    pub(crate) fn wrap_key(&self, uid: &[u8; 16]) -> Option<Zeroizing<[u8; 32]>> {
        let read = self.bytes.read.as_ref()?;
        Some(Zeroizing::new(derive_with("varve 1 wrap", read, uid)))
    }

    /// Opens data keys that are sealed to the write key; `None` for whoever may not read.
    pub(crate) fn open_key(&self) -> Option<&[u8; 32]> {
        self.bytes.open.as_ref()
    }
}

fn pair(one: &[u8; 32], other: &[u8; 32]) -> Zeroizing<[u8; KEY_PAIR_BYTES]> {
    let mut pair = Zeroizing::new([0; KEY_PAIR_BYTES]);
    pair[..32].copy_from_slice(one);
    pair[32..].copy_from_slice(other);
    pair
}

fn derive_with(context: &str, key: &[u8; 32], uid: &[u8; 16]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(key).update(uid);
    *hasher.finalize().as_bytes()
}

/// An identity as people see it.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_allows_no_more_than_it_should() {
        let full = LogKeys::from_master(&[9; 32]);
        let reader = LogKeys::from_read_and_names(&full.read_and_names().unwrap());
        let writer = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
        for keys in [&reader, &writer] {
            assert_eq!(keys.blake3_score(b"a block"), full.blake3_score(b"a block"));
            assert_eq!(keys.directory_key(&[1; 16]), full.directory_key(&[1; 16]));
            assert_eq!(keys.seal_code(&[b"seal"]), full.seal_code(&[b"seal"]));
        }
        assert!(full.can_read() && reader.can_read() && !writer.can_read());
        assert_eq!(reader.wrap_key(&[1; 16]), full.wrap_key(&[1; 16]));
        assert_eq!(reader.open_key(), full.open_key());
        assert_eq!((writer.wrap_key(&[1; 16]), writer.open_key()), (None, None));
        assert!(writer.read_and_names().is_none() && writer.names_and_write().is_none());
        assert!(LogKeys::plain(&[1; 32]).can_read());
        assert!(matches!(writer.wrapping(&[1; 16]), Wrapping::WriteKey(_)));
    }
}

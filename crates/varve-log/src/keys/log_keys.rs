//! The keys of a log. `docs/internals/format.md`, section 1, describes how each is derived from the
//! master key.

use std::sync::Arc;

use varve_block::{Score, to_hex};
use zeroize::{Zeroize, Zeroizing};

use crate::keys::arena_keys::{KeyShelf, LockedKey};
use crate::keys::cipher::first_bytes;
use crate::keys::hpke;
use crate::keys::locked_memory::LockedMemory;

/// The length of a second digest in bytes.
pub const DIGEST_BYTES: usize = 16;

/// The length of two concatenated keys in bytes.
pub const KEY_PAIR_BYTES: usize = 64;

/// The length of the keys of a write-only process that can prove what it has added, in bytes.
pub const WRITER_KEYS_BYTES: usize = 96;

/// A second digest of a block. It distinguishes a forged score from a duplicate without a read of
/// the stored block.
pub type Digest = [u8; DIGEST_BYTES];

/// The keys that a process has for a log. With the names key it recognises duplicates and checks
/// codes. With the read key as well it reads the log. With the write key, which only seals, it
/// writes without reading.
#[derive(Clone)]
pub struct LogKeys {
    bytes: Arc<LockedMemory<KeyBytes>>,
    shelf: Arc<KeyShelf>,
    encrypted: bool,
}

#[derive(Default, Zeroize)]
struct KeyBytes {
    read: Option<[u8; 32]>,
    /// Opens data keys that were sealed to the write key. Derived from the read key.
    open: Option<[u8; 32]>,
    /// The public half of `open`, for a write-only key.
    write: Option<[u8; 32]>,
    /// Proves what the holder of a write-only key has added.
    origin: Option<[u8; 32]>,
    names: [u8; 32],
    score: [u8; 32],
    digest: [u8; 32],
    seal: [u8; 32],
}

/// The way in which the data key of a new arena is wrapped.
pub(crate) enum Wrapping<'a> {
    /// The store is not encrypted, so there is no data key.
    None,
    /// Wrapped with a key that is derived from the read key.
    ReadKey(Zeroizing<[u8; 32]>),
    /// Sealed to the store's write key.
    WriteKey(&'a [u8; 32]),
}

impl std::fmt::Debug for LogKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogKeys").field("encrypted", &self.encrypted).finish_non_exhaustive()
    }
}

impl LogKeys {
    /// Derives all keys of an encrypted store from its master key.
    #[must_use]
    pub fn from_master(master: &[u8; 32]) -> Self {
        Self::new(true, |bytes| {
            bytes.read = Some(blake3::derive_key("varve 1 read", master));
            bytes.names = blake3::derive_key("varve 1 names", master);
        })
    }

    /// Derives all keys of an encrypted store from its read key and its names key.
    #[must_use]
    pub fn from_read_and_names(keys: &[u8; KEY_PAIR_BYTES]) -> Self {
        Self::new(true, |bytes| {
            let (read, names) = keys.split_at(32);
            bytes.read.insert([0; 32]).copy_from_slice(read);
            bytes.names.copy_from_slice(names);
        })
    }

    /// Derives the keys of a write-only process from the names key and the write key.
    #[must_use]
    pub fn from_names_and_write(keys: &[u8; KEY_PAIR_BYTES]) -> Self {
        Self::new(true, |bytes| {
            let (names, write) = keys.split_at(32);
            bytes.names.copy_from_slice(names);
            bytes.write.insert([0; 32]).copy_from_slice(write);
        })
    }

    /// Derives the keys of a write-only process from the names key, the write key and the origin
    /// key of its holder.
    #[must_use]
    pub fn from_writer_keys(keys: &[u8; WRITER_KEYS_BYTES]) -> Self {
        Self::new(true, |bytes| {
            let (names, rest) = keys.split_at(32);
            let (write, origin) = rest.split_at(32);
            bytes.names.copy_from_slice(names);
            bytes.write.insert([0; 32]).copy_from_slice(write);
            bytes.origin.insert([0; 32]).copy_from_slice(origin);
        })
    }

    /// Derives the keys of a store without encryption. They detect accidents only: anybody can
    /// compute them.
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

    /// Returns true if clumps and pages are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Returns true if these keys can read clumps.
    #[must_use]
    pub fn can_read(&self) -> bool {
        !self.encrypted || self.bytes.read.is_some()
    }

    /// Returns the read key and the names key, for a key that can read and write; `None` unless
    /// these keys can read an encrypted store.
    #[must_use]
    pub fn read_and_names(&self) -> Option<Zeroizing<[u8; KEY_PAIR_BYTES]>> {
        Some(pair(self.bytes.read.as_ref()?, &self.bytes.names))
    }

    /// Returns the names key and the write key, as early write-only keys have them; `None` unless
    /// these keys can read an encrypted store.
    #[must_use]
    pub fn names_and_write(&self) -> Option<Zeroizing<[u8; KEY_PAIR_BYTES]>> {
        Some(pair(&self.bytes.names, &hpke::public_key(self.bytes.open.as_ref()?)))
    }

    /// Returns the names key, the write key and the origin key of `holder`, for a write-only key;
    /// `None` unless these keys can read an encrypted store.
    #[must_use]
    pub fn writer_keys(&self, holder: &str) -> Option<Zeroizing<[u8; WRITER_KEYS_BYTES]>> {
        let (shared, origin) = (self.names_and_write()?, self.reader_origin_key(holder)?);
        let mut keys = Zeroizing::new([0; WRITER_KEYS_BYTES]);
        keys[..KEY_PAIR_BYTES].copy_from_slice(&*shared);
        keys[KEY_PAIR_BYTES..].copy_from_slice(&*origin);
        Some(keys)
    }

    /// Computes the code that proves that `holder`, a key of the store, has added something. Keys
    /// that can read compute it for every holder. A write-only key has one origin key, which makes
    /// codes of its own holder only. `None` for an early write-only key, which has none, and for a
    /// store without encryption.
    #[must_use]
    pub fn origin_code(&self, holder: &str, message: &[&[u8]]) -> Option<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_keyed(&*self.origin_key(holder)?);
        for part in message {
            hasher.update(part);
        }
        Some(*hasher.finalize().as_bytes())
    }

    /// Computes the code of a message from readers of the store to `holder`. No other write-only
    /// key can forge it: only readers and that holder have its origin key. A write-only key
    /// computes its own code, whatever holder is given. `None` as for
    /// [`origin_code`](Self::origin_code).
    #[must_use]
    pub fn holder_code(&self, holder: &str, message: &[u8]) -> Option<[u8; 32]> {
        let key = Zeroizing::new(blake3::derive_key("varve 1 holder", &*self.origin_key(holder)?));
        Some(*blake3::keyed_hash(&key, message).as_bytes())
    }

    fn origin_key(&self, holder: &str) -> Option<Zeroizing<[u8; 32]>> {
        match &self.bytes.origin {
            Some(own) => Some(Zeroizing::new(*own)),
            None => self.reader_origin_key(holder),
        }
    }

    fn reader_origin_key(&self, holder: &str) -> Option<Zeroizing<[u8; 32]>> {
        let read = self.bytes.read.as_ref()?;
        Some(Zeroizing::new(derive_with("varve 1 origin", read, holder.as_bytes())))
    }

    /// Computes the BLAKE3 score of a block. It is keyed in an encrypted store, so that scores
    /// reveal nothing without the key.
    #[must_use]
    pub fn blake3_score(&self, bytes: &[u8]) -> Score {
        let hash =
            if self.encrypted { blake3::keyed_hash(&self.bytes.score, bytes) } else { blake3::hash(bytes) };
        Score::from(*hash.as_bytes())
    }

    /// Computes the second digest of a block.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        first_bytes(blake3::keyed_hash(&self.bytes.digest, bytes).as_bytes())
    }

    /// Derives a key for a file outside the log, such as an index or a checkpoint. Only writers of
    /// this store can compute it.
    #[must_use]
    pub fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.bytes.names)
    }

    /// Derives a key for a file outside the log that only readers of this store may read; `None`
    /// for keys that cannot read it.
    #[must_use]
    pub fn derive_for_readers(&self, context: &str) -> Option<Zeroizing<[u8; 32]>> {
        match self.encrypted {
            false => Some(Zeroizing::new(self.derive(context))),
            true => Some(Zeroizing::new(blake3::derive_key(context, self.bytes.read.as_ref()?))),
        }
    }

    pub(crate) fn seal_code(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.bytes.seal);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Computes the code of a parity file's header.
    pub(crate) fn parity_code(&self, header: &[u8]) -> [u8; 32] {
        let key = blake3::derive_key("varve 1 parity", &self.bytes.seal);
        *blake3::keyed_hash(&key, header).as_bytes()
    }

    /// Derives the key of the codes in a parity file from the code of its header.
    pub(crate) fn parity_file_key(&self, parity_code: &[u8; 32]) -> [u8; 32] {
        blake3::derive_key("varve 1 parity file", &[&self.bytes.seal[..], parity_code].concat())
    }

    pub(crate) fn directory_key(&self, uid: &[u8; 16]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(derive_with("varve 1 directory", &self.bytes.names, uid))
    }

    /// Stores the key of an arena in locked memory, beside those of other arenas.
    pub(crate) fn keep(&self, key: &[u8; 32]) -> LockedKey {
        self.shelf.keep(key)
    }

    pub(crate) fn wrapping(&self, uid: &[u8; 16]) -> Wrapping<'_> {
        match (self.wrap_key(uid), &self.bytes.write) {
            (Some(key), _) => Wrapping::ReadKey(key),
            (None, Some(write)) => Wrapping::WriteKey(write),
            (None, None) => Wrapping::None,
        }
    }

    /// Derives the key that wraps an arena's data key; `None` without the read key.
    pub(crate) fn wrap_key(&self, uid: &[u8; 16]) -> Option<Zeroizing<[u8; 32]>> {
        let read = self.bytes.read.as_ref()?;
        Some(Zeroizing::new(derive_with("varve 1 wrap", read, uid)))
    }

    /// Returns the key that opens data keys sealed to the write key; `None` without the read key.
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

fn derive_with(context: &str, key: &[u8; 32], of: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(key).update(of);
    *hasher.finalize().as_bytes()
}

/// Displays an identity in hexadecimal digits.
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

    #[test]
    fn a_write_only_key_proves_only_what_it_has_added_itself() {
        let full = LogKeys::from_master(&[9; 32]);
        let reader = LogKeys::from_read_and_names(&full.read_and_names().unwrap());
        let web = LogKeys::from_writer_keys(&full.writer_keys("web").unwrap());
        let early = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
        let code = |keys: &LogKeys, holder| keys.origin_code(holder, &[b"a snap", b"shot"]);
        assert_eq!(code(&web, "web"), code(&full, "web"));
        assert_eq!(code(&reader, "web"), code(&full, "web"));
        assert_ne!(code(&web, "db"), code(&full, "db"));
        assert_ne!(full.origin_code("web", &[b"another"]), code(&full, "web"));
        assert_eq!((code(&early, "web"), code(&LogKeys::plain(&[9; 32]), "web")), (None, None));
        assert_eq!(web.blake3_score(b"a block"), full.blake3_score(b"a block"));
        assert!(matches!(web.wrapping(&[1; 16]), Wrapping::WriteKey(_)));
        assert!(!web.can_read() && web.writer_keys("db").is_none());
    }
}

//! Hints of a store in `index/`: small files with a code of the store's own. A hint that is
//! missing, or whose code does not match, is ignored. If a hint cannot be written, only the hint is
//! lost.
//!
//! A hint that holds names of files or of snapshots is secret: only keys that may read the store
//! can read it. Its contents are:
//!
//! | offset | bytes | field | meaning                                                              |
//! |-------:|------:|-------|----------------------------------------------------------------------|
//! |      0 |     8 | magic | `varveSH1`                                                           |
//! |      8 |    32 | salt  | random                                                               |
//! |     40 |       | body  | AES-256-GCM, nonce 0, under `BLAKE3(a key of readers, salt)`, and its tag |

use std::io;

use varve_log::{LockedMemory, unwrap_secret, wrap_secret};
use varve_world::{FileName, Storage};
use zeroize::Zeroizing;

use super::Vault;

/// The length of a hint's code in bytes: `BLAKE3(a key of the store's own, all before)`, at the end
/// of the file.
pub const HINT_MAC_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"varveSH1";
pub(super) const SALT_BYTES: usize = 32;
/// The most bytes that encryption adds.
const ADDED_BYTES: usize = 128;

/// One kind of hint.
pub struct Hint {
    pub file: &'static str,
    /// The purpose that the key of the code is derived for.
    pub context: &'static str,
}

impl Hint {
    pub(super) fn file(&self) -> FileName {
        FileName::new(self.file).expect("a plain name")
    }
}

impl Vault {
    /// Returns the contents of a hint, of at most `body_bytes_max`; `None` if there is none, or its
    /// code does not match.
    #[must_use]
    pub fn read_hint(&self, hint: &Hint, body_bytes_max: usize) -> Option<Vec<u8>> {
        self.read_hint_in(self.storage(), hint, body_bytes_max)
    }

    /// Returns the contents of a hint in another folder than the store's.
    pub(crate) fn read_hint_in(
        &self,
        storage: &dyn Storage,
        hint: &Hint,
        body_bytes_max: usize,
    ) -> Option<Vec<u8>> {
        let bytes_max = body_bytes_max.saturating_add(HINT_MAC_BYTES) as u64;
        let mut contents = storage.read_whole(&hint.file(), bytes_max).ok()?;
        let (body, mac) = contents.split_last_chunk::<HINT_MAC_BYTES>()?;
        if self.hint_mac(hint, body) != *mac {
            return None;
        }
        contents.truncate(body.len());
        Some(contents)
    }

    /// Replaces a hint.
    ///
    /// # Errors
    /// When it cannot be written; the previous hint then remains.
    pub fn write_hint(&self, hint: &Hint, body: Vec<u8>) -> io::Result<()> {
        self.write_hint_in(self.storage(), hint, body)
    }

    /// Replaces a hint in another folder than the store's.
    pub(crate) fn write_hint_in(
        &self,
        storage: &dyn Storage,
        hint: &Hint,
        mut body: Vec<u8>,
    ) -> io::Result<()> {
        let mac = self.hint_mac(hint, &body);
        body.extend_from_slice(mac.as_bytes());
        storage.replace(&hint.file(), &body)
    }

    /// Returns the contents of a secret hint, of at most `bytes_max`; `None` if there is none, its
    /// code does not match, or this key cannot read the store.
    #[must_use]
    pub fn read_secret_hint(&self, hint: &Hint, bytes_max: usize) -> Option<Zeroizing<Vec<u8>>> {
        let contents = self.read_hint(hint, bytes_max.saturating_add(ADDED_BYTES))?;
        let (salt, body) = contents.strip_prefix(&MAGIC)?.split_first_chunk::<SALT_BYTES>()?;
        let key = self.hint_key(hint, salt)?;
        unwrap_secret(&key, &MAGIC, body).ok()
    }

    /// Replaces a secret hint.
    ///
    /// # Errors
    /// When it cannot be written, or this key cannot read the store; the previous hint then
    /// remains.
    pub fn write_secret_hint(&self, hint: &Hint, contents: &[u8]) -> io::Result<()> {
        let (salt, key) = self.new_hint_key(hint)?;
        let body = wrap_secret(&key, &MAGIC, contents);
        self.write_hint(hint, [&MAGIC[..], &salt, &body].concat())
    }

    /// Draws a salt, and derives the key of a secret hint from it.
    pub(super) fn new_hint_key(&self, hint: &Hint) -> io::Result<([u8; SALT_BYTES], LockedMemory<[u8; 32]>)> {
        let mut salt = [0; SALT_BYTES];
        self.world.random.fill(&mut salt)?;
        let key = self.hint_key(hint, &salt);
        Ok((salt, key.ok_or_else(|| io::Error::other("the key of this store is write-only"))?))
    }

    pub(super) fn hint_key(&self, hint: &Hint, salt: &[u8; SALT_BYTES]) -> Option<LockedMemory<[u8; 32]>> {
        let key = self.log.keys().derive_for_readers(hint.context)?;
        Some(LockedMemory::filled(|into: &mut [u8; 32]| {
            into.copy_from_slice(blake3::keyed_hash(&key, salt).as_bytes());
        }))
    }

    fn hint_mac(&self, hint: &Hint, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.log.keys().derive(hint.context), body)
    }
}

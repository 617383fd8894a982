//! Files in `index/` for the holder of one key. Nobody else can read them, not even a holder of all
//! other keys of the store: reading them takes the secret of this key. They are hints, like all of
//! `index/`: the program works without them.
//!
//! | offset | bytes | field | meaning                                                                             |
//! |-------:|------:|-------|-------------------------------------------------------------------------------------|
//! |      0 |     8 | magic | `varveOW1`                                                                          |
//! |      8 |    32 | salt  | random                                                                              |
//! |     40 |       | body  | AES-256-GCM, nonce 0, under `derive("varve 1 own file", own key ‖ salt)`, and its tag |
//!
//! The associated data are the magic and `about`, the subject of the file. The file's name reveals
//! neither.

use std::io;

use varve_block::to_hex;
use varve_log::{LockedMemory, unwrap_secret, wrap_secret};
use varve_world::FileName;
use zeroize::Zeroizing;

use super::Vault;

const MAGIC: [u8; 8] = *b"varveOW1";
const SALT_BYTES: usize = 32;
/// Larger files are neither written nor read.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// The file was not written. Only a hint is lost.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {file}")]
pub struct PrivateFileError {
    file: FileName,
    source: io::Error,
}

impl Vault {
    /// Writes a file that only the holder of this key can read. `about` identifies the file.
    ///
    /// # Errors
    /// [`PrivateFileError`]; the previous contents then remain.
    pub fn write_own(&self, about: &[u8], contents: &[u8]) -> Result<(), PrivateFileError> {
        let file = self.own_file(about);
        let failed = |source| PrivateFileError { file: file.clone(), source };
        let mut salt = [0; SALT_BYTES];
        self.world.random.fill(&mut salt).map_err(failed)?;
        let body = wrap_secret(&self.own_file_key(&salt), &associated(about), contents);
        let write = |append: &mut dyn FnMut(&[u8]) -> io::Result<()>| {
            append(&MAGIC)?;
            append(&salt)?;
            append(&body)
        };
        self.world.storage.replace_with(&file, write).map_err(failed)
    }

    /// Reads a file of [`write_own`](Self::write_own); `None` if it is missing, damaged, or another
    /// key's.
    #[must_use]
    pub fn read_own(&self, about: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let contents = self.world.storage.read_whole(&self.own_file(about), FILE_BYTES_MAX).ok()?;
        let body = contents.strip_prefix(&MAGIC)?;
        let (salt, body) = body.split_first_chunk::<SALT_BYTES>()?;
        unwrap_secret(&self.own_file_key(salt), &associated(about), body).ok()
    }

    fn own_file(&self, about: &[u8]) -> FileName {
        let name = blake3::keyed_hash(&self.own, about);
        FileName::new(&format!("index/own-{}", to_hex(&name.as_bytes()[..16]))).expect("a plain name")
    }

    fn own_file_key(&self, salt: &[u8; SALT_BYTES]) -> LockedMemory<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key("varve 1 own file");
        hasher.update(&**self.own).update(salt);
        LockedMemory::filled(|key: &mut [u8; 32]| hasher.finalize_xof().fill(key))
    }
}

fn associated(about: &[u8]) -> Vec<u8> {
    [&MAGIC[..], about].concat()
}

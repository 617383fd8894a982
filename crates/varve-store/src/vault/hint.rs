//! Hints of a store in `index/`: small files with a code of the store's own. A hint that is
//! missing, or whose code does not match, is ignored. If a hint cannot be written, only the hint is
//! lost.

use std::io;

use varve_world::{FileName, Storage};

use super::Vault;

/// The length of a hint's code in bytes: `BLAKE3(a key of the store's own, all before)`, at the end
/// of the file.
pub const HINT_MAC_BYTES: usize = 32;

/// One kind of hint.
pub struct Hint {
    pub file: &'static str,
    /// The purpose that the key of the code is derived for.
    pub context: &'static str,
}

impl Hint {
    fn file(&self) -> FileName {
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
    pub fn write_hint(&self, hint: &Hint, mut body: Vec<u8>) -> io::Result<()> {
        let mac = self.hint_mac(hint, &body);
        body.extend_from_slice(mac.as_bytes());
        self.world.storage.replace(&hint.file(), &body)
    }

    fn hint_mac(&self, hint: &Hint, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.log.keys().derive(hint.context), body)
    }
}

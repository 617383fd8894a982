//! Hints of a store in `index/`: small files with a code of the store's own. One that is not there, or whose code does not match,
//! says nothing; one that cannot be written costs nothing but itself.

use std::io;

use varve_world::{FileName, Storage};

use crate::store::Store;

/// Length of a hint's code in bytes: `BLAKE3(a key of the store's own, all before)`, at the end of the file.
pub(crate) const MAC_BYTES: usize = 32;

/// One kind of hint.
pub(crate) struct Hint {
    /// Its file.
    pub(crate) file: &'static str,
    /// What its key is derived for.
    pub(crate) context: &'static str,
}

impl Hint {
    fn file(&self) -> FileName {
        FileName::new(self.file).expect("a plain name")
    }
}

impl Store {
    /// What a hint of at most `body_bytes_max` says.
    pub(crate) fn read_hint(&self, hint: &Hint, body_bytes_max: usize) -> Option<Vec<u8>> {
        self.read_hint_in(self.world.storage.as_ref(), hint, body_bytes_max)
    }

    /// What a hint says that lies somewhere else.
    pub(crate) fn read_hint_in(
        &self,
        storage: &dyn Storage,
        hint: &Hint,
        body_bytes_max: usize,
    ) -> Option<Vec<u8>> {
        let bytes_max = body_bytes_max.saturating_add(MAC_BYTES) as u64;
        let mut contents = storage.read_whole(&hint.file(), bytes_max).ok()?;
        let (body, mac) = contents.split_last_chunk::<MAC_BYTES>()?;
        if self.hint_mac(hint, body) != *mac {
            return None;
        }
        contents.truncate(body.len());
        Some(contents)
    }

    /// Puts a hint in the place of the one that is there.
    ///
    /// # Errors
    /// Whatever met the writing; what was there before is there still.
    pub(crate) fn write_hint(&self, hint: &Hint, mut body: Vec<u8>) -> io::Result<()> {
        let mac = self.hint_mac(hint, &body);
        body.extend_from_slice(mac.as_bytes());
        self.world.storage.replace(&hint.file(), &body)
    }

    fn hint_mac(&self, hint: &Hint, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.log.keys().derive(hint.context), body)
    }
}

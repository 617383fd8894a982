//! The content key: 32 random bytes that open the stored blocks of an encrypted image.
//!
//! ```text
//!   content key ─▶ HKDF-SHA-256 ─┬▶ block key   encrypts stored blocks
//!                                ├▶ nonce key   makes the nonce of a stored block from its content
//!                                ├▶ tree key    hides the hints of the head about the archive
//!                                └▶ key name    tells keys apart, and finds a damaged key file
//! ```

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use varve_block::to_hex;
use zeroize::Zeroizing;

use crate::block_form::{BlockCipher, BlockForm};

/// The first line of a key file.
const KEY_FILE_HEAD: &str = "varve content key 1";
/// The salt of all derived keys.
const SALT: &[u8] = b"varve publication 1";
const KEY_BYTES: usize = 32;
const NAME_BYTES: usize = 8;

/// A secret that opens encrypted images.
pub struct EditionContentKey(Zeroizing<[u8; KEY_BYTES]>);

/// The reason why a text is not the file of a content key. It never shows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditionContentKeyError {
    #[error("it does not begin with {KEY_FILE_HEAD:?}: it is no content key")]
    Head,
    #[error("it has no line that begins with \"secret = \", with 44 letters of base64")]
    Secret,
    #[error("its name does not belong to its secret: the file is damaged")]
    Name,
}

impl EditionContentKey {
    /// Makes the key of 32 random bytes.
    #[must_use]
    pub fn from_bytes(secret: [u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(secret))
    }

    /// Returns the name of the key: 16 digits that say nothing about its secret.
    #[must_use]
    pub fn name(&self) -> String {
        let name = derive(&self.extracted(), b"key name");
        to_hex(name.get(..NAME_BYTES).unwrap_or_default())
    }

    /// Returns the form of the stored blocks that this key encrypts and opens.
    #[must_use]
    pub fn form(&self) -> BlockForm {
        let extracted = self.extracted();
        let [block, nonce, tree] =
            [&b"block key"[..], b"nonce key", b"tree key"].map(|label| derive(&extracted, label));
        BlockForm::Encrypted(BlockCipher::new(&block, &nonce, &tree).into())
    }

    fn extracted(&self) -> Prk {
        Salt::new(HKDF_SHA256, SALT).extract(self.0.as_ref())
    }

    /// Writes the contents of a key file.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(STANDARD.encode(self.0.as_ref()));
        Zeroizing::new(format!("{KEY_FILE_HEAD}\nsecret = {}\nname = {}\n", *secret, self.name()))
    }

    /// Reads the contents of a key file. Lines with unknown keys are skipped.
    ///
    /// # Errors
    /// [`EditionContentKeyError`].
    pub fn from_text(text: &str) -> Result<Self, EditionContentKeyError> {
        let mut lines = text.lines();
        if lines.next() != Some(KEY_FILE_HEAD) {
            return Err(EditionContentKeyError::Head);
        }
        let value = |key: &str| lines.clone().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        let secret = value("secret").and_then(|secret| STANDARD.decode(secret).ok()).map(Zeroizing::new);
        let secret = secret.and_then(|bytes| bytes.as_slice().try_into().ok());
        let key = Self::from_bytes(secret.ok_or(EditionContentKeyError::Secret)?);
        match value("name") {
            Some(name) if name != key.name() => Err(EditionContentKeyError::Name),
            _ => Ok(key),
        }
    }
}

/// Derives the key of one purpose.
fn derive(extracted: &Prk, label: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    extracted
        .expand(&[label], HKDF_SHA256)
        .and_then(|expanded| expanded.fill(key.as_mut()))
        .expect("HKDF gives 32 bytes");
    key
}

impl std::fmt::Debug for EditionContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the content key {}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EditionSigner, KeyTextError};

    #[test]
    fn a_key_file_is_read_as_it_was_written() {
        let key = EditionContentKey::from_bytes([7; 32]);
        let text = key.to_text();
        assert_eq!(*EditionContentKey::from_text(&text).unwrap().0, [7; 32]);
        // Computed from the page of the format, with Python's hmac.
        assert_eq!(key.name(), NAME_OF_SEVENS);
        let other = EditionContentKey::from_bytes([8; 32]).name();
        let (short, long) = (STANDARD.encode([7; 31]), STANDARD.encode([7; 33]));
        for (text, error) in [
            ("", EditionContentKeyError::Head),
            ("varve content key 2\n", EditionContentKeyError::Head),
            ("varve content key 1\n", EditionContentKeyError::Secret),
            ("varve content key 1\nsecret = AAAA\n", EditionContentKeyError::Secret),
            (&format!("varve content key 1\nsecret = {short}\n"), EditionContentKeyError::Secret),
            (&format!("varve content key 1\nsecret = {long}\n"), EditionContentKeyError::Secret),
            (&text.replace(&key.name(), &other), EditionContentKeyError::Name),
            (&EditionSigner::from_seed([7; 32]).to_text(), EditionContentKeyError::Head),
        ] {
            assert_eq!(EditionContentKey::from_text(text).unwrap_err(), error, "{text}");
        }
        assert_eq!(EditionSigner::from_text(&text).unwrap_err(), KeyTextError::Head);
        let shown = format!("{key:?} {:?}", key.form());
        assert!(!shown.contains(&STANDARD.encode([7; 32])) && shown.contains(&key.name()), "{shown}");
    }

    const NAME_OF_SEVENS: &str = "c234440e30e283ef";
}

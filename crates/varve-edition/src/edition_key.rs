//! The keys of a publisher: Ed25519 (RFC 8032).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// The first line of a key file.
const KEY_FILE_HEAD: &str = "varve publication key 1";
/// The beginning of a key in an address.
pub(crate) const ADDRESS_KEY_HEAD: &str = "varve1-";

/// The public key of a publisher. A reader that has it needs to trust no server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EditionKey([u8; 32]);

/// A text that is not a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the key of a publication: it has the form varve1- and 43 letters and digits")]
pub struct EditionKeyError {
    pub text: String,
}

impl EditionKey {
    /// Returns true if the holder of the key has signed exactly these bytes.
    #[must_use]
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(bytes, signature).is_ok()
    }

    pub(crate) fn to_base64(self) -> String {
        STANDARD.encode(self.0)
    }

    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for EditionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ADDRESS_KEY_HEAD}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for EditionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for EditionKey {
    type Err = EditionKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(ADDRESS_KEY_HEAD);
        let bytes = digits.and_then(|digits| URL_SAFE_NO_PAD.decode(digits).ok()?.try_into().ok());
        bytes.map(Self).ok_or_else(|| EditionKeyError { text: text.chars().take(80).collect() })
    }
}

/// The secret key of a publisher.
pub struct EditionSigner {
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
}

/// The reason why a text is not a key file. It never shows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    #[error("it does not begin with {KEY_FILE_HEAD:?}: it is no key of a publication")]
    Head,
    #[error("it has no line that begins with \"secret = \", with 44 letters of base64")]
    Secret,
    #[error("its public key does not belong to its secret key: the file is damaged")]
    Public,
}

impl EditionSigner {
    /// Makes the key of a seed of 32 random bytes.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed");
        Self { seed: Zeroizing::new(seed), pair }
    }

    /// Returns the public key.
    #[must_use]
    pub fn key(&self) -> EditionKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        EditionKey(key)
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }

    /// Writes the contents of a key file. Their holder can publish.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(STANDARD.encode(self.seed.as_ref()));
        Zeroizing::new(format!("{KEY_FILE_HEAD}\nsecret = {}\npublic = {}\n", *secret, self.key()))
    }

    /// Reads the contents of a key file. Lines with unknown keys are skipped.
    ///
    /// # Errors
    /// [`KeyTextError`].
    pub fn from_text(text: &str) -> Result<Self, KeyTextError> {
        let mut lines = text.lines();
        if lines.next() != Some(KEY_FILE_HEAD) {
            return Err(KeyTextError::Head);
        }
        let value = |key: &str| lines.clone().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        let secret = value("secret").and_then(|secret| STANDARD.decode(secret).ok()).map(Zeroizing::new);
        let seed = secret.and_then(|bytes| bytes.as_slice().try_into().ok()).ok_or(KeyTextError::Secret)?;
        let signer = Self::from_seed(seed);
        match value("public") {
            Some(public) if public != signer.key().to_string() => Err(KeyTextError::Public),
            _ => Ok(signer),
        }
    }
}

impl fmt::Debug for EditionSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the secret key of {}", self.key())
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{from_hex, to_hex};

    use super::*;

    #[test]
    fn keys_and_signatures_are_those_of_the_standard() {
        // RFC 8032, section 7.1, test 2.
        let seed = from_hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb").unwrap();
        let signer = EditionSigner::from_seed(seed.try_into().unwrap());
        let public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        assert_eq!(to_hex(&signer.key().0), public);
        let signature = signer.sign(&[0x72]);
        assert!(
            to_hex(&signature)
                .starts_with("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da")
        );
        assert!(signer.key().has_signed(&[0x72], &signature));
        assert!(!signer.key().has_signed(&[0x73], &signature));
        assert!(!signer.key().has_signed(&[0x72], &signature[1..]));
    }

    #[test]
    fn a_key_file_is_read_as_it_was_written() {
        let signer = EditionSigner::from_seed([7; 32]);
        let text = signer.to_text();
        assert_eq!(EditionSigner::from_text(&text).unwrap().key(), signer.key());
        let other = EditionSigner::from_seed([8; 32]).key().to_string();
        let mixed = text.replace(&signer.key().to_string(), &other);
        for (text, error) in [
            ("", KeyTextError::Head),
            ("varve publication key 2\n", KeyTextError::Head),
            ("varve publication key 1\nsecret = AAAA\n", KeyTextError::Secret),
            (&mixed, KeyTextError::Public),
        ] {
            assert_eq!(EditionSigner::from_text(text).unwrap_err(), error);
        }
        let shown = format!("{signer:?}");
        assert!(!shown.contains(&STANDARD.encode([7; 32])), "{shown}");
    }

    #[test]
    fn a_key_in_an_address_has_one_spelling() {
        let key = EditionSigner::from_seed([7; 32]).key();
        let text = key.to_string();
        assert_eq!(text.len(), "varve1-".len() + 43);
        assert_eq!(text.parse(), Ok(key));
        for wrong in ["", "varve1-", &text[7..], &text[..text.len() - 1], &format!("{text}=")] {
            assert!(wrong.parse::<EditionKey>().is_err(), "{wrong}");
        }
        assert_eq!(EditionKey::from_base64(&key.to_base64()), Some(key));
    }
}

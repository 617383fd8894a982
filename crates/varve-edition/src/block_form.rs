//! The form of the stored blocks of an image: as they are, or encrypted with the image's content
//! key. An encrypted stored block:
//!
//! | offset | bytes | field      | meaning                                                           |
//! |-------:|------:|------------|-------------------------------------------------------------------|
//! |      0 |    12 | nonce      | the first bytes of HMAC-SHA-256(nonce key, plain stored block)    |
//! |     12 |       | ciphertext | AES-256-GCM of the plain stored block                             |
//! |        |    16 | tag        | of GCM, at the end                                                |
//!
//! The additional data is `varve publication 1`. The nonce depends on the key and the content
//! alone, so an unchanged block keeps its name, and two blocks have one nonce with a probability
//! of about 2^-33 after 2^32 blocks of one key.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;

use crate::object_name::ObjectName;
use crate::stored_block::{CODEC_BYTES, StoredCompression, UnpackError, store_block};

const ADDITIONAL_DATA: &[u8] = b"varve publication 1";
/// The nonce and the tag.
const CIPHER_OVERHEAD_BYTES: usize = 12 + 16;
/// A stored block has at most this number of bytes more than its content.
pub(crate) const STORED_OVERHEAD_BYTES: usize = CODEC_BYTES + CIPHER_OVERHEAD_BYTES;

/// The word of an image in the head that names its cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageCipher {
    #[default]
    None,
    /// AES-256-GCM, with keys that are derived from a content key.
    Aes256Gcm,
}

impl fmt::Display for ImageCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Aes256Gcm => "aes-256-gcm",
        })
    }
}

impl FromStr for ImageCipher {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let all = [Self::None, Self::Aes256Gcm];
        let found = all.into_iter().find(|cipher| cipher.to_string() == word);
        found.ok_or("the cipher of an image is unknown to this program: use a newer one")
    }
}

/// The keys of encrypted stored blocks.
pub struct BlockCipher {
    block_key: LessSafeKey,
    nonce_key: hmac::Key,
    tree_key: hmac::Key,
}

impl BlockCipher {
    pub(crate) fn new(block_key: &[u8; 32], nonce_key: &[u8; 32], tree_key: &[u8; 32]) -> Self {
        let block_key = UnboundKey::new(&AES_256_GCM, block_key).expect("an AES-256 key has 32 bytes");
        Self {
            block_key: LessSafeKey::new(block_key),
            nonce_key: hmac::Key::new(hmac::HMAC_SHA256, nonce_key),
            tree_key: hmac::Key::new(hmac::HMAC_SHA256, tree_key),
        }
    }

    fn encrypt(&self, mut plain: Vec<u8>) -> Vec<u8> {
        let code = hmac::sign(&self.nonce_key, &plain);
        let (nonce, _) = code.as_ref().split_at(NONCE_LEN);
        let sealing = Nonce::try_assume_unique_for_key(nonce).expect("a nonce has 12 bytes");
        self.block_key
            .seal_in_place_append_tag(sealing, Aad::from(ADDITIONAL_DATA), &mut plain)
            .expect("a stored block is far below the limit of GCM");
        [nonce, &plain].concat()
    }

    fn decrypt(&self, stored: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let (nonce, sealed) = stored.split_at_checked(NONCE_LEN).ok_or(UnpackError::Decrypt)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| UnpackError::Decrypt)?;
        let mut plain = sealed.to_vec();
        let opened = self.block_key.open_in_place(nonce, Aad::from(ADDITIONAL_DATA), &mut plain);
        let length = opened.map_err(|_| UnpackError::Decrypt)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

/// The form of the stored blocks of an image. It also makes them, so that a block is never stored
/// in another form than its image has.
#[derive(Clone)]
pub enum BlockForm {
    Plain,
    Encrypted(Arc<BlockCipher>),
}

impl BlockForm {
    /// Returns the word for this form in the head.
    #[must_use]
    pub fn cipher(&self) -> ImageCipher {
        match self {
            Self::Plain => ImageCipher::None,
            Self::Encrypted(_) => ImageCipher::Aes256Gcm,
        }
    }

    /// Returns true if this form has the cipher of an image. An encrypted image may still have
    /// another key.
    #[must_use]
    pub fn fits(&self, cipher: ImageCipher) -> bool {
        self.cipher() == cipher
    }

    /// Makes the stored form of a content. It is not compressed if that would not make it smaller.
    #[must_use]
    pub fn store(&self, content: &[u8], compression: StoredCompression) -> Vec<u8> {
        let plain = store_block(content, compression);
        match self {
            Self::Plain => plain,
            Self::Encrypted(cipher) => cipher.encrypt(plain),
        }
    }

    /// Returns the hint of the head for a tree of the archive: its SHA-256, or with a content key
    /// its HMAC-SHA-256, which confirms no guess about the disk.
    #[must_use]
    pub fn tree_hint(&self, tree: &[u8]) -> ObjectName {
        match self {
            Self::Plain => ObjectName::of(tree),
            Self::Encrypted(cipher) => {
                let mut hint = [0; ObjectName::BYTES];
                hint.copy_from_slice(hmac::sign(&cipher.tree_key, tree).as_ref());
                ObjectName::from_bytes(hint)
            }
        }
    }

    /// Returns the codec and the payload of stored bytes that have their name. `None`: they are the
    /// bytes themselves.
    pub(crate) fn decrypt(&self, stored: &[u8]) -> Result<Option<Vec<u8>>, UnpackError> {
        match self {
            Self::Plain => Ok(None),
            Self::Encrypted(cipher) => cipher.decrypt(stored).map(Some),
        }
    }
}

impl fmt::Debug for BlockForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stored blocks with the cipher {}", self.cipher())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;
    use varve_block::to_hex;

    use super::*;
    use crate::{CheckedBlock, EditionContentKey};

    fn form(seed: u8) -> BlockForm {
        EditionContentKey::from_bytes([seed; 32]).form()
    }

    fn unpack(stored: &[u8], form: &BlockForm, bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
        CheckedBlock::check(stored, &ObjectName::of(stored)).unwrap().unpack(form, bytes_max)
    }

    const PAGE: &str = include_str!("../../../docs/internals/publication-format.md");

    /// The values were computed from the page of the format, with Python's hmac and cryptography.
    #[test]
    fn the_bytes_are_those_of_the_page() {
        let stored = form(7).store(b"a block", StoredCompression::None);
        let (_, after) = PAGE.split_once("the content `a block` without compression is stored as\n").unwrap();
        assert_eq!(after.lines().nth(1).unwrap().trim(), to_hex(&stored));
        assert!(PAGE.contains(&format!("whose name is `{}`", EditionContentKey::from_bytes([7; 32]).name())));
        assert_eq!(
            form(7).tree_hint(b"a tree").to_string(),
            "001897999765a92ecd03b3b941008f335757989b26d6bc5e83459aff72d941d4"
        );
        assert_eq!(BlockForm::Plain.tree_hint(b"a tree"), ObjectName::of(b"a tree"));
    }

    #[test]
    fn ciphers_are_read_as_they_are_written() {
        for cipher in [ImageCipher::None, ImageCipher::Aes256Gcm] {
            assert_eq!(cipher.to_string().parse(), Ok(cipher));
        }
        assert!("AES-256-GCM".parse::<ImageCipher>().is_err() && "".parse::<ImageCipher>().is_err());
    }

    #[test]
    fn a_bomb_stops_at_the_expected_length() {
        let stored = form(1).store(&vec![0; 8 << 20], StoredCompression::Zstd(3));
        assert!(unpack(&stored, &form(1), 8 << 20).is_ok());
        assert!(unpack(&stored, &form(1), (8 << 20) - 1).is_err());
    }

    proptest! {
        #[test]
        fn what_is_encrypted_comes_back_and_hides_its_content(
            content in proptest::collection::vec(any::<u8>(), 0..400), is_packed: bool,
        ) {
            let compression = if is_packed { StoredCompression::Zlib(6) } else { StoredCompression::None };
            let stored = form(1).store(&content, compression);
            prop_assert!(stored.len() <= content.len() + 1 + CIPHER_OVERHEAD_BYTES);
            prop_assert_eq!(&stored, &form(1).store(&content, compression), "the same block, the same name");
            prop_assert_ne!(&stored, &form(2).store(&content, compression));
            prop_assert!(content.len() < 8 || !stored.windows(content.len()).any(|part| part == content));
            prop_assert_eq!(unpack(&stored, &form(1), content.len()), Ok(content));
            prop_assert_eq!(unpack(&stored, &form(2), 1000), Err(UnpackError::Decrypt));
        }

        /// A publisher's mistake, or bytes that another key or another program has made: the name
        /// was checked before.
        #[test]
        fn changed_shortened_and_mixed_bytes_are_no_content(
            content in proptest::collection::vec(any::<u8>(), 1..200), at: usize, flip in 1_u8..,
        ) {
            let stored = form(1).store(&content, StoredCompression::None);
            let at = at % stored.len();
            let mut changed = stored.clone();
            changed[at] ^= flip;
            prop_assert_eq!(unpack(&changed, &form(1), 1000), Err(UnpackError::Decrypt));
            prop_assert_eq!(unpack(&stored[..at], &form(1), 1000), Err(UnpackError::Decrypt));
            let mut other_content = content;
            other_content[0] ^= flip;
            let other = form(1).store(&other_content, StoredCompression::None);
            let mixed = [&stored[..NONCE_LEN], &other[NONCE_LEN..]].concat();
            prop_assert_eq!(unpack(&mixed, &form(1), 1000), Err(UnpackError::Decrypt));
            let plain = BlockForm::Plain.store(&other_content, StoredCompression::None);
            prop_assert_eq!(unpack(&plain, &form(1), 1000), Err(UnpackError::Decrypt));
        }

        #[test]
        fn no_bytes_panic(stored in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(unpack(&stored, &form(1), 1000).is_err());
        }
    }
}

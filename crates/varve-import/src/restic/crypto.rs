//! Authenticated encryption as restic does it: AES-256 in counter mode, and Poly1305-AES.
//!
//! | offset | bytes | contents                                     |
//! |-------:|------:|----------------------------------------------|
//! |      0 |    16 | the initial counter, which is also the nonce |
//! |     16 |       | the ciphertext                               |
//! |   end  |    16 | Poly1305-AES of the ciphertext               |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::iv::FixedLength;
use poly1305::Poly1305;
use poly1305::universal_hash::{KeyInit, UniversalHash};
use zeroize::Zeroizing;

pub(super) const NONCE_BYTES: usize = 16;
pub(super) const MAC_BYTES: usize = 16;

/// The bytes that encryption adds.
pub(super) const OVERHEAD_BYTES: usize = NONCE_BYTES + MAC_BYTES;

/// A key: 32 bytes for the encryption, and 16 and 16 for the code.
pub(super) struct SealKey {
    encrypt: DecryptingKey,
    code_key: EncryptingKey,
    code_r: Zeroizing<[u8; 16]>,
}

/// Bytes that were not sealed with this key, or were changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its code is wrong: it is damaged, or encrypted with another key")]
pub(super) struct NotAuthentic;

impl SealKey {
    pub(super) fn new(encrypt: &[u8; 32], code_k: &[u8; 16], code_r: &[u8; 16]) -> Option<Self> {
        Some(Self {
            encrypt: DecryptingKey::ctr(UnboundCipherKey::new(&AES_256, encrypt).ok()?).ok()?,
            code_key: EncryptingKey::ctr(UnboundCipherKey::new(&AES_128, code_k).ok()?).ok()?,
            code_r: Zeroizing::new(*code_r),
        })
    }

    /// Checks the code, and decrypts in place. The plain bytes are a part of `sealed`.
    pub(super) fn open<'s>(&self, sealed: &'s mut [u8]) -> Result<&'s mut [u8], NotAuthentic> {
        let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE_BYTES>().ok_or(NotAuthentic)?;
        let (text, code) = rest.split_last_chunk_mut::<MAC_BYTES>().ok_or(NotAuthentic)?;
        verify_slices_are_equal(&self.code(nonce, text)?, code).map_err(|_| NotAuthentic)?;
        let counter = DecryptionContext::Iv128(FixedLength::from(*nonce));
        self.encrypt.decrypt(text, counter).map_err(|_| NotAuthentic)
    }

    fn code(&self, nonce: &[u8; NONCE_BYTES], text: &[u8]) -> Result<[u8; MAC_BYTES], NotAuthentic> {
        // AES of the nonce: the key stream of counter mode at this counter.
        let mut encrypted = [0; 16];
        let counter = EncryptionContext::Iv128(FixedLength::from(*nonce));
        self.code_key.less_safe_encrypt(&mut encrypted, counter).map_err(|_| NotAuthentic)?;
        let mut key = Zeroizing::new([0; 32]);
        let halves = self.code_r.iter().chain(&encrypted);
        key.iter_mut().zip(halves).for_each(|(to, from)| *to = *from);
        let mut code = Poly1305::new(&(*key).into());
        let (blocks, rest) = poly1305::Block::slice_as_chunks(text);
        code.update(blocks);
        Ok(code.compute_unpadded(rest).into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    /// Test vectors of Poly1305-AES, from Bernstein's paper: an empty text, and one of 2 bytes.
    #[test]
    fn the_code_is_that_of_the_paper() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
        };
        let cases = [
            (
                "851fc40c3467ac0be05cc20404f3f700",
                "ec074c835580741701425b623235add6",
                "fb447350c4e868c52ac3275cf9d4327e",
                "f3f6",
                "f4c633c3044fc145f84f335cb81953de",
            ),
            (
                "a0f3080000f46400d0c7e9076c834403",
                "75deaa25c09f208e1dc4ce6b5cad3fbf",
                "61ee09218d29b0aaed7e154a2c5509cc",
                "",
                "dd3fab2251f11ac759f0887129cc2ee7",
            ),
        ];
        for (r, k, nonce, text, code) in cases {
            let (r, k) = (hex(r).try_into().unwrap(), hex(k).try_into().unwrap());
            let key = SealKey::new(&[0; 32], &k, &r).unwrap();
            let nonce: [u8; 16] = hex(nonce).try_into().unwrap();
            assert_eq!(key.code(&nonce, &hex(text)).unwrap().to_vec(), hex(code));
        }
    }

    #[test]
    fn a_changed_byte_is_noticed_everywhere() {
        let key = SealKey::new(&[1; 32], &[2; 16], &[3; 16]).unwrap();
        let mut sealed = vec![7; 16 + 33];
        let nonce: [u8; 16] = sealed[..16].try_into().unwrap();
        let code = key.code(&nonce, &sealed[16..]).unwrap();
        sealed.extend_from_slice(&code);
        assert!(key.open(&mut sealed.clone()).is_ok());
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(key.open(&mut changed).map(|_| ()), Err(NotAuthentic), "{place}");
        }
        for length in 0..sealed.len() {
            assert!(key.open(&mut sealed[..length].to_vec()).is_err());
        }
    }
}

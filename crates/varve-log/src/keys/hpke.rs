//! Seals a data key to a public key: RFC 9180 (HPKE), base mode, one message.
//!
//! The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. All derived values have at
//! most 32 bytes, so one round of HKDF's expansion is enough. The primitives come from aws-lc-rs.
//! This module combines them as in the RFC, and is tested with the RFC's own vectors.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use zeroize::Zeroizing;

use crate::keys::cipher::{CODE_BYTES, WrapError, open_with_nonce, seal_with_nonce};

/// An ephemeral public key, a data key, and its tag.
pub(crate) const SEALED_BYTES: usize = 32 + 32 + CODE_BYTES;

const KEM: [u8; 2] = 0x0020_u16.to_be_bytes();
const KDF: [u8; 2] = 0x0001_u16.to_be_bytes();
const AES_256_GCM: [u8; 2] = 0x0002_u16.to_be_bytes();

type SecretBytes = Zeroizing<[u8; 32]>;

/// Returns the public key of a secret key.
pub(crate) fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    let public = private(secret).compute_public_key().expect("every 32 bytes are a key of X25519");
    public.as_ref().try_into().expect("a public key of X25519 has 32 bytes")
}

/// Seals `data_key` to `public`. `ephemeral` must be random, and never be used again.
///
/// # Errors
/// [`WrapError`] when `public` is a point of small order, which gives no secret.
pub(crate) fn seal(
    public: &[u8; 32],
    ephemeral: &[u8; 32],
    info: &[u8],
    data_key: &[u8; 32],
) -> Result<[u8; SEALED_BYTES], WrapError> {
    let sent = public_key(ephemeral);
    let shared = shared_secret(ephemeral, public, &sent, public)?;
    let (key, nonce) = key_schedule(&shared, info, AES_256_GCM);
    let mut sealed = [0; SEALED_BYTES];
    let (head, body) = sealed.split_at_mut(32);
    head.copy_from_slice(&sent);
    body.copy_from_slice(&seal_with_nonce(&key, nonce, &[], data_key));
    Ok(sealed)
}

/// Opens a result of [`seal`].
///
/// # Errors
/// [`WrapError`] when it was not sealed to the owner of `secret`, or not for this use.
pub(crate) fn open(
    secret: &[u8; 32],
    info: &[u8],
    sealed: &[u8; SEALED_BYTES],
) -> Result<Zeroizing<Vec<u8>>, WrapError> {
    let (sent, body) = sealed.split_first_chunk::<32>().ok_or(WrapError)?;
    let shared = shared_secret(secret, sent, sent, &public_key(secret))?;
    let (key, nonce) = key_schedule(&shared, info, AES_256_GCM);
    open_with_nonce(&key, nonce, &[], body)
}

fn private(secret: &[u8; 32]) -> PrivateKey {
    PrivateKey::from_private_key(&X25519, secret).expect("every 32 bytes are a key of X25519")
}

/// DHKEM's `ExtractAndExpand` of the agreed secret of `secret` and `peer`. A point of small order
/// is refused.
fn shared_secret(
    secret: &[u8; 32],
    peer: &[u8; 32],
    sent: &[u8; 32],
    receiver: &[u8; 32],
) -> Result<SecretBytes, WrapError> {
    let suite = [&b"KEM"[..], &KEM].concat();
    let prk = agree(&private(secret), UnparsedPublicKey::new(&X25519, peer), WrapError, |agreed| {
        Ok(extract(&suite, &[], b"eae_prk", agreed))
    })?;
    Ok(expand(&suite, &prk, b"shared_secret", &[&sent[..], receiver].concat(), 32))
}

/// Derives the key and the nonce of the first message. A shorter key is the first bytes of the
/// returned one.
fn key_schedule(shared: &[u8; 32], info: &[u8], aead: [u8; 2]) -> (SecretBytes, [u8; 12]) {
    let suite = [&b"HPKE"[..], &KEM, &KDF, &aead].concat();
    let mut context = vec![0];
    context.extend_from_slice(&*extract(&suite, &[], b"psk_id_hash", &[]));
    context.extend_from_slice(&*extract(&suite, &[], b"info_hash", info));
    let secret = extract(&suite, shared, b"secret", &[]);
    let key_bytes = if aead == AES_256_GCM { 32 } else { 16 };
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&expand(&suite, &secret, b"base_nonce", &context, 12)[..12]);
    (expand(&suite, &secret, b"key", &context, key_bytes), nonce)
}

/// `LabeledExtract`.
fn extract(suite: &[u8], salt: &[u8], label: &[u8], key_material: &[u8]) -> SecretBytes {
    let labeled = Zeroizing::new([b"HPKE-v1", suite, label, key_material].concat());
    hmac(salt, &labeled)
}

/// `LabeledExpand` to at most 32 bytes. The bytes beyond `length` are unused.
fn expand(suite: &[u8], prk: &[u8; 32], label: &[u8], info: &[u8], length: u16) -> SecretBytes {
    hmac(prk, &[&length.to_be_bytes(), &b"HPKE-v1"[..], suite, label, info, &[1]].concat())
}

fn hmac(key: &[u8], message: &[u8]) -> SecretBytes {
    let mut code = Zeroizing::new([0; 32]);
    code.copy_from_slice(sign(&Key::new(HMAC_SHA256, key), message).as_ref());
    code
}

#[cfg(test)]
mod tests {
    use varve_block::{from_hex, to_hex};

    use super::*;

    fn bytes(hex: &str) -> [u8; 32] {
        from_hex(hex).unwrap().try_into().unwrap()
    }

    /// RFC 9180, appendix A.1.1: the same suite, except for the shorter key of AES-128-GCM.
    #[test]
    fn the_vectors_of_the_rfc_come_out() {
        let ephemeral = bytes("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736");
        let receiver = bytes("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8");
        let (sent, public) = (public_key(&ephemeral), public_key(&receiver));
        assert_eq!(to_hex(&sent), "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431");
        assert_eq!(to_hex(&public), "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d");
        for shared in [
            shared_secret(&ephemeral, &public, &sent, &public).unwrap(),
            shared_secret(&receiver, &sent, &sent, &public).unwrap(),
        ] {
            assert_eq!(to_hex(&*shared), "fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc");
            let info = from_hex("4f6465206f6e2061204772656369616e2055726e").unwrap();
            let (key, nonce) = key_schedule(&shared, &info, 1_u16.to_be_bytes());
            assert_eq!(to_hex(&key[..16]), "4531685d41d65f03dc48f6b8302c05b0");
            assert_eq!(to_hex(&nonce), "56d890e5accaaf011cff4b7d");
        }
    }

    #[test]
    fn only_the_receiver_opens_and_only_for_the_same_use() {
        let (secret, public) = ([5; 32], public_key(&[5; 32]));
        let sealed = seal(&public, &[6; 32], b"info", &[7; 32]).unwrap();
        assert_eq!(open(&secret, b"info", &sealed).unwrap().as_slice(), [7; 32]);
        assert_eq!(open(&[4; 32], b"info", &sealed), Err(WrapError));
        assert_eq!(open(&secret, b"other", &sealed), Err(WrapError));
        for bit in (0..SEALED_BYTES * 8).filter(|bit| *bit != 255) {
            let mut bad = sealed;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&secret, b"info", &bad), Err(WrapError), "bit {bit}");
        }
        assert_eq!(seal(&[0; 32], &[6; 32], b"info", &[7; 32]), Err(WrapError), "a point of small order");
    }
}

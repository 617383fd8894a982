//! Encryption and authentication of records: AES-256-GCM with a key of the session, or a plain
//! code.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use zeroize::Zeroizing;

/// The length of a record's tag or code in bytes.
pub(crate) const CODE_BYTES: usize = 16;

/// A body up to this length is copied behind the associated data before hashing. BLAKE3 hashes
/// eight chunks at a time only if the input begins at a chunk boundary; otherwise it hashes the
/// next chunks one by one. For 8 KiB, hashing without the copy takes 5.0 µs instead of 2.1.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// The code of a record does not match: the record was damaged, moved or forged, or the key is
/// another store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForgedRecord;

/// A unit of encryption: a record's body, or the table or a frame of a framed clump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CipherUnit {
    counter: u64,
    frame: u32,
}

impl CipherUnit {
    /// The body, or the table, of the record with this counter.
    pub(crate) fn body(counter: u64) -> Self {
        Self { counter, frame: 0 }
    }

    /// A frame of the record with this counter. Frames are counted from 0 here and from 1 in the
    /// nonce.
    pub(crate) fn frame(counter: u64, frame: usize) -> Self {
        let frame = u32::try_from(frame + 1).expect("a clump has at most 4096 frames");
        Self { counter, frame }
    }
}

/// Encrypts and authenticates the records of one kind, in one arena, of one session.
pub(crate) enum RecordCipher {
    Aes256Gcm(Box<LessSafeKey>),
    /// Keyed BLAKE3 over everything; the body is not encrypted.
    Plain([u8; 32]),
}

impl RecordCipher {
    /// Makes the cipher for the records that `session` has written with `key`, an arena's data key
    /// or directory key.
    pub(crate) fn aes_256_gcm(key: &[u8; 32], session: &[u8; 16]) -> Self {
        let material = Zeroizing::new([&key[..], session].concat());
        let session_key = Zeroizing::new(blake3::derive_key("varve 1 session", &material));
        Self::Aes256Gcm(Box::new(aes_key(&session_key)))
    }

    /// Encrypts `body` in place and returns its code. `at` must never have been used with this
    /// cipher before.
    pub(crate) fn seal(&self, at: CipherUnit, associated: &[u8], body: &mut [u8]) -> [u8; CODE_BYTES] {
        match self {
            Self::Aes256Gcm(key) => {
                let tag = key
                    .seal_in_place_separate_tag(at.nonce(), Aad::from(associated), body)
                    .expect("bodies are far below the cipher's limit of 64 GiB");
                let mut code = [0; CODE_BYTES];
                code.copy_from_slice(tag.as_ref());
                code
            }
            Self::Plain(key) => at.plain_code(key, associated, body),
        }
    }

    /// Checks `body` and decrypts it in place.
    pub(crate) fn open(
        &self,
        at: CipherUnit,
        associated: &[u8],
        code: &[u8; CODE_BYTES],
        body: &mut [u8],
    ) -> Result<(), ForgedRecord> {
        match self {
            Self::Aes256Gcm(key) => {
                key.open_in_place_separate_tag(at.nonce(), Aad::from(associated), code, body)
                    .map_err(|_| ForgedRecord)?;
                Ok(())
            }
            Self::Plain(key) => at.check_plain(key, associated, code, body),
        }
    }

    /// Checks `body` without changing it. Decrypts into `scratch`.
    pub(crate) fn check(
        &self,
        at: CipherUnit,
        associated: &[u8],
        code: &[u8; CODE_BYTES],
        body: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), ForgedRecord> {
        match self {
            Self::Aes256Gcm(key) => {
                if scratch.len() < body.len() {
                    scratch.resize(body.len(), 0);
                }
                let into = &mut scratch[..body.len()];
                key.open_separate_gather(at.nonce(), Aad::from(associated), body, code, into)
                    .map_err(|_| ForgedRecord)
            }
            Self::Plain(key) => at.check_plain(key, associated, code, body),
        }
    }
}

/// A wrapped key did not open: it was damaged, or the wrapping key is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the wrapped key does not open")]
pub struct WrapError;

/// Encrypts keys, bound to `associated`. The nonce is zero: `key` must wrap nothing else.
#[must_use]
pub fn wrap_secret(key: &[u8; 32], associated: &[u8], secret: &[u8]) -> Vec<u8> {
    seal_with_nonce(key, [0; 12], associated, secret)
}

/// Decrypts a result of [`wrap_secret`].
///
/// # Errors
/// [`WrapError`] when the key or the associated data differ.
pub fn unwrap_secret(
    key: &[u8; 32],
    associated: &[u8],
    wrapped: &[u8],
) -> Result<Zeroizing<Vec<u8>>, WrapError> {
    open_with_nonce(key, [0; 12], associated, wrapped)
}

pub(crate) fn seal_with_nonce(key: &[u8; 32], nonce: [u8; 12], associated: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(secret.len() + CODE_BYTES);
    sealed.extend_from_slice(secret);
    let tag = aes_key(key)
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(associated), &mut sealed)
        .expect("keys are far below the cipher's limit of 64 GiB");
    sealed.extend_from_slice(tag.as_ref());
    sealed
}

pub(crate) fn open_with_nonce(
    key: &[u8; 32],
    nonce: [u8; 12],
    associated: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, WrapError> {
    let mut opened = Zeroizing::new(sealed.to_vec());
    let length = aes_key(key)
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(associated), &mut opened)
        .map_err(|_| WrapError)?
        .len();
    opened.truncate(length);
    Ok(opened)
}

fn aes_key(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("an AES-256 key has 32 bytes"))
}

impl CipherUnit {
    fn nonce(self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.frame.to_le_bytes());
        nonce[4..].copy_from_slice(&self.counter.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn check_plain(
        self,
        key: &[u8; 32],
        associated: &[u8],
        code: &[u8; CODE_BYTES],
        body: &[u8],
    ) -> Result<(), ForgedRecord> {
        let is_right = constant_time_equal(&self.plain_code(key, associated, body), code);
        is_right.then_some(()).ok_or(ForgedRecord)
    }

    fn plain_code(self, key: &[u8; 32], associated: &[u8], body: &[u8]) -> [u8; CODE_BYTES] {
        let number = self.frame.to_le_bytes();
        let frame: &[u8] = if self.frame > 0 { &number } else { &[] };
        if body.len() <= JOINED_BYTES_MAX {
            return first_bytes(blake3::keyed_hash(key, &[associated, frame, body].concat()).as_bytes());
        }
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(associated).update(frame).update(body);
        first_bytes(hasher.finalize().as_bytes())
    }
}

pub(crate) fn constant_time_equal(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// Truncates a hash to a code.
pub(crate) fn first_bytes(hash: &[u8; 32]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&hash[..16]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_code_is_one_hash_of_all_parts_however_long_they_are() {
        for bytes in [0, 1, 1024, 8192, JOINED_BYTES_MAX, JOINED_BYTES_MAX + 1] {
            let body: Vec<u8> = (0..bytes).map(|place| place.to_le_bytes()[0]).collect();
            for (at, frame) in
                [(CipherUnit::body(9), &[][..]), (CipherUnit::frame(9, 6), &7_u32.to_le_bytes())]
            {
                let expected = blake3::keyed_hash(&[3; 32], &[b"header", frame, &body].concat());
                let code = at.plain_code(&[3; 32], b"header", &body);
                assert_eq!(code, expected.as_bytes()[..CODE_BYTES], "{bytes} bytes, {at:?}");
            }
        }
    }

    #[test]
    fn only_the_untouched_record_opens() {
        for cipher in [RecordCipher::aes_256_gcm(&[1; 32], &[2; 16]), RecordCipher::Plain([1; 32])] {
            let mut body = b"some bytes of a clump".to_vec();
            let at = CipherUnit::frame(5, 0);
            let code = cipher.seal(at, b"header", &mut body);
            let opens = |at, header: &[u8], body: &[u8]| {
                let (mut copy, mut scratch) = (body.to_vec(), Vec::new());
                let checked = cipher.check(at, header, &code, body, &mut scratch);
                let opened = cipher.open(at, header, &code, &mut copy).map(|()| copy);
                assert_eq!(checked.is_ok(), opened.is_ok());
                opened
            };
            assert_eq!(opens(at, b"header", &body), Ok(b"some bytes of a clump".to_vec()));
            assert_eq!(opens(at, b"header2", &body), Err(ForgedRecord));
            assert_eq!(opens(at, b"header", &body[1..]), Err(ForgedRecord));
            for other in [CipherUnit::body(5), CipherUnit::frame(5, 1)] {
                assert_eq!(opens(other, b"header", &body), Err(ForgedRecord));
            }
            if matches!(cipher, RecordCipher::Aes256Gcm(_)) {
                assert_eq!(opens(CipherUnit::frame(6, 0), b"header", &body), Err(ForgedRecord));
            }
        }
    }

    #[test]
    fn wrapping_is_bound_to_its_header() {
        let wrapped = wrap_secret(&[1; 32], b"header", &[7; 32]);
        assert_eq!(unwrap_secret(&[1; 32], b"header", &wrapped).unwrap().as_slice(), [7; 32]);
        assert_eq!(unwrap_secret(&[1; 32], b"another", &wrapped), Err(WrapError));
        assert_eq!(unwrap_secret(&[2; 32], b"header", &wrapped), Err(WrapError));
    }
}

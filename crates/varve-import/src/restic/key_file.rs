//! Key files: the master key, encrypted with a key that scrypt makes from the password.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::crypto::SealKey;

/// Upper bound on the memory of scrypt. restic uses 32 MiB.
const SCRYPT_BYTES_MAX: u64 = 1 << 30;
/// Upper bound on the work of scrypt: more than 100 times restic's.
const SCRYPT_WORK_MAX: u64 = 1 << 28;

/// The fields of a key file.
#[derive(Debug, Deserialize)]
pub struct KeyFile {
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    salt: String,
    data: String,
}

/// Why a key file does not give the master key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("it is not a key file")]
    Json(#[source] serde_json::Error),
    #[error("it uses {kdf:?}, and not scrypt")]
    Kdf { kdf: String },
    #[error("the parameters of scrypt (N {n}, r {r}, p {p}) are invalid, or need too much memory or time")]
    Cost { n: u64, r: u32, p: u32 },
    #[error("its salt or its data is not base64")]
    Base64,
    /// The password is wrong, or the key file is damaged.
    #[error("the password does not open it")]
    Password,
    #[error("its master key is malformed")]
    MasterKey,
}

#[derive(Deserialize)]
struct MasterKeyJson {
    mac: CodeKeyJson,
    encrypt: String,
}

#[derive(Deserialize)]
struct CodeKeyJson {
    k: String,
    r: String,
}

impl KeyFile {
    /// Parses a key file.
    ///
    /// # Errors
    /// [`KeyFileError::Json`], [`KeyFileError::Kdf`] and [`KeyFileError::Cost`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyFileError> {
        let key: Self = serde_json::from_slice(bytes).map_err(KeyFileError::Json)?;
        if key.kdf != "scrypt" {
            return Err(KeyFileError::Kdf { kdf: key.kdf });
        }
        key.cost()?;
        Ok(key)
    }

    fn cost(&self) -> Result<scrypt::Params, KeyFileError> {
        let Self { n, r, p, .. } = *self;
        let refused = KeyFileError::Cost { n, r, p };
        let product = |factors: [u64; 3]| factors.into_iter().try_fold(1_u64, u64::checked_mul);
        let bytes = product([128, n, r.into()]).filter(|bytes| *bytes <= SCRYPT_BYTES_MAX);
        let work = product([n, r.into(), p.into()]).filter(|work| *work <= SCRYPT_WORK_MAX);
        if bytes.is_none() || work.is_none() || !n.is_power_of_two() || n < 2 {
            return Err(refused);
        }
        let log_n = u8::try_from(n.trailing_zeros()).unwrap_or(u8::MAX);
        scrypt::Params::new(log_n, r, p).map_err(|_| refused)
    }

    /// Opens the master key with the password.
    pub(super) fn open(&self, password: &[u8]) -> Result<SealKey, KeyFileError> {
        let salt = STANDARD.decode(&self.salt).map_err(|_| KeyFileError::Base64)?;
        let mut data = Zeroizing::new(STANDARD.decode(&self.data).map_err(|_| KeyFileError::Base64)?);
        let mut made = Zeroizing::new([0; 64]);
        scrypt::scrypt(password, &salt, &self.cost()?, &mut *made).map_err(|_| KeyFileError::Password)?;
        let key = seal_key(&*made).ok_or(KeyFileError::MasterKey)?;
        let plain = key.open(&mut data).map_err(|_| KeyFileError::Password)?;
        let master: MasterKeyJson = serde_json::from_slice(plain).map_err(|_| KeyFileError::MasterKey)?;
        let mut bytes = Zeroizing::new(Vec::new());
        for part in [&master.encrypt, &master.mac.k, &master.mac.r] {
            bytes.extend(STANDARD.decode(part).map_err(|_| KeyFileError::MasterKey)?);
        }
        seal_key(&bytes).ok_or(KeyFileError::MasterKey)
    }
}

/// The key of 64 bytes: 32 for the encryption, and 16 and 16 for the code.
fn seal_key(bytes: &[u8]) -> Option<SealKey> {
    let (encrypt, rest) = bytes.split_first_chunk()?;
    let (code_k, rest) = rest.split_first_chunk()?;
    let (code_r, rest) = rest.split_first_chunk()?;
    if rest.is_empty() { SealKey::new(encrypt, code_k, code_r) } else { None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    /// A key file that restic 0.14 has written.
    const KEY: &[u8] = br#"{"created":"2026-11-28T10:09:51.574354548Z","username":"root","hostname":"vm","kdf":"scrypt","N":32768,"r":8,"p":6,"salt":"gkX3maVCESyJ3xOAaS233mm1zJNgcZ9bWNL+S7F8DuPteTxXRaoL4U8bNw45PN20coXPSz0C5Lpu8X1n6HIJ9Q==","data":"vV4q3DNIgdkDOkklOONLrcQ9tWXkugr1jZpMsI/a2/5TRA7avCbYKEUNx85uo/nDXQWBZ80wWb0ToM71rM5v/URuvdw0aKRC7RzR5xxyagO737b+xtv4/SgPjov4nR6cfMGlx6w9fFTFEt7Mympjr869UuSJG31Z0bmFQJFz+WG3lIEL1ZdSVEwKprpviiECkU/eWjrYF2naYKxDQ0mojw=="}"#;

    #[test]
    fn the_right_password_opens_it() {
        let key = KeyFile::parse(KEY).unwrap();
        assert!(key.open(b"p").is_ok());
        assert!(matches!(key.open(b"q").err(), Some(KeyFileError::Password)));
    }

    #[test]
    fn scrypt_has_limits() {
        for cost in [
            r#""N":1,"r":8,"p":6"#,
            r#""N":1073741824,"r":8,"p":6"#,
            r#""N":32768,"r":8,"p":4000000000"#,
            r#""N":32767,"r":8,"p":6"#,
            r#""N":32768,"r":0,"p":6"#,
        ] {
            let text = String::from_utf8(KEY.to_vec()).unwrap().replace(r#""N":32768,"r":8,"p":6"#, cost);
            assert!(matches!(KeyFile::parse(text.as_bytes()), Err(KeyFileError::Cost { .. })), "{cost}");
        }
    }
}

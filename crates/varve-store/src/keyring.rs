//! `keys/`: the master key, wrapped once for each way to open the store. `docs/format.md`, section 1.

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};
use varve_block::{from_hex, to_hex};
use varve_log::{unwrap_secret, wrap_secret};
use varve_world::{FileName, Random, Storage};
use zeroize::Zeroizing;

use crate::config::StoreConfig;

const FOLDER: &str = "keys";
const FILE_BYTES_MAX: u64 = 64 << 10;
/// What a hostile key file may make this program spend at most: 4 GiB, and some minutes.
const MEMORY_KIB_MAX: u32 = 4 << 20;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 64;

/// What opens a store.
#[derive(Clone)]
pub enum Secret {
    /// Something that a person remembers.
    Passphrase(Zeroizing<String>),
    /// The contents of a file: at least 32 bytes that nobody can guess.
    KeyFile(Zeroizing<Vec<u8>>),
}

/// What trying one passphrase costs: Argon2id's settings (RFC 9106).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassphraseCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for PassphraseCost {
    /// RFC 9106's second recommendation: 64 MiB, three passes, four lanes.
    fn default() -> Self {
        Self { memory_kib: 64 << 10, passes: 3, lanes: 4 }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum KeySlot {
    Passphrase {
        #[serde(flatten)]
        cost: PassphraseCost,
        salt: String,
        wrapped: String,
    },
    KeyFile {
        salt: String,
        wrapped: String,
    },
}

/// Why a store's keys did not open, or were not made.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The store is encrypted and nothing was given to open it with.
    #[error("the store is encrypted: a passphrase or a key file is needed")]
    Missing,
    /// None of the store's keys opens with what was given.
    #[error("the {what} does not open this store")]
    Wrong {
        /// "passphrase" or "key file".
        what: &'static str,
    },
    /// The store has no key of this kind.
    #[error("no {what} opens this store: it was made with another kind of key")]
    NoSuchKind {
        /// "passphrase" or "key file".
        what: &'static str,
    },
    /// The folder of keys is gone or empty.
    #[error("the store is encrypted, but its folder {FOLDER:?} has no key: without one nothing can be read")]
    NoKeys,
    /// A key's file makes no sense.
    #[error("{file}: not a key")]
    Malformed {
        /// Which file.
        file: FileName,
    },
    /// An empty passphrase or a short key file.
    #[error("the {what} is too short: {advice}")]
    TooShort {
        /// "passphrase" or "key file".
        what: &'static str,
        /// What would do.
        advice: &'static str,
    },
    /// A key's file could not be read or written.
    #[error("the keys cannot be read or written")]
    Storage(#[from] std::io::Error),
}

impl Secret {
    fn what(&self) -> &'static str {
        match self {
            Self::Passphrase(_) => "passphrase",
            Self::KeyFile(_) => "key file",
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        let (good, advice) = match self {
            Self::Passphrase(passphrase) => (!passphrase.is_empty(), "choose one with several words"),
            Self::KeyFile(contents) => (contents.len() >= 32, "it needs at least 32 random bytes"),
        };
        if good { Ok(()) } else { Err(KeyError::TooShort { what: self.what(), advice }) }
    }
}

impl KeySlot {
    /// The key that the master key is wrapped with; `None` if the secret is of the other kind or the settings are
    /// beyond all reason.
    fn wrapping_key(&self, secret: &Secret) -> Option<Zeroizing<[u8; 32]>> {
        match (self, secret) {
            (Self::Passphrase { cost, salt, .. }, Secret::Passphrase(passphrase)) => {
                passphrase_key(passphrase, &from_hex(salt).ok()?, *cost)
            }
            (Self::KeyFile { salt, .. }, Secret::KeyFile(contents)) => {
                Some(key_file_key(contents, &from_hex(salt).ok()?))
            }
            _ => None,
        }
    }

    fn wrapped(&self) -> Option<[u8; 48]> {
        let (Self::Passphrase { wrapped, .. } | Self::KeyFile { wrapped, .. }) = self;
        from_hex(wrapped).ok()?.try_into().ok()
    }

    fn is_for(&self, secret: &Secret) -> bool {
        matches!(
            (self, secret),
            (Self::Passphrase { .. }, Secret::Passphrase(_)) | (Self::KeyFile { .. }, Secret::KeyFile(_))
        )
    }
}

fn passphrase_key(passphrase: &str, salt: &[u8], cost: PassphraseCost) -> Option<Zeroizing<[u8; 32]>> {
    let PassphraseCost { memory_kib, passes, lanes } = cost;
    if memory_kib > MEMORY_KIB_MAX || passes > PASSES_MAX || lanes > LANES_MAX {
        return None;
    }
    let settings = Params::new(memory_kib, passes, lanes, Some(32)).ok()?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, settings)
        .hash_password_into(passphrase.as_bytes(), salt, &mut *key)
        .ok()?;
    Some(key)
}

fn key_file_key(contents: &[u8], salt: &[u8]) -> Zeroizing<[u8; 32]> {
    let material = Zeroizing::new([salt, contents].concat());
    Zeroizing::new(blake3::derive_key("varve 1 key file", &material))
}

/// Draws a master key and leaves it in `keys/`, wrapped by `secret`.
pub(crate) fn create(
    storage: &dyn Storage,
    random: &dyn Random,
    config: &StoreConfig,
    secret: &Secret,
    cost: PassphraseCost,
) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    secret.check()?;
    let mut master = Zeroizing::new([0; 32]);
    let mut salt = [0; 16];
    random.fill(&mut *master)?;
    random.fill(&mut salt)?;
    let (file, slot) = match secret {
        Secret::Passphrase(passphrase) => {
            let key =
                passphrase_key(passphrase, &salt, cost).ok_or(KeyError::Wrong { what: secret.what() })?;
            let wrapped = to_hex(&wrap_secret(&key, &config.binding(), &master));
            ("passphrase", KeySlot::Passphrase { cost, salt: to_hex(&salt), wrapped })
        }
        Secret::KeyFile(contents) => {
            let key = key_file_key(contents, &salt);
            let wrapped = to_hex(&wrap_secret(&key, &config.binding(), &master));
            ("key-file", KeySlot::KeyFile { salt: to_hex(&salt), wrapped })
        }
    };
    let text = toml::to_string(&slot).expect("plain values always serialise");
    let file = FileName::new(&format!("{FOLDER}/{file}.toml")).expect("a plain name");
    storage.replace(&file, text.as_bytes())?;
    Ok(master)
}

/// Opens the master key.
pub(crate) fn open(
    storage: &dyn Storage,
    config: &StoreConfig,
    secret: Option<&Secret>,
) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let files = storage.list(FOLDER)?;
    let files: Vec<_> = files.into_iter().filter(|file| file.as_str().ends_with(".toml")).collect();
    if files.is_empty() {
        return Err(KeyError::NoKeys);
    }
    let secret = secret.ok_or(KeyError::Missing)?;
    let (mut of_this_kind, mut malformed) = (false, None);
    for file in files {
        let text = storage.read_whole(&file, FILE_BYTES_MAX)?;
        let Some(slot) =
            std::str::from_utf8(&text).ok().and_then(|text| toml::from_str::<KeySlot>(text).ok())
        else {
            malformed = Some(file);
            continue;
        };
        of_this_kind |= slot.is_for(secret);
        let opened = slot
            .wrapping_key(secret)
            .zip(slot.wrapped())
            .and_then(|(key, wrapped)| unwrap_secret(&key, &config.binding(), &wrapped).ok());
        if let Some(master) = opened {
            return Ok(Zeroizing::new(master));
        }
    }
    match malformed {
        _ if of_this_kind => Err(KeyError::Wrong { what: secret.what() }),
        Some(file) => Err(KeyError::Malformed { file }),
        None => Err(KeyError::NoSuchKind { what: secret.what() }),
    }
}

#[cfg(test)]
mod tests {
    use varve_world::{MemoryStorage, SeededRandom};

    use super::*;

    fn passphrase(text: &str) -> Secret {
        Secret::Passphrase(Zeroizing::new(text.into()))
    }

    fn key_file(byte: u8) -> Secret {
        Secret::KeyFile(Zeroizing::new(vec![byte; 40]))
    }

    const CHEAP: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

    fn made(secret: &Secret) -> (MemoryStorage, StoreConfig, [u8; 32]) {
        let (storage, config) = (MemoryStorage::new(), StoreConfig::new([1; 16]));
        let master = *create(&storage, &SeededRandom::new(1), &config, secret, CHEAP).unwrap();
        (storage, config, master)
    }

    #[test]
    fn the_right_secret_opens() {
        for secret in [passphrase("correct horse"), key_file(1)] {
            let (storage, config, master) = made(&secret);
            assert_eq!(*open(&storage, &config, Some(&secret)).unwrap(), master);
        }
    }

    #[test]
    fn anything_else_is_told_apart() {
        let (storage, config, _) = made(&passphrase("correct horse"));
        let complaint = |secret: Option<&Secret>| open(&storage, &config, secret).unwrap_err();
        assert!(matches!(complaint(Some(&passphrase("wrong"))), KeyError::Wrong { what: "passphrase" }));
        assert!(matches!(complaint(Some(&key_file(1))), KeyError::NoSuchKind { what: "key file" }));
        assert!(matches!(complaint(None), KeyError::Missing));
        assert!(matches!(open(&MemoryStorage::new(), &config, None), Err(KeyError::NoKeys)));
        let other = StoreConfig::new([2; 16]);
        let moved = open(&storage, &other, Some(&passphrase("correct horse")));
        assert!(matches!(moved, Err(KeyError::Wrong { .. })), "a changed config.toml does not open");
    }

    #[test]
    fn weak_secrets_are_refused() {
        let config = StoreConfig::new([1; 16]);
        for secret in [passphrase(""), Secret::KeyFile(Zeroizing::new(vec![1; 31]))] {
            let made = create(&MemoryStorage::new(), &SeededRandom::new(1), &config, &secret, CHEAP);
            assert!(matches!(made, Err(KeyError::TooShort { .. })));
        }
    }

    #[test]
    fn hostile_key_files_are_refused() {
        let (storage, config, _) = made(&passphrase("correct horse"));
        let file = FileName::new("keys/passphrase.toml").unwrap();
        let good = String::from_utf8(storage.contents(&file).unwrap()).unwrap();
        for (from, to) in
            [("memory_kib = 64", "memory_kib = 4294967295"), ("passes = 1", "passes = 4000000000")]
        {
            storage.set_contents(&file, good.replace(from, to).into_bytes());
            assert!(open(&storage, &config, Some(&passphrase("correct horse"))).is_err());
        }
        for length in 0..good.len() {
            storage.set_contents(&file, good.as_bytes()[..length].to_vec());
            // A cut in the last line break changes nothing.
            assert!(
                open(&storage, &config, Some(&passphrase("correct horse"))).is_err()
                    || length == good.len() - 1
            );
        }
    }
}

//! `keys/`: the keys of a store, wrapped once for each way to open it. `docs/format.md`, section 1.
//!
//! Invariant: a file of `keys/` is written once and never changed, and a store always keeps one that opens everything: what
//! takes another's place is durable before the other is removed.

mod manage;
mod paper;
mod secret;
mod slot;
#[cfg(test)]
mod tests;
mod tries;

use std::collections::BTreeMap;

use varve_log::{LockedMemory, LogKeys};
use varve_world::{FileName, LockError, Storage};
use zeroize::Zeroizing;

use crate::config::StoreConfig;
use crate::role::{NotPermitted, Role};

pub use manage::{Keyring, NewKey};
pub use paper::{PaperError, PaperKey};
pub use secret::{PassphraseCost, Secret};
pub use slot::KeyEntry;

use slot::Slot;
use tries::Tries;

pub(crate) const FOLDER: &str = "keys";
const FILE_BYTES_MAX: u64 = 64 << 10;
/// How many keys a store has at most. Somebody may have laid more there, and a replica may have kept old ones: all are looked at.
const KEYS_MAX: usize = 64;
/// So many files an error names; of the others it says how many they are.
const NAMED_MAX: usize = 3;

/// Keys that a secret has opened.
pub struct OpenedKey {
    /// Which one.
    pub entry: KeyEntry,
    keys: LogKeys,
    /// Whoever has it may make other keys.
    master: Option<LockedMemory<[u8; 32]>>,
    /// For what only the holder of this one key is to read.
    own: LockedMemory<[u8; 32]>,
}

/// Why a store's keys did not open, or were not made.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The store is encrypted and nothing was given to open it with.
    #[error("the store is encrypted: a passphrase or a key file is needed")]
    Missing,
    /// The store is not encrypted.
    #[error("the store is not encrypted: it has no keys")]
    NotEncrypted,
    /// None of the store's keys opens with what was given.
    #[error("the {what} does not open this store{}", damaged_text(damaged))]
    Wrong {
        /// "passphrase" or "key file".
        what: &'static str,
        /// Keys that could not be tried.
        damaged: Vec<FileName>,
    },
    /// None of those that were tried opens, and others cost too much to be tried as well.
    #[error(
        "the {what} was tried on {tried_count} of {} keys, and opens none of them; to try the others would take too long: {}; \
         remove from {FOLDER:?} those that none of you has made, and try again",
        tried_count + left.len(), listed(left)
    )]
    NotAllTried {
        /// "passphrase".
        what: &'static str,
        /// How many were tried.
        tried_count: usize,
        /// Those that were not.
        left: Vec<FileName>,
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
    #[error("{file}: this key is damaged, and no other of its kind is there")]
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
    /// Settings of Argon2id that nobody should wait for, or that protect nothing.
    #[error(
        "a passphrase cannot be tried at this cost: from 8 MiB to 4 GiB, 1 to 64 passes, at most 64 lanes"
    )]
    Cost,
    /// The key that was given is not enough.
    #[error(transparent)]
    NotPermitted(#[from] NotPermitted),
    /// Whoever compares blocks by their bytes has to read them.
    #[error(
        "a store that compares blocks by value cannot have write-only keys: telling a duplicate takes reading it"
    )]
    ByValue,
    /// What was to become a new key opens the store already.
    #[error("this {what} is key {id} already")]
    Duplicate {
        /// "passphrase" or "key file".
        what: &'static str,
        /// The key that it opens.
        id: String,
    },
    /// The store has as many keys as a store may have.
    #[error("the store has {KEYS_MAX} keys already; remove one first")]
    TooMany,
    /// A label that does not fit in a line.
    #[error("a label is one line of at most {} bytes", slot::LABEL_BYTES_MAX)]
    Label,
    /// No key is called so.
    #[error("no key is called {id:?}")]
    NoSuchKey {
        /// What was asked for.
        id: String,
    },
    /// Several keys are.
    #[error("{id:?} could be {}", candidates.join(" or "))]
    Ambiguous {
        /// What was asked for.
        id: String,
        /// What it may mean.
        candidates: Vec<String>,
    },
    /// Without this one nothing could be read, ever.
    #[error("{id} is the last key that opens everything: it cannot be removed")]
    Last {
        /// Which key.
        id: String,
    },
    /// A paper key that was typed in does not fit.
    #[error(transparent)]
    Paper(#[from] PaperError),
    /// Somebody else changes the keys.
    #[error("the keys are being changed: {0}")]
    Locked(LockError),
    /// Whether somebody else changes them could not be found out.
    #[error("the keys cannot be changed")]
    Lock(#[source] LockError),
    /// A key's file could not be read or written.
    #[error("the keys cannot be read or written")]
    Storage(#[from] std::io::Error),
}

impl From<LockError> for KeyError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { .. } => Self::Locked(error),
            LockError::Storage { .. } => Self::Lock(error),
        }
    }
}

fn damaged_text(damaged: &[FileName]) -> String {
    if damaged.is_empty() {
        return String::new();
    }
    format!(" ({} could not be tried: damaged)", listed(damaged))
}

/// The first of these files, and how many others there are.
fn listed(files: &[FileName]) -> String {
    let (named, others) = files.split_at(files.len().min(NAMED_MAX));
    let named: Vec<_> = named.iter().map(ToString::to_string).collect();
    let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    named.join(", ") + &others
}

impl OpenedKey {
    fn new(slot: &Slot, keys: &Zeroizing<Vec<u8>>, wrapping_key: &[u8; 32]) -> Option<Self> {
        let mut master = None;
        let log_keys = match slot.entry.role {
            Role::Full => {
                let bytes: &[u8; 32] = keys.first_chunk()?;
                master = Some(LockedMemory::filled(|master: &mut [u8; 32]| master.copy_from_slice(bytes)));
                LogKeys::from_master(bytes)
            }
            Role::AppendOnly => LogKeys::from_read_and_names(keys.first_chunk()?),
            Role::WriteOnly => LogKeys::from_names_and_write(keys.first_chunk()?),
        };
        Some(Self { entry: slot.entry.clone(), keys: log_keys, master, own: own_key(wrapping_key) })
    }

    /// What the log works with.
    pub(crate) fn log_keys(&self) -> &LogKeys {
        &self.keys
    }

    pub(crate) fn into_parts(self) -> (LogKeys, Role, LockedMemory<[u8; 32]>) {
        (self.keys, self.entry.role, self.own)
    }
}

fn own_key(wrapping_key: &[u8; 32]) -> LockedMemory<[u8; 32]> {
    LockedMemory::filled(|own: &mut [u8; 32]| *own = blake3::derive_key("varve 1 own", wrapping_key))
}

/// What there is in `keys/`: sound files and others.
struct Slots {
    sound: BTreeMap<FileName, Slot>,
    damaged: Vec<FileName>,
    /// Why one of the files could not be read, if that is so.
    unread: Option<std::io::Error>,
}

/// All keys.
fn slots(storage: &dyn Storage) -> Result<Slots, KeyError> {
    let slots = slots_that_read(storage)?;
    match slots.unread {
        Some(error) => Err(error.into()),
        None => Ok(slots),
    }
}

/// The keys, but for those whose files cannot be read.
fn slots_that_read(storage: &dyn Storage) -> Result<Slots, KeyError> {
    let files = storage.list(FOLDER)?;
    let files = files.into_iter().filter(|file| file.as_str().ends_with(".toml"));
    let mut slots = Slots { sound: BTreeMap::new(), damaged: Vec::new(), unread: None };
    for file in files {
        let contents = match storage.read_whole(&file, FILE_BYTES_MAX) {
            Ok(contents) => contents,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Vec::new(),
            // It was removed meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            // Another one may open the store.
            Err(error) => {
                let named = std::io::Error::new(error.kind(), format!("{file}: {error}"));
                slots.unread.get_or_insert(named);
                continue;
            }
        };
        match Slot::parse(&file, &contents) {
            Some(slot) => drop(slots.sound.insert(file, slot)),
            None => slots.damaged.push(file),
        }
    }
    if slots.sound.len() > KEYS_MAX {
        tracing::warn!(key_count = slots.sound.len(), "there are more keys than a store may have");
    }
    Ok(slots)
}

/// How many keys are sound, and the files of those that are damaged.
pub(crate) fn sound_and_damaged(storage: &dyn Storage) -> Result<(usize, Vec<FileName>), KeyError> {
    let Slots { sound, damaged, .. } = slots(storage)?;
    Ok((sound.len(), damaged))
}

/// Whether this is what a key's file has. It may still be another store's.
pub(crate) fn is_sound(file: &FileName, contents: &[u8]) -> bool {
    Slot::parse(file, contents).is_some()
}

/// Opens the first key that the secret opens.
pub(crate) fn open(
    storage: &dyn Storage,
    config: &StoreConfig,
    secret: Option<&Secret>,
) -> Result<OpenedKey, KeyError> {
    let Slots { sound, damaged, unread } = slots_that_read(storage)?;
    if sound.is_empty() && damaged.is_empty() {
        return Err(unread.map_or(KeyError::NoKeys, KeyError::from));
    }
    let secret = secret.ok_or(KeyError::Missing)?;
    let Tries { slots, loud_from, mut left } = Tries::of(&sound, secret);
    let mut tried_count = 0;
    for (number, slot) in slots.iter().enumerate() {
        if loud_from == Some(number) {
            let key_count = slots.len() - number;
            tracing::warn!(key_count, "the keys that are left to be tried cost much: that may take minutes");
        }
        let Some(key) = slot.wrapping_key(secret) else {
            left.push(slot.entry.file());
            continue;
        };
        if let Some(opened) = slot.unwrap(config, &key).and_then(|keys| OpenedKey::new(slot, &keys, &key)) {
            return Ok(opened);
        }
        tried_count += 1;
    }
    if let Some(error) = unread {
        return Err(error.into());
    }
    let what = secret.what();
    if !left.is_empty() {
        return Err(KeyError::NotAllTried { what, tried_count, left });
    }
    if sound.values().any(|slot| slot.is_for(secret)) {
        return Err(KeyError::Wrong { what, damaged });
    }
    match damaged.into_iter().next() {
        Some(file) => Err(KeyError::Malformed { file }),
        None => Err(KeyError::NoSuchKind { what }),
    }
}

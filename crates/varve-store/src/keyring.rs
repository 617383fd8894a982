//! `keys/`: the keys of a store, wrapped once for each way to open it.
//! `docs/internals/format.md`, section 1.
//!
//! Always true: a file of `keys/` is written once and never changed, and a store always has a full
//! key. A new key that replaces another one is durable before the old one is removed.

mod manage;
mod paper;
mod secret;
mod slot;
#[cfg(test)]
mod tests;
mod tries;

use std::collections::BTreeMap;

use varve_block::has_kind;
use varve_log::{LockedMemory, LogKeys, WRITER_KEYS_BYTES};
use varve_world::{FileName, LockError, Storage};
use zeroize::Zeroizing;

use crate::config::StoreConfig;
use crate::origin::Origin;
use crate::role::{NotPermitted, Permission, Role};

pub use manage::{Keyring, NewKey};
pub use paper::{PaperError, PaperKey};
pub use secret::{PassphraseCost, Secret};
pub use slot::KeyEntry;

use slot::{KeySlot, SlotFault};
use tries::KeyTries;

pub(crate) const FOLDER: &str = "keys";
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The most keys of a store. More files may be there: an attacker may have added some, and a
/// replica may have kept old ones. All of them are considered.
const KEYS_MAX: usize = 64;
/// An error names at most this many files, and counts the others.
const NAMED_MAX: usize = 3;

/// A key that a secret has opened.
pub struct OpenedKey {
    pub entry: KeyEntry,
    keys: LogKeys,
    /// The master key, with which other keys can be made.
    master: Option<LockedMemory<[u8; 32]>>,
    /// Encrypts files that only the holder of this one key may read.
    own: LockedMemory<[u8; 32]>,
}

/// The keys of a store did not open, or were not made.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The store is encrypted, and no secret was given.
    #[error("the store is encrypted: a passphrase or a key file is needed")]
    Missing,
    #[error("the store is not encrypted: it has no keys")]
    NotEncrypted,
    /// None of the store's keys opens with the given secret.
    #[error("the {what} does not open this store{}", damaged_text(damaged))]
    Wrong {
        /// "passphrase" or "key file".
        what: &'static str,
        /// The keys that could not be tried.
        damaged: Vec<FileName>,
    },
    /// None of the tried keys opens, and others cost too much to be tried.
    #[error(
        "the {what} was tried on {tried_count} of {} keys, and opens none of them; trying the others would take too long: {}; remove the keys that you did not make from {FOLDER:?}, and try again",
        tried_count + left.len(), listed(left)
    )]
    NotAllTried {
        /// "passphrase".
        what: &'static str,
        tried_count: usize,
        /// The keys that were not tried.
        left: Vec<FileName>,
    },
    /// The store has no key of this kind.
    #[error("no {what} opens this store: all its keys are of another kind")]
    NoSuchKind {
        /// "passphrase" or "key file".
        what: &'static str,
    },
    /// The folder of keys is missing or empty.
    #[error("the store is encrypted, but its folder {FOLDER:?} has no key: without one nothing can be read")]
    NoKeys,
    /// A key's file is malformed.
    #[error("{file}: this key is damaged, and the store has no other key of its kind")]
    Malformed { file: FileName },
    /// None of the keys that this program knows opens, and there are others.
    #[error(
        "{file}: this key is of a kind that this program does not know, and the secret opens none of the others: use a newer version of it"
    )]
    Newer { file: FileName },
    /// An empty passphrase or a short key file.
    #[error("the {what} is too short: {advice}")]
    TooShort {
        /// "passphrase" or "key file".
        what: &'static str,
        /// A secret that would be long enough.
        advice: &'static str,
    },
    /// Settings of Argon2id that take too long, or that protect nothing.
    #[error("the cost of the passphrase is out of range: 8 MiB to 4 GiB, 1 to 64 passes, at most 64 lanes")]
    Cost,
    /// The given key does not have the permission.
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    /// A store that compares blocks by value has to read them.
    #[error(
        "a store that compares blocks by value cannot have write-only keys: it must read a block to recognise a duplicate"
    )]
    ByValue,
    /// The secret of the new key opens the store already.
    #[error("this {what} already opens key {id}")]
    Duplicate {
        /// "passphrase" or "key file".
        what: &'static str,
        /// The key that it opens.
        id: String,
    },
    #[error("the store has {KEYS_MAX} keys already; remove one first")]
    TooMany,
    /// The label is longer than a line, or has control characters.
    #[error("a label is one line of at most {} bytes", slot::LABEL_BYTES_MAX)]
    Label,
    #[error("no key is called {id:?}")]
    NoSuchKey { id: String },
    /// Several keys have this id.
    #[error("{id:?} could be {}", candidates.join(" or "))]
    Ambiguous {
        id: String,
        /// The ids of these keys.
        candidates: Vec<String>,
    },
    /// The last full key must stay: without it nothing could ever be read.
    #[error("{id} is the last full key: it cannot be removed")]
    Last { id: String },
    /// The typed paper key is wrong.
    #[error("{0}")]
    Paper(#[from] PaperError),
    /// Another process changes the keys.
    #[error("the keys are being changed: {0}")]
    Locked(#[source] LockError),
    /// The lock of the keys could not be checked.
    #[error("the keys cannot be changed")]
    Lock(#[source] LockError),
    #[error("the keys cannot be read or written")]
    Storage(#[from] std::io::Error),
}

has_kind!(KeyError:
    Self::Missing => NoSecret,
    Self::Wrong { .. } | Self::NotAllTried { .. } => WrongKey,
    Self::NoSuchKind { what: "passphrase" } => NeedsKeyFile,
    Self::NoSuchKind { .. } => NeedsPassphrase,
    Self::Newer { .. } => NewerVersion,
    Self::Malformed { .. } | Self::NoKeys => KeysLost,
);

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

/// Names the first of these files, and the number of the others.
fn listed(files: &[FileName]) -> String {
    let (named, others) = files.split_at(files.len().min(NAMED_MAX));
    let named: Vec<_> = named.iter().map(ToString::to_string).collect();
    let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    named.join(", ") + &others
}

impl OpenedKey {
    fn new(slot: &KeySlot, keys: &Zeroizing<Vec<u8>>, wrapping_key: &[u8; 32]) -> Option<Self> {
        let mut master = None;
        let log_keys = match slot.entry.role {
            Role::Full => {
                let bytes: &[u8; 32] = keys.first_chunk()?;
                master = Some(LockedMemory::filled(|master: &mut [u8; 32]| master.copy_from_slice(bytes)));
                LogKeys::from_master(bytes)
            }
            Role::AppendOnly => LogKeys::from_read_and_names(keys.first_chunk()?),
            Role::WriteOnly => match <&[u8; WRITER_KEYS_BYTES]>::try_from(keys.as_slice()) {
                Ok(keys) => LogKeys::from_writer_keys(keys),
                Err(_) => LogKeys::from_names_and_write(keys.first_chunk()?),
            },
        };
        Some(Self { entry: slot.entry.clone(), keys: log_keys, master, own: own_key(wrapping_key) })
    }

    /// Returns the keys for the log.
    pub(crate) fn log_keys(&self) -> &LogKeys {
        &self.keys
    }

    pub(crate) fn into_parts(self) -> (KeyEntry, LogKeys, LockedMemory<[u8; 32]>) {
        (self.entry, self.keys, self.own)
    }
}

fn own_key(wrapping_key: &[u8; 32]) -> LockedMemory<[u8; 32]> {
    LockedMemory::filled(|own: &mut [u8; 32]| *own = blake3::derive_key("varve 1 own", wrapping_key))
}

/// The files in `keys/`.
struct Slots {
    sound: BTreeMap<FileName, KeySlot>,
    damaged: Vec<FileName>,
    /// Keys that a newer program made. They are left as they are.
    newer: Vec<FileName>,
    /// The error of a file that could not be read, if there was one.
    unread: Option<std::io::Error>,
}

/// Reads all keys.
fn slots(storage: &dyn Storage) -> Result<Slots, KeyError> {
    let slots = slots_that_read(storage)?;
    match slots.unread {
        Some(error) => Err(error.into()),
        None => Ok(slots),
    }
}

/// Reads the keys, except those whose files cannot be read.
fn slots_that_read(storage: &dyn Storage) -> Result<Slots, KeyError> {
    let files = storage.list(FOLDER)?;
    let files = files.into_iter().filter(|file| file.as_str().ends_with(".toml"));
    let mut slots = Slots { sound: BTreeMap::new(), damaged: Vec::new(), newer: Vec::new(), unread: None };
    for file in files {
        let contents = match storage.read_whole(&file, FILE_BYTES_MAX) {
            Ok(contents) => contents,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Vec::new(),
            // The file was removed meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            // Another key may open the store.
            Err(error) => {
                let named = std::io::Error::new(error.kind(), format!("{file}: {error}"));
                slots.unread.get_or_insert(named);
                continue;
            }
        };
        match KeySlot::parse(&file, &contents) {
            Ok(slot) => drop(slots.sound.insert(file, slot)),
            Err(SlotFault::Damaged) => slots.damaged.push(file),
            Err(SlotFault::Newer) => slots.newer.push(file),
        }
    }
    if slots.sound.len() > KEYS_MAX {
        tracing::warn!(key_count = slots.sound.len(), "there are more keys than a store may have");
    }
    Ok(slots)
}

/// Returns the number of sound keys, with those of a newer program, and the files of the damaged
/// ones.
pub(crate) fn sound_and_damaged(storage: &dyn Storage) -> Result<(usize, Vec<FileName>), KeyError> {
    let Slots { sound, damaged, newer, .. } = slots(storage)?;
    Ok((sound.len() + newer.len(), damaged))
}

/// Returns whether every key of the store can read. A damaged or unreadable one might not.
pub(crate) fn all_can_read(storage: &dyn Storage) -> bool {
    slots(storage).is_ok_and(|slots| {
        slots.damaged.is_empty() && slots.sound.values().all(|slot| slot.entry.role.allows(Permission::Read))
    })
}

/// Returns the origins of what the write-only keys of the store add. Keys whose files cannot be
/// read are left out.
pub(crate) fn write_only_origins(storage: &dyn Storage) -> Vec<Origin> {
    let sound = slots_that_read(storage).map(|slots| slots.sound).unwrap_or_default();
    let entries = sound.into_values().map(|slot| slot.entry);
    let write_only = entries.filter(|entry| entry.role == Role::WriteOnly);
    write_only.map(|entry| Origin::new(Role::WriteOnly, &entry.id)).collect()
}

/// Returns true if this is a well-formed key file. It may still be another store's.
pub(crate) fn is_sound(file: &FileName, contents: &[u8]) -> bool {
    KeySlot::parse(file, contents).is_ok()
}

/// Opens the first key that the secret opens.
pub(crate) fn open(
    storage: &dyn Storage,
    config: &StoreConfig,
    secret: Option<&Secret>,
) -> Result<OpenedKey, KeyError> {
    let Slots { sound, damaged, newer, unread } = slots_that_read(storage)?;
    if sound.is_empty() && damaged.is_empty() && newer.is_empty() {
        return Err(unread.map_or(KeyError::NoKeys, KeyError::from));
    }
    let secret = secret.ok_or(KeyError::Missing)?;
    let KeyTries { slots, loud_from, mut left } = KeyTries::of(&sound, secret);
    let mut tried_count = 0;
    for (number, slot) in slots.iter().enumerate() {
        if loud_from == Some(number) {
            let key_count = slots.len() - number;
            tracing::warn!(key_count, "the remaining keys are expensive to try: this may take minutes");
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
    if let Some(file) = newer.into_iter().next() {
        return Err(KeyError::Newer { file });
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

//! Opens the settings, keys and log without the engine, for callers that copy or check the log as a
//! whole and look up no block.

use std::io;
use std::sync::Arc;

use varve_log::{ArenaHeader, ArenaId, LockedMemory, Log, LogConfig, LogKeys};
use varve_world::{FileName, Storage, World};

use super::open_error::OpenStoreError;
use crate::config::{Encryption, StoreConfig};
use crate::keyring::{self, KeyError, Keyring, Secret};
use crate::role::Role;

pub(super) const CONFIG_BYTES_MAX: u64 = 64 << 10;

/// Reads the settings that were chosen when the store was made. They are readable without a key.
///
/// # Errors
/// [`OpenStoreError::NotAStore`], [`OpenStoreError::NotAFolder`], [`OpenStoreError::ConfigLost`],
/// [`OpenStoreError::Config`] or [`OpenStoreError::Storage`].
pub fn read_config(world: &World) -> Result<StoreConfig, OpenStoreError> {
    let read = || match world.storage.read_whole(&config_file(), CONFIG_BYTES_MAX) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(OpenStoreError::NotAFolder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_config(world)),
        Err(error) => Err(OpenStoreError::Storage(error)),
    };
    let text = read()?;
    // The file is read twice: it has no code of its own, and with another identity a plain store
    // would seem to be empty.
    if read()? != text {
        return Err(OpenStoreError::Storage(io::Error::other("two reads of it gave different bytes")));
    }
    Ok(StoreConfig::from_text(&String::from_utf8_lossy(&text))?)
}

/// Classifies a folder without `config.toml`. A folder with an unfinished `config.toml` is not a
/// store yet.
fn no_config(world: &World) -> OpenStoreError {
    let is_any = |folder: &str| world.storage.list(folder).is_ok_and(|files| !files.is_empty());
    let is_begun = world.storage.length(&config_file().unfinished()).is_ok();
    if is_any(ArenaId::FOLDER) && !is_begun { OpenStoreError::ConfigLost } else { OpenStoreError::NotAStore }
}

fn config_file() -> FileName {
    FileName::new("config.toml").expect("a plain name")
}

/// Reads the settings of a store and opens its log for reading. Takes no lock, changes nothing and
/// reads no index.
///
/// # Errors
/// [`OpenStoreError`], when there is no store here or the secret does not open it.
pub fn unlock(world: &World, secret: Option<&Secret>) -> Result<(StoreConfig, Log), OpenStoreError> {
    let config = read_config(world)?;
    let keys = unlocked(world.storage.as_ref(), &config, secret)?.keys;
    let log_config =
        LogConfig { store_id: config.id, map: config.arena_map, score_bytes: config.score_bytes() };
    let log = Log::new(Arc::clone(&world.storage), keys, log_config);
    Ok((config, log))
}

/// Returns true if a file of `keys/` is well-formed and fits its name. The wrapped secret is not
/// checked, since that takes the key's own secret.
#[must_use]
pub fn is_sound_key(file: &FileName, contents: &[u8]) -> bool {
    keyring::is_sound(file, contents)
}

impl Keyring {
    /// Opens the keyring of an existing store.
    ///
    /// # Errors
    /// [`OpenStoreError`]; it contains [`KeyError::NotEncrypted`] when the store has no keys.
    pub fn of(world: &World) -> Result<Self, OpenStoreError> {
        let config = read_config(world)?;
        if config.encryption == Encryption::None {
            return Err(KeyError::NotEncrypted.into());
        }
        Ok(Self::new(world, config))
    }
}

/// The keys of a store, and the key that opened them.
pub(super) struct Unlocked {
    pub(super) keys: LogKeys,
    pub(super) role: Role,
    /// The id of the key; `None` if the store is not encrypted.
    pub(super) key_id: Option<String>,
    /// The secret for files of the key's holder alone.
    pub(super) own: LockedMemory<[u8; 32]>,
}

/// Opens the keys of a store.
pub(super) fn unlocked(
    storage: &dyn Storage,
    config: &StoreConfig,
    secret: Option<&Secret>,
) -> Result<Unlocked, OpenStoreError> {
    match config.encryption {
        Encryption::Aes256Gcm => {
            let (entry, keys, own) = keyring::open(storage, config, secret)?.into_parts();
            Ok(Unlocked { keys, role: entry.role, key_id: Some(entry.id), own })
        }
        Encryption::None => match sign_of_encryption(storage).map_err(OpenStoreError::Storage)? {
            Some(found) => Err(OpenStoreError::Downgraded { found }),
            None => Ok(Unlocked {
                keys: LogKeys::plain(&config.binding()),
                role: Role::Full,
                key_id: None,
                own: LockedMemory::default(),
            }),
        },
    }
}

/// Returns a file in the store's folder that shows that the store is encrypted, if there is one.
/// `config.toml` alone cannot be trusted, since it has no code. Somebody who changed it could have
/// the next snapshots written without encryption.
pub(super) fn sign_of_encryption(storage: &dyn Storage) -> std::io::Result<Option<FileName>> {
    let is_key = |file: &FileName| file.as_str().ends_with(".toml");
    if let Some(key) = storage.list(keyring::FOLDER)?.into_iter().find(is_key) {
        return Ok(Some(key));
    }
    let files = storage.list(ArenaId::FOLDER)?;
    let mut arenas = files.iter().filter(|file| ArenaId::of_file(file).is_some());
    // All arenas of a store are alike, so checking the first and the last is enough.
    let ends = arenas.next().into_iter().chain(arenas.next_back());
    let is_encrypted = |file: &&FileName| {
        let mut start = [0; ArenaHeader::CLAIM_BYTES];
        let read = storage.read_at(file, 0, &mut start);
        read.is_ok() && ArenaHeader::claims_encryption(&start) == Some(true)
    };
    Ok(ends.into_iter().find(is_encrypted).cloned())
}

//! Opening the settings, keys and log without the engine: for a caller that copies or checks the log as a whole, and looks
//! for no block in it.

use std::io;
use std::sync::Arc;

use varve_log::{ArenaHeader, ArenaId, LockedMemory, Log, LogConfig, LogKeys};
use varve_world::{FileName, Storage, World};

use super::open_error::OpenError;
use crate::config::{Encryption, StoreConfig};
use crate::keyring::{self, KeyError, Keyring, Secret};
use crate::role::Role;

pub(super) const CONFIG_BYTES_MAX: u64 = 64 << 10;

/// What was chosen when the store was made: readable without a key.
///
/// # Errors
/// [`OpenError::NotAStore`], [`OpenError::NotAFolder`], [`OpenError::ConfigLost`], [`OpenError::Config`] or [`OpenError::Storage`].
pub fn read_config(world: &World) -> Result<StoreConfig, OpenError> {
    let read = || match world.storage.read_whole(&config_file(), CONFIG_BYTES_MAX) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(OpenError::NotAFolder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_config(world)),
        Err(error) => Err(OpenError::Storage(error)),
    };
    let text = read()?;
    // Read twice: it has no code of its own, and with another identity a plain store would seem to be empty.
    if read()? != text {
        return Err(OpenError::Storage(io::Error::other("it reads differently from one time to the next")));
    }
    Ok(StoreConfig::from_text(&String::from_utf8_lossy(&text))?)
}

/// What a folder without `config.toml` is. One with the beginning of a `config.toml` is no store yet.
fn no_config(world: &World) -> OpenError {
    let is_any = |folder: &str| world.storage.list(folder).is_ok_and(|files| !files.is_empty());
    let is_begun = world.storage.length(&config_file().unfinished()).is_ok();
    if is_any(ArenaId::FOLDER) && !is_begun { OpenError::ConfigLost } else { OpenError::NotAStore }
}

fn config_file() -> FileName {
    FileName::new("config.toml").expect("a plain name")
}

/// The settings of a store, and its log to be read. Takes no lock, changes nothing and reads no index.
///
/// # Errors
/// [`OpenError`], when there is no store here or the secret does not open it.
pub fn unlock(world: &World, secret: Option<&Secret>) -> Result<(StoreConfig, Log), OpenError> {
    let config = read_config(world)?;
    let (keys, _, _) = unlocked(world.storage.as_ref(), &config, secret)?;
    let log_config =
        LogConfig { store_id: config.id, map: config.arena_map, score_bytes: config.score_bytes() };
    let log = Log::new(Arc::clone(&world.storage), keys, log_config);
    Ok((config, log))
}

/// Whether a file of `keys/` makes sense under this name. What it wraps is not looked at: that takes a secret.
#[must_use]
pub fn is_sound_key(file: &FileName, contents: &[u8]) -> bool {
    keyring::is_sound(file, contents)
}

impl Keyring {
    /// The keys of the store that is there.
    ///
    /// # Errors
    /// [`OpenError`]; [`KeyError::NotEncrypted`] within it when it has none.
    pub fn of(world: &World) -> Result<Self, OpenError> {
        let config = read_config(world)?;
        if config.encryption == Encryption::None {
            return Err(KeyError::NotEncrypted.into());
        }
        Ok(Self::new(world, config))
    }
}

/// The keys of a store, what they allow, and what is their holder's own.
pub(super) fn unlocked(
    storage: &dyn Storage,
    config: &StoreConfig,
    secret: Option<&Secret>,
) -> Result<(LogKeys, Role, LockedMemory<[u8; 32]>), OpenError> {
    match config.encryption {
        Encryption::Aes256Gcm => Ok(keyring::open(storage, config, secret)?.into_parts()),
        Encryption::None => match sign_of_encryption(storage).map_err(OpenError::Storage)? {
            Some(found) => Err(OpenError::Downgraded { found }),
            None => Ok((LogKeys::plain(&config.binding()), Role::Full, LockedMemory::default())),
        },
    }
}

/// What in a store's folder says that the store is encrypted, if anything does. That it is not only `config.toml` can say, for which no key
/// vouches: somebody who changed it would have the next nights written for everybody to read.
pub(super) fn sign_of_encryption(storage: &dyn Storage) -> std::io::Result<Option<FileName>> {
    let is_key = |file: &FileName| file.as_str().ends_with(".toml");
    if let Some(key) = storage.list(keyring::FOLDER)?.into_iter().find(is_key) {
        return Ok(Some(key));
    }
    let files = storage.list(ArenaId::FOLDER)?;
    let mut arenas = files.iter().filter(|file| ArenaId::of_file(file).is_some());
    // All arenas of a store are alike: the first and the last are as good as all of them.
    let ends = arenas.next().into_iter().chain(arenas.next_back());
    let is_encrypted = |file: &&FileName| {
        let mut start = [0; 48];
        let read = storage.read_at(file, 0, &mut start);
        read.is_ok() && ArenaHeader::claims_encryption(&start) == Some(true)
    };
    Ok(ends.into_iter().find(is_encrypted).cloned())
}

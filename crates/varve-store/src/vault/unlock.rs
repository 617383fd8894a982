//! Opening the log without the engine: for whoever copies or checks it whole, and looks for no block in it.

use std::sync::Arc;

use varve_log::{ArenaHeader, ArenaId, LockedMemory, Log, LogConfig, LogKeys};
use varve_world::{FileName, Storage, World};

use crate::config::{Encryption, StoreConfig};
use crate::keyring;
use crate::open::OpenError;
use crate::{Role, Secret, Store};

impl Store {
    /// The settings of a store, and its log to be read. Takes no lock, changes nothing and reads no index.
    ///
    /// # Errors
    /// [`OpenError`], when there is no store here or the secret does not open it.
    pub fn unlock(world: &World, secret: Option<&Secret>) -> Result<(StoreConfig, Log), OpenError> {
        let config = Self::read_config(world)?;
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
}

/// The keys of a store, what they allow, and what is their holder's own.
pub(crate) fn unlocked(
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
pub(crate) fn sign_of_encryption(storage: &dyn Storage) -> std::io::Result<Option<FileName>> {
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

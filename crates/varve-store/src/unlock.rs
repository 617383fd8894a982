//! Opening the log without the engine: for whoever copies or checks it whole, and looks for no block in it.

use std::sync::Arc;

use varve_log::{Log, LogConfig, LogKeys};
use varve_world::{FileName, World};

use crate::config::{Encryption, StoreConfig};
use crate::keyring;
use crate::open::OpenError;
use crate::{Secret, Store};

impl Store {
    /// The settings of a store, and its log to be read. Takes no lock, changes nothing and reads no index.
    ///
    /// # Errors
    /// [`OpenError`], when there is no store here or the secret does not open it.
    pub fn unlock(world: &World, secret: Option<&Secret>) -> Result<(StoreConfig, Log), OpenError> {
        let config = Self::read_config(world)?;
        let keys = match config.encryption {
            Encryption::Aes256Gcm => keyring::open(world.storage.as_ref(), &config, secret)?.into_parts().0,
            Encryption::None => LogKeys::plain(&config.binding()),
        };
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

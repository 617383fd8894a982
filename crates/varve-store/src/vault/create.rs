//! Creates a store.

use std::io;

use varve_log::{ArenaId, LogKeys};
use varve_world::{FileName, World};

use super::format_page;
use crate::config::{Encryption, StoreConfig};
use crate::keyring::{self, KeyError, Keyring, PassphraseCost, Secret};

/// Files that an unfinished creation leaves in the store's folder.
const LEFT_BY_CREATION: [&str; 3] = ["FORMAT.md", "FORMAT.md.new", "config.toml.new"];

/// The reason why a store was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("a store already exists there")]
    Exists,
    #[error("the folder is not empty: it holds {name}")]
    NotEmpty {
        /// One of the files in the folder.
        name: FileName,
    },
    /// The keys could not be made.
    #[error("{0}")]
    Keys(#[from] KeyError),
    #[error("cannot write {file}")]
    Storage { file: FileName, source: io::Error },
}

fn name(text: &str) -> FileName {
    FileName::new(text).expect("a plain name")
}

/// Makes a store in an empty folder. The store is durable when this returns. An encrypted store
/// needs a secret.
///
/// # Errors
/// [`CreateError`].
pub fn create(
    world: &World,
    config: &StoreConfig,
    secret: Option<&Secret>,
    cost: PassphraseCost,
) -> Result<(), CreateError> {
    let storage = world.storage.as_ref();
    let config_file = name("config.toml");
    let failed = |file: &FileName| {
        let file = file.clone();
        move |source| CreateError::Storage { file, source }
    };
    let listed = storage.list("").map_err(failed(&config_file))?;
    if listed.contains(&config_file) {
        return Err(CreateError::Exists);
    }
    // A creation that a crash interrupted is started again. If there is a log, there was a store,
    // and its keys must not be replaced.
    let has_log = !storage.list(ArenaId::FOLDER).map_err(failed(&config_file))?.is_empty();
    let is_leftover = |file: &FileName| !has_log && LEFT_BY_CREATION.contains(&file.as_str());
    if let Some(stranger) = listed.into_iter().find(|file| !is_leftover(file)) {
        return Err(CreateError::NotEmpty { name: stranger });
    }
    // The keys of an interrupted creation open nothing. None of them must be taken for a key of
    // this store.
    for key in storage.list(keyring::FOLDER).map_err(failed(&config_file))? {
        storage.remove(&key).map_err(failed(&key))?;
    }
    let keys = match config.encryption {
        Encryption::Aes256Gcm => {
            let secret = secret.ok_or(KeyError::Missing)?;
            Keyring::new(world, config.clone()).create(secret, cost)?
        }
        Encryption::None => LogKeys::plain(&config.binding()),
    };
    format_page::write(storage, &keys).map_err(|(file, source)| CreateError::Storage { file, source })?;
    // Written last: a folder without this file is not a store, so a crash before this leaves none.
    storage.replace(&config_file, config.to_text().as_bytes()).map_err(failed(&config_file))
}

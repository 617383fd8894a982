//! Another index for a store: the choice is in `config.toml`, and all the rest follows from the log.

use std::io;

use varve_world::{FileName, LockError, World};

use crate::config::{IndexKind, StoreConfig};
use crate::disk_index;
use crate::open::OpenError;
use crate::places;
use crate::store::Store;

/// Why the index was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChooseIndexError {
    /// The store's configuration could not be read.
    #[error(transparent)]
    Config(#[from] Box<OpenError>),
    /// Somebody writes to the store.
    #[error("the store is being written: it is in use by {holder}")]
    Locked {
        /// Who.
        holder: String,
    },
    /// A file could not be written, or removed.
    #[error("cannot change {file}")]
    Storage {
        /// Which one.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
}

impl From<LockError> for ChooseIndexError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { holder } => Self::Locked { holder },
            LockError::Storage { file, source } => Self::Storage { file, source },
        }
    }
}

impl Store {
    /// Chooses the index that `wanted` says, and lets go of the one that is there: the next opening to write makes it from the log's
    /// directories. Nothing else of `wanted` is looked at.
    ///
    /// # Errors
    /// [`ChooseIndexError`]; the store can be opened all the same, and has the old index or the new one.
    pub fn choose_index(world: &World, wanted: &StoreConfig, holder: &str) -> Result<(), ChooseIndexError> {
        let lock_file = FileName::new("lock").expect("a plain name");
        let _lock = world.storage.lock(&lock_file, holder)?;
        let mut config = Self::read_config(world).map_err(Box::new)?;
        (config.index, config.disk_index) = (wanted.index, wanted.disk_index);
        let config_file = FileName::new("config.toml").expect("a plain name");
        let failed = |file: &FileName| {
            let file = file.clone();
            move |source| ChooseIndexError::Storage { file, source }
        };
        world.storage.replace(&config_file, config.to_text().as_bytes()).map_err(failed(&config_file))?;
        let listed = world.storage.list("index").map_err(failed(&disk_index::summary_file()))?;
        // An index on disk is made anew even if there was one: it may have been asked for other bits of fingerprints.
        let spread = places::index_storage(world, &config);
        disk_index::remove_files(spread.as_ref()).map_err(|(file, source)| failed(&file)(source))?;
        if let Some(file) = listed.iter().find(|file| file.as_str() == "index/checkpoint") {
            world.storage.remove(file).map_err(failed(file))?;
        }
        if listed.is_empty() {
            Ok(())
        } else {
            world.storage.sync_folder("index").map_err(failed(&config_file))
        }
    }

    /// Where the index is kept.
    #[must_use]
    pub fn index_kind(&self) -> IndexKind {
        self.config.index
    }
}

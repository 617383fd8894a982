//! Changes the index of a store. The choice is in `config.toml`; everything else follows from the
//! log.

use std::collections::BTreeSet;
use std::io;

use varve_block::{has_kind, to_hex};
use varve_world::{FileName, LockError, World};

use super::disk_index;
use super::index_folders::{
    LIST_END, NOTE_BYTES_MAX, PLACES_MAX, index_storage, list_file, listed, note_file, note_of, spread_over,
    store_of, usable,
};
use crate::config::StoreConfig;
use crate::vault::{OpenStoreError, WriterLock, read_config};

/// The index was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChooseIndexError {
    #[error("{0}")]
    Config(#[from] Box<OpenStoreError>),
    #[error("the store is locked by another writer: it is in use by {holder}")]
    Locked { holder: String },
    #[error("cannot change {file}")]
    Storage { file: FileName, source: io::Error },
}

has_kind!(ChooseIndexError: Self::Locked { .. } => Locked);

impl From<LockError> for ChooseIndexError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { holder } => Self::Locked { holder },
            LockError::Storage { file, source } => Self::Storage { file, source },
        }
    }
}

/// Folders were not chosen.
#[derive(Debug, thiserror::Error)]
pub enum ChoosePlacesError {
    /// The path cannot be in the list.
    #[error(
        "{path:?} cannot hold a part of an index: each path must be one line and named once, and there may be {PLACES_MAX} at most"
    )]
    Path { path: String },
    /// The folder holds the index of another store.
    #[error("{path} holds the index of store {store}")]
    Taken {
        path: String,
        /// The other store's identity.
        store: String,
    },
    #[error("{path} cannot be used")]
    Place { path: String, source: io::Error },
    /// The store's own files could not be changed.
    #[error("{0}")]
    Store(#[from] ChooseIndexError),
}

/// Chooses the kind of index in `wanted` and its settings, and removes the old index. The next
/// opening for writing makes the new one from the log's directories. Ignores all other settings of
/// `wanted`.
///
/// # Errors
/// [`ChooseIndexError`]; the store can still be opened, and has the old index or the new one.
pub fn choose_index(world: &World, wanted: &StoreConfig, holder: &str) -> Result<(), ChooseIndexError> {
    let _lock = WriterLock::take(world.storage.as_ref(), holder)?;
    let mut config = read_config(world).map_err(Box::new)?;
    (config.index, config.disk_index) = (wanted.index, wanted.disk_index);
    let config_file = FileName::new("config.toml").expect("a plain name");
    let failed = |file: &FileName| {
        let file = file.clone();
        move |source| ChooseIndexError::Storage { file, source }
    };
    world.storage.replace(&config_file, config.to_text().as_bytes()).map_err(failed(&config_file))?;
    let listed = world.storage.list("index").map_err(failed(&disk_index::summary_file()))?;
    // An index on disk is made anew even if there was one, since other bits of fingerprints may be
    // requested.
    let spread = index_storage(world, &config);
    disk_index::remove_files(spread.as_ref()).map_err(|(file, source)| failed(&file)(source))?;
    if let Some(file) = listed.iter().find(|file| file.as_str() == "index/checkpoint") {
        world.storage.remove(file).map_err(failed(file))?;
    }
    if listed.is_empty() { Ok(()) } else { world.storage.sync_folder("index").map_err(failed(&config_file)) }
}

/// Chooses the folders that an index on disk is spread over, each on a disk of its own; none for
/// the store's own folder. Makes folders that do not exist. Removes the files of the index, here
/// and in the folders that were chosen before. The next opening for writing makes the index anew.
///
/// # Errors
/// [`ChoosePlacesError`]; the store can still be opened, and has the old folders or the new ones.
pub fn choose_index_places(world: &World, paths: &[String], holder: &str) -> Result<(), ChoosePlacesError> {
    let _lock = WriterLock::take(world.storage.as_ref(), holder).map_err(ChooseIndexError::from)?;
    let config = read_config(world).map_err(|error| ChooseIndexError::from(Box::new(error)))?;
    let mut seen = BTreeSet::new();
    for path in paths {
        let is_plain = !path.is_empty() && !path.contains(['\n', '\r']) && *path != *LIST_END;
        if !is_plain || !seen.insert(path) || paths.len() > PLACES_MAX {
            return Err(ChoosePlacesError::Path { path: path.clone() });
        }
        take(world, path, &config.id)?;
    }
    let failed = |file: FileName| move |source| ChooseIndexError::Storage { file, source };
    let storage = world.storage.as_ref();
    let old = listed(storage);
    let folders = old.iter().filter_map(|path| usable(world, path, &config.id).ok()).collect();
    let spread = spread_over(world, folders);
    disk_index::remove_files(spread.as_ref()).map_err(|(file, source)| failed(file)(source))?;
    if paths.is_empty() {
        storage.remove_if_there(&list_file()).map_err(failed(list_file()))?;
        storage.sync_folder("index").map_err(failed(list_file()))?;
    } else {
        let list: String = paths.iter().map(|path| format!("{path}\n")).collect();
        storage.replace(&list_file(), (list + LIST_END + "\n").as_bytes()).map_err(failed(list_file()))?;
    }
    // A note that cannot be removed does no harm.
    for folder in old
        .iter()
        .filter(|path| !paths.contains(path))
        .filter_map(|path| usable(world, path, &config.id).ok())
    {
        let _ = folder.remove(&note_file());
    }
    Ok(())
}

/// Claims a folder for this store, unless it belongs to another one.
fn take(world: &World, path: &str, id: &[u8; 16]) -> Result<(), ChoosePlacesError> {
    let failed = |source| ChoosePlacesError::Place { path: path.into(), source };
    let folder = world.storage.other_folder(path).map_err(failed)?;
    match folder.read_whole(&note_file(), NOTE_BYTES_MAX) {
        Ok(note) => {
            let note = String::from_utf8_lossy(&note);
            match store_of(&note) {
                Some(store) if store == to_hex(id) => Ok(()),
                store => {
                    let store = store.unwrap_or("of some other kind").to_owned();
                    Err(ChoosePlacesError::Taken { path: path.into(), store })
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            folder.replace(&note_file(), note_of(id).as_bytes()).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

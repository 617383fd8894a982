//! The folders that an index on disk is spread over: `index/places` names them, and each has a note that says whose it is.
//!
//! ```text
//! STORE/index/places                       a path a line, and `end`
//! PLACE/varve-index                        store = "…"
//! PLACE/index/disk-0000000007.1-of-2       the entries
//! ```
//!
//! The list is a hint of this machine: neither replicas nor clones have it. A folder in it is touched only if its note names this store: so a
//! disk that is not mounted gives no folder of its name on another disk, and a list that somebody else has written leads nowhere. With a folder
//! that cannot be used, the index is made anew on the others, or in the store's own folder: that is slower, and said.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use varve_block::to_hex;
use varve_index::Spread;
use varve_world::{FileName, Storage, World};

use crate::config::StoreConfig;
use crate::disk_index;
use crate::reindex::ChooseIndexError;
use crate::store::Store;

/// What keeps the list, at most.
const LIST_BYTES_MAX: u64 = 64 << 10;
const NOTE_BYTES_MAX: u64 = 4096;
/// More disks than one machine has.
const PLACES_MAX: usize = 64;
/// The last line of the list: without it the list is cut, and its last path may be another one.
const LIST_END: &str = "end";

/// A folder that the index is spread over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPlace {
    /// Its path.
    pub path: String,
    /// Why it cannot be used.
    pub trouble: Option<String>,
}

/// Why folders were not chosen.
#[derive(Debug, thiserror::Error)]
pub enum ChoosePlacesError {
    /// The path cannot stand in the list.
    #[error(
        "{path:?} cannot hold a part of an index: a path of one line, named once, and {PLACES_MAX} of them at most"
    )]
    Path {
        /// Which one.
        path: String,
    },
    /// Another store's index is there.
    #[error("{path} holds the index of store {store}")]
    Taken {
        /// Which folder.
        path: String,
        /// Whose it is.
        store: String,
    },
    /// The folder cannot be read, or not be written.
    #[error("{path} cannot be used")]
    Place {
        /// Which folder.
        path: String,
        /// What went wrong below.
        source: io::Error,
    },
    /// The store's own files.
    #[error(transparent)]
    Store(#[from] ChooseIndexError),
}

fn list_file() -> FileName {
    FileName::new("index/places").expect("a plain name")
}

fn note_file() -> FileName {
    FileName::new("varve-index").expect("a plain name")
}

fn note_of(id: &[u8; 16]) -> String {
    format!(
        "# A part of the index of a Varve store. It may be removed: `varve reindex` makes it again.\nstore = \"{}\"\n",
        to_hex(id)
    )
}

/// Whose note this is.
fn store_of(note: &str) -> Option<&str> {
    note.lines().find_map(|line| line.strip_prefix("store = \"")?.strip_suffix('"'))
}

/// The paths in the list; none if there is none, or it is not whole.
fn listed(storage: &dyn Storage) -> Vec<String> {
    let Ok(list) = storage.read_whole(&list_file(), LIST_BYTES_MAX) else { return Vec::new() };
    let Ok(list) = String::from_utf8(list) else { return Vec::new() };
    let mut paths: Vec<_> = list.lines().map(str::to_owned).collect();
    if paths.pop().is_none_or(|last| last != LIST_END) || paths.len() > PLACES_MAX {
        return Vec::new();
    }
    paths
}

/// A folder that has a note of this store.
fn usable(world: &World, path: &str, id: &[u8; 16]) -> Result<Arc<dyn Storage>, String> {
    let folder = world.storage.other_folder(path).map_err(|error| error.to_string())?;
    let note = match folder.read_whole(&note_file(), NOTE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("it has no file varve-index: is its disk there?".into());
        }
        read => read.map_err(|error| error.to_string())?,
    };
    match store_of(&String::from_utf8_lossy(&note)) {
        Some(store) if store == to_hex(id) => Ok(folder),
        _ => Err("its file varve-index names another store".into()),
    }
}

fn spread_over(world: &World, folders: Vec<Arc<dyn Storage>>) -> Arc<dyn Storage> {
    if folders.is_empty() {
        Arc::clone(&world.storage)
    } else {
        Arc::new(Spread::new(Arc::clone(&world.storage), folders))
    }
}

/// What the index on disk is written to, and read from.
pub(crate) fn index_storage(world: &World, config: &StoreConfig) -> Arc<dyn Storage> {
    let paths = listed(world.storage.as_ref());
    spread_over(world, paths.iter().filter_map(|path| usable(world, path, &config.id).ok()).collect())
}

/// Says which folders cannot be used.
pub(crate) fn tell_of_missing(world: &World, config: &StoreConfig) {
    for path in listed(world.storage.as_ref()) {
        if let Err(reason) = usable(world, &path, &config.id) {
            tracing::warn!(
                %path, %reason,
                "a folder of the index cannot be used; the index is made anew without it, which is slow"
            );
        }
    }
}

impl Store {
    /// The folders that an index on disk is spread over; none if it is in the store's own.
    #[must_use]
    pub fn index_places(&self) -> Vec<IndexPlace> {
        let paths = listed(self.world.storage.as_ref());
        let place = |path: String| {
            let trouble = usable(&self.world, &path, &self.config.id).err();
            IndexPlace { path, trouble }
        };
        paths.into_iter().map(place).collect()
    }

    /// Chooses the folders that an index on disk is spread over, each on a disk of its own; none for the store's own folder. They are made
    /// where there are none. What the index has written is let go, here and in the folders that were chosen before: the next opening to write
    /// makes it anew.
    ///
    /// # Errors
    /// [`ChoosePlacesError`]; the store can be opened all the same, and has the old folders or the new ones.
    pub fn choose_index_places(
        world: &World,
        paths: &[String],
        holder: &str,
    ) -> Result<(), ChoosePlacesError> {
        let lock_file = FileName::new("lock").expect("a plain name");
        let _lock = world.storage.lock(&lock_file, holder).map_err(ChooseIndexError::from)?;
        let config = Self::read_config(world).map_err(|error| ChooseIndexError::from(Box::new(error)))?;
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
            storage
                .replace(&list_file(), (list + LIST_END + "\n").as_bytes())
                .map_err(failed(list_file()))?;
        }
        // What cannot be removed any more is nobody's.
        for folder in old
            .iter()
            .filter(|path| !paths.contains(path))
            .filter_map(|path| usable(world, path, &config.id).ok())
        {
            let _ = folder.remove(&note_file());
        }
        Ok(())
    }
}

/// Makes a folder this store's, unless it is another one's.
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

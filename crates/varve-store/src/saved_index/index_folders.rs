//! The folders that an index on disk is spread over. `index/places` lists them, and each has a note
//! that names its store.
//!
//! ```text
//! STORE/index/places                       a path a line, and `end`
//! PLACE/varve-index                        store = "…"
//! PLACE/index/disk-0000000007.1-of-2       the entries
//! ```
//!
//! The list is a hint of this machine: neither replicas nor clones have it. A folder in it is used
//! only if its note names this store. So a disk that is not mounted does not create a folder of its
//! name on another disk, and a list that somebody else has written has no effect. If a folder
//! cannot be used, the index is made anew on the others, or in the store's own folder. That is
//! slower, and a warning says so.

use std::io;
use std::sync::Arc;

use varve_block::to_hex;
use varve_index::SpreadStorage;
use varve_world::{FileName, Storage, World};

use crate::config::StoreConfig;

/// The most bytes of the list.
const LIST_BYTES_MAX: u64 = 64 << 10;
pub(super) const NOTE_BYTES_MAX: u64 = 4096;
/// More disks than one machine has.
pub(super) const PLACES_MAX: usize = 64;
/// The last line of the list. A list without it is cut off, and its last path may be incomplete.
pub(super) const LIST_END: &str = "end";

/// A folder that the index is spread over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPlace {
    pub path: String,
    /// The reason why it cannot be used.
    pub trouble: Option<String>,
}

pub(super) fn list_file() -> FileName {
    FileName::new("index/places").expect("a plain name")
}

pub(super) fn note_file() -> FileName {
    FileName::new("varve-index").expect("a plain name")
}

pub(super) fn note_of(id: &[u8; 16]) -> String {
    format!(
        "# A part of the index of a Varve store. It may be removed: `varve reindex` makes it again.\nstore = \"{}\"\n",
        to_hex(id)
    )
}

/// Returns the store that a note names.
pub(super) fn store_of(note: &str) -> Option<&str> {
    note.lines().find_map(|line| line.strip_prefix("store = \"")?.strip_suffix('"'))
}

/// Returns the paths in the list; none if there is no list, or it is not complete.
pub(super) fn listed(storage: &dyn Storage) -> Vec<String> {
    let Ok(list) = storage.read_whole(&list_file(), LIST_BYTES_MAX) else { return Vec::new() };
    let Ok(list) = String::from_utf8(list) else { return Vec::new() };
    let mut paths: Vec<_> = list.lines().map(str::to_owned).collect();
    if paths.pop().is_none_or(|last| last != LIST_END) || paths.len() > PLACES_MAX {
        return Vec::new();
    }
    paths
}

/// Opens a folder that has a note of this store.
pub(super) fn usable(world: &World, path: &str, id: &[u8; 16]) -> Result<Arc<dyn Storage>, String> {
    let folder = world.storage.other_folder(path).map_err(|error| error.to_string())?;
    let note = match folder.read_whole(&note_file(), NOTE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("it has no file varve-index: check that its disk is mounted".into());
        }
        read => read.map_err(|error| error.to_string())?,
    };
    match store_of(&String::from_utf8_lossy(&note)) {
        Some(store) if store == to_hex(id) => Ok(folder),
        _ => Err("its file varve-index names another store".into()),
    }
}

pub(super) fn spread_over(world: &World, folders: Vec<Arc<dyn Storage>>) -> Arc<dyn Storage> {
    if folders.is_empty() {
        Arc::clone(&world.storage)
    } else {
        Arc::new(SpreadStorage::new(Arc::clone(&world.storage), folders))
    }
}

/// Returns the storage that the index on disk is written to and read from.
pub(super) fn index_storage(world: &World, config: &StoreConfig) -> Arc<dyn Storage> {
    let paths = listed(world.storage.as_ref());
    spread_over(world, paths.iter().filter_map(|path| usable(world, path, &config.id).ok()).collect())
}

/// Warns of the folders that cannot be used.
pub(super) fn tell_of_missing(world: &World, config: &StoreConfig) {
    for path in listed(world.storage.as_ref()) {
        if let Err(reason) = usable(world, &path, &config.id) {
            tracing::warn!(
                %path, %reason,
                "a folder of the index cannot be used; the index is rebuilt without it, which is slow"
            );
        }
    }
}

/// Returns the folders that an index on disk is spread over; none if it is in the store's own
/// folder.
#[must_use]
pub fn index_places(world: &World, config: &StoreConfig) -> Vec<IndexPlace> {
    let place = |path: String| {
        let trouble = usable(world, &path, &config.id).err();
        IndexPlace { path, trouble }
    };
    listed(world.storage.as_ref()).into_iter().map(place).collect()
}

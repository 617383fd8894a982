//! Which names at a target can be those of a store's objects.

use varve_world::FileName;

/// No name that a store uses is longer.
const NAME_BYTES_MAX: usize = 1024;

/// The name, if a store can use it.
pub(crate) fn of_a_store(name: &str) -> Option<FileName> {
    if name.len() <= NAME_BYTES_MAX { FileName::new(name).ok() } else { None }
}

/// Whether a folder's own name can lead to objects of a store; others are not entered.
pub(crate) fn is_folder_of_a_store(path: &str) -> bool {
    of_a_store(path).is_some()
}

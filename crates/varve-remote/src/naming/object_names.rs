//! The valid names of a store's objects.

use varve_world::FileName;

/// The longest name of a store's object.
const NAME_BYTES_MAX: usize = 1024;

/// Returns the name if it is valid for a store.
pub(crate) fn of_a_store(name: &str) -> Option<FileName> {
    if name.len() <= NAME_BYTES_MAX { FileName::new(name).ok() } else { None }
}

/// The most folders above an object. A store and a publication have at most three.
const DEPTH_MAX: usize = 8;

/// Returns true if a folder with this path may contain objects of a store. Other folders are not
/// listed.
pub(crate) fn is_folder_of_a_store(path: &str) -> bool {
    of_a_store(path).is_some() && path.split('/').count() <= DEPTH_MAX
}

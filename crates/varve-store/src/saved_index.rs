//! The saved index: the files in `index/` that save an opening the reading of all directories.
//!
//! It owns no state. It names, reads, removes and spreads the files, and records which part of the
//! log an index covers.
//!
//! Always true:
//! - The saved index is a hint. Everything in it is used only after the log has confirmed it.
//!   Without it an opening reads the directories.
//! - Before an arena is replaced, a saved index that covers it is removed, or covers it no longer.

mod checkpoint_file;
mod choose_index;
mod coverage;
mod disk_index;
mod index_folders;

pub(crate) use checkpoint_file::{
    LoadCheckpointError, checkpoint_key, file as checkpoint_file, load as load_checkpoint,
};
pub use choose_index::{ChooseIndexError, ChoosePlacesError, choose_index, choose_index_places};
pub(crate) use coverage::{Coverage, CoveredParts, RootsInSight};
pub(crate) use disk_index::{
    empty as empty_disk_index, load as load_disk_index, session as disk_index_session, summary_file,
};
pub use index_folders::{IndexPlace, index_places};

use std::io;

use varve_world::{FileName, Storage};

/// Removes the saved index, of either kind. It must not outlive an arena that it knows. On failure
/// returns the file that cannot be removed, and the reason.
pub(crate) fn remove_saved_index(storage: &dyn Storage) -> Result<(), (FileName, io::Error)> {
    remove_durably(storage, checkpoint_file())?;
    remove_durably(storage, summary_file())
}

/// Removes a hint, if it is there, so that no power cut brings it back.
pub(crate) fn remove_durably(storage: &dyn Storage, file: FileName) -> Result<(), (FileName, io::Error)> {
    let removed = storage.remove_if_there(&file);
    let durable = removed.and_then(|was| if was { storage.sync_folder(file.folder()) } else { Ok(()) });
    durable.map_err(|error| (file, error))
}

//! The hints after a refused restore.

use std::io;

use varve_block::causes;
use varve_content::folder::RestoreFolderError;
use varve_content::image::RestoreImageError;

/// The hint for an existing destination, beginning with the option that changes least.
pub(super) const EXISTS: &str = "--dry-run shows the changes; --overwrite if-changed replaces files that differ, and removes nothing; a / at the end of the destination restores into that folder, under its own name";
const NO_FOLDER: &str =
    "make the folder first, such as with `mkdir -p`: restore makes only the last part of the destination";
const CLOSED: &str = "the entries to be replaced have folders that you cannot change: `chmod -R u+rwX` allows it for your own; or restore elsewhere";

/// Returns the hint for a folder or file that was not restored.
pub(super) fn of_folder(error: &RestoreFolderError) -> Option<&'static str> {
    match error {
        RestoreFolderError::Exists { .. } => Some(EXISTS),
        RestoreFolderError::Destination { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => Some(NO_FOLDER),
            // Folders that are to be replaced are closed to this user. If the folder above the
            // destination is closed, the error here is the system's own, of another kind.
            io::ErrorKind::Other => {
                let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
                causes(source).any(|cause| cause.downcast_ref().is_some_and(is_closed)).then_some(CLOSED)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the hint for an image that was not restored.
pub(super) fn of_image(error: &RestoreImageError) -> Option<&'static str> {
    match error {
        RestoreImageError::Exists { .. } => Some(EXISTS),
        RestoreImageError::Write { source, .. } => of_missing_folder(source),
        _ => None,
    }
}

/// Returns the hint for a folder above the destination that does not exist.
pub(super) fn of_missing_folder(error: &io::Error) -> Option<&'static str> {
    (error.kind() == io::ErrorKind::NotFound).then_some(NO_FOLDER)
}

//! From a volume to its files: the one place that knows which reader reads what.

use std::sync::Arc;

use crate::content::VolumeContent;
use crate::disk::Volume;
use crate::{FileSystem, FileSystemError};

/// Opens the files of a volume.
pub(crate) fn file_system(volume: &Volume) -> Result<Arc<dyn FileSystem>, FileSystemError> {
    let unreadable = |feature: String| {
        Err(FileSystemError::Unsupported { what: format!("volume {}", volume.name()), feature })
    };
    match volume.content() {
        // Each reader has an arm here: `FileSystemKind::Fat => Ok(Arc::new(Fat::open(volume.read())?))`.
        VolumeContent::FileSystem(kind) => unreadable(format!("the file system {}", kind.name())),
        content => unreadable(format!("files in what is {content}")),
    }
}

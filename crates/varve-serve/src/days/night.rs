//! One snapshot, opened to be looked into.

use std::sync::{Arc, OnceLock};

use varve_archive::{FolderFiles, FolderPages, Snapshot, SnapshotContent};
use varve_block::BlockStore;
use varve_image::{FileId, FileSystemError};

use super::number::number;

/// A snapshot of which something was shown. Holds little: what takes memory is shared by all nights, or opened again.
pub(super) struct Night {
    pub(super) snapshot: Snapshot,
    /// Mixed into the numbers of its files.
    key: [u8; 32],
    folder: OnceLock<FolderFiles>,
}

impl Night {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        let key = blake3::derive_key("varve 1 numbers of files in days", &snapshot.id.0);
        Self { snapshot, key, folder: OnceLock::new() }
    }

    /// Its files, if it is a snapshot of a folder.
    pub(super) fn folder(
        &self,
        blocks: &Arc<dyn BlockStore>,
        pages: &Arc<FolderPages>,
    ) -> Option<&FolderFiles> {
        let SnapshotContent::Folder(root) = &self.snapshot.content else { return None };
        let open =
            || FolderFiles::new(Arc::clone(blocks), Arc::clone(pages), self.snapshot.id, (**root).clone());
        Some(self.folder.get_or_init(open))
    }

    /// The number, in the tree of days, of a file in one of its parts.
    pub(super) fn outer_id(&self, part: u32, file: FileId) -> FileId {
        number(&self.key, &[&part.to_le_bytes(), &file.0.to_le_bytes()])
    }

    /// The same error, with the snapshot that it was met in.
    pub(super) fn name_error(&self, part: &str, error: FileSystemError) -> FileSystemError {
        let place = |what: String| format!("{what} in {}{part}", self.name());
        match error {
            FileSystemError::Read { what, source } => FileSystemError::Read { what: place(what), source },
            FileSystemError::Damaged { what, problem } => {
                FileSystemError::Damaged { what: place(what), problem }
            }
            FileSystemError::Absent { what } => FileSystemError::Absent { what: place(what) },
            FileSystemError::Unsupported { what, feature } => {
                FileSystemError::Unsupported { what: place(what), feature }
            }
        }
    }

    /// What people call it.
    pub(super) fn name(&self) -> String {
        let id = self.snapshot.id.to_string();
        format!("snapshot {} ({})", self.snapshot.name, id.get(..8).unwrap_or(&id))
    }
}

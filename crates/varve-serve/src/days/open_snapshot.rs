//! One snapshot, opened for access.

use std::sync::{Arc, OnceLock};

use varve_archive::{Snapshot, SnapshotContent};
use varve_block::BlockStore;
use varve_content::folder::{FolderFiles, FolderPages};
use varve_image::{FileId, FileSystemError};

use super::number::number;

/// A snapshot that was accessed. It holds little memory: large structures are shared by all
/// snapshots, or are opened on demand.
pub(super) struct OpenSnapshot {
    pub(super) snapshot: Snapshot,
    /// Mixed into the numbers of the snapshot's files.
    key: [u8; 32],
    folder: OnceLock<FolderFiles>,
}

impl OpenSnapshot {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        let key = blake3::derive_key("varve 1 numbers of files in days", &snapshot.id.0);
        Self { snapshot, key, folder: OnceLock::new() }
    }

    /// The files of a snapshot of a folder; `None` for an image.
    pub(super) fn folder(
        &self,
        blocks: &Arc<dyn BlockStore>,
        pages: &Arc<FolderPages>,
    ) -> Option<&FolderFiles> {
        let SnapshotContent::Folder(root) = &self.snapshot.content else { return None };
        let open =
            || FolderFiles::new(Arc::clone(blocks), Arc::clone(pages), self.snapshot.id.0, (**root).clone());
        Some(self.folder.get_or_init(open))
    }

    /// The number, in the tree of days, of a file in one of the parts of the snapshot.
    pub(super) fn outer_id(&self, part: u32, file: FileId) -> FileId {
        number(&self.key, &[&part.to_le_bytes(), &file.0.to_le_bytes()])
    }

    /// Adds the name of the snapshot to an error.
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

    /// The name of the snapshot, for messages.
    pub(super) fn name(&self) -> String {
        let id = self.snapshot.id.to_string();
        format!("snapshot {} ({})", self.snapshot.name, id.get(..8).unwrap_or(&id))
    }
}

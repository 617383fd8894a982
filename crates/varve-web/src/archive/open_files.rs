//! The files of a snapshot, or of a disk inside one, open for reading.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_archive::{OpenedSnapshot, Snapshot, SnapshotContent};
use varve_block::BlockStore;
use varve_content::folder::StoredFiles;
use varve_content::image::CachedBlocks;
use varve_content::{Files, ImageFiles};
use varve_tree::Entry;

/// Disks that stay open after a request. An open disk holds tables of its file systems.
const DISK_COUNT: usize = 8;
/// The memory for decompressed blocks, in bytes of leaves.
const LEAVES_BYTES: u64 = 8 << 20;

/// The files of a folder, or of a disk.
#[derive(Clone)]
pub(crate) enum OpenFiles {
    Stored(Arc<dyn BlockStore>),
    Disk(Arc<ImageFiles>),
}

impl OpenFiles {
    /// Passes the files to `read`.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&dyn Files) -> T) -> T {
        match self {
            Self::Stored(blocks) => read(&StoredFiles::new(&**blocks)),
            Self::Disk(disk) => read(&**disk),
        }
    }
}

/// Opens the files of snapshots, and keeps the disks that were used last.
pub(crate) struct FileOpener {
    cached: Arc<CachedBlocks>,
    /// The disk that was used last comes last.
    disks: Mutex<Vec<(Entry, Arc<ImageFiles>)>>,
}

impl FileOpener {
    pub(crate) fn new(blocks: Arc<dyn BlockStore>) -> Self {
        let cached = Arc::new(CachedBlocks::with_leaves_bytes(blocks, LEAVES_BYTES));
        Self { cached, disks: Mutex::default() }
    }

    /// The files of archived folders.
    pub(crate) fn folder(&self) -> OpenFiles {
        OpenFiles::Stored(Arc::clone(&self.cached) as _)
    }

    /// Opens a snapshot for one walk. A disk that is opened so is not kept.
    pub(crate) fn for_a_walk(&self, snapshot: &Snapshot) -> OpenedSnapshot<'_> {
        match &snapshot.content {
            SnapshotContent::Folder(root) => {
                OpenedSnapshot { files: Arc::new(StoredFiles::new(&*self.cached)), root: (**root).clone() }
            }
            SnapshotContent::Image(entry) => {
                let disk = ImageFiles::open(Arc::clone(&self.cached), entry);
                OpenedSnapshot { root: disk.root(), files: Arc::new(disk) }
            }
        }
    }

    /// The files of a disk whose bytes are at `entry`.
    pub(crate) fn disk(&self, entry: &Entry) -> Arc<ImageFiles> {
        let mut disks = self.disks.lock();
        let known = disks.iter().position(|(one, _)| one == entry);
        let disk = match known {
            Some(at) => disks.remove(at).1,
            None => Arc::new(ImageFiles::open(Arc::clone(&self.cached), entry)),
        };
        if disks.len() >= DISK_COUNT {
            disks.remove(0);
        }
        disks.push((*entry, Arc::clone(&disk)));
        disk
    }
}

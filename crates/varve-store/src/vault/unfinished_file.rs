//! A view of an arena's unfinished successor as if it were in place already, and of an arena on a
//! disk that cannot read all of it.

use std::io;
use std::sync::Arc;

use varve_log::ArenaId;
use varve_world::{FileLock, FileName, LockError, Storage};

/// The smallest unit that a disk loses.
const SECTOR_BYTES: usize = 4096;

/// A folder in which `arena` is `file`. It is read-only, and unreadable sectors are zeros.
pub struct UnfinishedFile {
    pub storage: Arc<dyn Storage>,
    pub arena: ArenaId,
    /// The file that is read in place of the arena's own.
    pub file: FileName,
}

impl UnfinishedFile {
    fn meant<'a>(&'a self, file: &'a FileName) -> &'a FileName {
        if *file == self.arena.file_name() { &self.file } else { file }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this view of the store is read-only"))
}

impl Storage for UnfinishedFile {
    fn create(&self, _: &FileName) -> io::Result<()> {
        refused()
    }

    fn append(&self, _: &FileName, _: &[u8]) -> io::Result<u64> {
        refused()
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self.meant(file);
        match self.storage.read_at(file, offset, into) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound) => {
                for (sector, offset) in into.chunks_mut(SECTOR_BYTES).zip((offset..).step_by(SECTOR_BYTES)) {
                    if self.storage.read_at(file, offset, sector).is_err() {
                        sector.fill(0);
                    }
                }
                Ok(())
            }
            other => other,
        }
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.storage.length(self.meant(file))
    }

    fn truncate(&self, _: &FileName, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync_soon(&self, _: &FileName) {}

    fn sync(&self, _: &FileName) -> io::Result<()> {
        refused()
    }

    fn sync_folder(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: &FileName, _: &FileName) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &FileName) -> io::Result<()> {
        refused()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.storage.list(folder)
    }

    fn lock(&self, file: &FileName, _: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Storage { file: file.clone(), source: io::ErrorKind::Unsupported.into() })
    }
}

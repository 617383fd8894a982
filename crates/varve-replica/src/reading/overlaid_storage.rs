//! A read-only storage in which one file has another name, or a part of it is in memory.

use std::io;
use std::sync::Arc;

use varve_log::{ArenaId, FilePart};
use varve_world::{FileLock, FileName, LockError, Storage};

/// Reads one file from its other place, and the rest from the storage below.
pub(crate) struct OverlaidStorage {
    pub(crate) below: Arc<dyn Storage>,
    pub(crate) file: FileName,
    /// The name of the file below.
    pub(crate) kept_as: FileName,
    /// The part of the file in memory.
    pub(crate) part: FilePart,
}

impl OverlaidStorage {
    /// Makes a view of `below` with bytes of an arena in memory.
    pub(crate) fn in_memory(below: &Arc<dyn Storage>, arena: ArenaId, part: FilePart) -> Self {
        let file = arena.file_name();
        Self { below: Arc::clone(below), kept_as: file.clone(), file, part }
    }

    fn kept_as<'a>(&'a self, file: &'a FileName) -> &'a FileName {
        if *file == self.file { &self.kept_as } else { file }
    }
}

impl Storage for OverlaidStorage {
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if *file != self.file {
            return self.below.read_at(file, offset, into);
        }
        if !self.part.covers(offset, into.len()) {
            self.below.read_at(&self.kept_as, offset, into)?;
        }
        // A reader that reads past the part in memory must not see two states of it.
        self.part.put_over(offset, into);
        Ok(())
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.below.length(self.kept_as(file))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.below.list(folder)
    }

    fn create(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn append(&self, _: &FileName, _: &[u8]) -> io::Result<u64> {
        Err(read_only())
    }

    fn truncate(&self, _: &FileName, _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_soon(&self, _: &FileName) {}

    fn sync(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_folder(&self, _: &str) -> io::Result<()> {
        Err(read_only())
    }

    fn rename(&self, _: &FileName, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn remove(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn lock(&self, file: &FileName, _: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Storage { file: file.clone(), source: read_only() })
    }
}

fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use varve_world::MemoryStorage;

    use super::*;

    #[test]
    fn what_is_held_is_read_wherever_a_reading_begins_or_ends() {
        let below: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let file = ArenaId(3).file_name();
        below.replace(&file, b"abcdefghij").unwrap();
        let held =
            OverlaidStorage::in_memory(&below, ArenaId(3), FilePart::new(3, Bytes::from_static(b"XYZ")));
        for start in 0..10 {
            for end in start..=10 {
                let mut read = vec![0; end - start];
                held.read_at(&file, start as u64, &mut read).unwrap();
                assert_eq!(read, b"abcXYZghij"[start..end]);
            }
        }
        assert!(held.read_at(&file, 5, &mut [0; 6]).is_err(), "the file ends before");
    }
}

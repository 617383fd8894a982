//! Counts the operations that the engine requests of its disk.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use varve_world::{FileName, Storage, forward_storage};

/// The operations of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiskWork {
    /// Reads and writes that did not start at the end of the operation before, in the same file.
    pub seeks: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Sync operations on files and folders.
    pub syncs: u64,
}

#[derive(Debug, Default)]
struct CountedState {
    work: DiskWork,
    /// The position of a disk head: the file and offset at which the last operation ended.
    head: Option<(FileName, u64)>,
}

impl CountedState {
    fn move_to(&mut self, file: &FileName, start: u64, bytes: u64) {
        let stays = self.head.as_ref().is_some_and(|(at, end)| at == file && *end == start);
        self.work.seeks += u64::from(!stays);
        self.head = Some((file.clone(), start + bytes));
    }
}

/// A storage that counts its operations.
pub struct CountedStorage {
    inner: Arc<dyn Storage>,
    state: Mutex<CountedState>,
}

impl CountedStorage {
    /// Counts the operations on `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// Returns the operations since the last call.
    #[must_use]
    pub fn take(&self) -> DiskWork {
        std::mem::take(&mut self.state.lock().work)
    }
}

impl Storage for CountedStorage {
    forward_storage!(
        inner: create, length, truncate, sync_soon, rename, remove, remove_and_free_soon, list, lock
    );

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let start = self.inner.append(file, bytes)?;
        let mut state = self.state.lock();
        state.work.writes += 1;
        state.work.written_bytes += bytes.len() as u64;
        state.move_to(file, start, bytes.len() as u64);
        Ok(start)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(file, offset, into)?;
        let mut state = self.state.lock();
        state.work.reads += 1;
        state.work.read_bytes += into.len() as u64;
        state.move_to(file, offset, into.len() as u64);
        Ok(())
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.state.lock().work.syncs += 1;
        self.inner.sync(file)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.state.lock().work.syncs += 1;
        self.inner.sync_folder(folder)
    }
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::*;

    #[test]
    fn what_goes_on_where_it_ended_is_no_seek() {
        let storage = CountedStorage::new(Arc::new(MemoryStorage::default()));
        let [one, other] = ["one", "other"].map(|name| FileName::new(name).unwrap());
        for file in [&one, &other] {
            storage.create(file).unwrap();
        }
        storage.append(&one, &[1; 10]).unwrap();
        storage.append(&one, &[2; 10]).unwrap();
        storage.append(&other, &[3; 5]).unwrap();
        let wrote = DiskWork { seeks: 2, writes: 3, written_bytes: 25, ..DiskWork::default() };
        assert_eq!(storage.take(), wrote);
        let mut piece = [0; 4];
        for offset in [0, 4, 12] {
            storage.read_at(&one, offset, &mut piece).unwrap();
        }
        assert_eq!(storage.take(), DiskWork { seeks: 2, reads: 3, read_bytes: 12, ..DiskWork::default() });
        assert!(storage.read_at(&one, 18, &mut piece).is_err());
        assert_eq!(storage.take(), DiskWork::default());
    }
}

//! A storage in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::storage::{FileLock, FileName, FreeSpace, LockError, Storage};

/// A storage that keeps files in a map. Everything is durable at once. Clones share the files, so
/// that a test can reopen a store.
///
/// A limit on the total size simulates a full disk.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    inside: Arc<Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    files: BTreeMap<FileName, Vec<u8>>,
    locks: BTreeMap<FileName, String>,
    bytes_max: Option<usize>,
    others: BTreeMap<String, MemoryStorage>,
}

impl MemoryStorage {
    /// An empty storage.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The names of all files, in order.
    #[must_use]
    pub fn names(&self) -> BTreeSet<FileName> {
        self.inside.lock().files.keys().cloned().collect()
    }

    /// The contents of a file; `None` if it does not exist.
    #[must_use]
    pub fn contents(&self, file: &FileName) -> Option<Vec<u8>> {
        self.inside.lock().files.get(file).cloned()
    }

    /// Replaces the contents of a file directly, as an attacker or a failing disk would.
    pub fn set_contents(&self, file: &FileName, contents: Vec<u8>) {
        self.inside.lock().files.insert(file.clone(), contents);
    }

    /// Limits the total size of the files: appends beyond it fail. `None` removes the limit.
    pub fn set_bytes_max(&self, bytes_max: Option<usize>) {
        self.inside.lock().bytes_max = bytes_max;
    }

    /// Sets the storage at the path of another folder. With `None`, its disk is missing.
    pub fn set_other_folder(&self, path: &str, folder: Option<Self>) {
        let others = &mut self.inside.lock().others;
        match folder {
            Some(folder) => drop(others.insert(path.into(), folder)),
            None => drop(others.remove(path)),
        }
    }

    /// Copies the current files, without locks, into an independent storage: the state that another
    /// process finds after a crash of this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        let files = self.inside.lock().files.clone();
        Self { inside: Arc::new(Mutex::new(MemoryState { files, ..MemoryState::default() })) }
    }
}

fn not_found(file: &FileName) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{file} does not exist"))
}

impl MemoryState {
    fn used_bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    fn file(&mut self, file: &FileName) -> io::Result<&mut Vec<u8>> {
        self.files.get_mut(file).ok_or_else(|| not_found(file))
    }
}

impl Storage for MemoryStorage {
    fn create(&self, file: &FileName) -> io::Result<()> {
        let mut inside = self.inside.lock();
        if inside.files.contains_key(file) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{file} exists")));
        }
        inside.files.insert(file.clone(), Vec::new());
        Ok(())
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let mut inside = self.inside.lock();
        if let Some(bytes_max) = inside.bytes_max {
            let room = bytes_max.saturating_sub(inside.used_bytes());
            if room < bytes.len() {
                inside.file(file)?.extend_from_slice(&bytes[..room]);
                return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"));
            }
        }
        let contents = inside.file(file)?;
        let offset = contents.len() as u64;
        contents.extend_from_slice(bytes);
        Ok(offset)
    }

    fn free_space(&self) -> io::Result<Option<FreeSpace>> {
        let inside = self.inside.lock();
        let space = |bytes_max: usize| FreeSpace {
            free_bytes: bytes_max.saturating_sub(inside.used_bytes()) as u64,
            total_bytes: bytes_max as u64,
        };
        Ok(inside.bytes_max.map(space))
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut inside = self.inside.lock();
        let contents = inside.file(file)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let piece = contents[from..].get(..into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(piece);
        Ok(())
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        Ok(self.inside.lock().file(file)?.len() as u64)
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        let mut inside = self.inside.lock();
        let contents = inside.file(file)?;
        if length > contents.len() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        contents.truncate(usize::try_from(length).map_err(io::Error::other)?);
        Ok(())
    }

    fn sync_soon(&self, _file: &FileName) {}

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.inside.lock().file(file).map(|_| ())
    }

    fn sync_folder(&self, _folder: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        let mut inside = self.inside.lock();
        let contents = inside.files.remove(from).ok_or_else(|| not_found(from))?;
        inside.files.insert(to.clone(), contents);
        Ok(())
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.inside.lock().files.remove(file).map(|_| ()).ok_or_else(|| not_found(file))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        Ok(self.inside.lock().files.keys().filter(|name| name.folder() == folder).cloned().collect())
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let mut inside = self.inside.lock();
        if let Some(holder) = inside.locks.get(file) {
            return Err(LockError::Held { holder: holder.clone() });
        }
        inside.locks.insert(file.clone(), holder.into());
        inside.files.insert(file.clone(), holder.as_bytes().to_vec());
        Ok(Box::new(MemoryLock { storage: self.clone(), file: file.clone() }))
    }

    fn other_folder(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        let folder = self.inside.lock().others.get(path).cloned();
        Ok(Arc::new(
            folder.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no {path}")))?,
        ))
    }
}

struct MemoryLock {
    storage: MemoryStorage,
    file: FileName,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.storage.inside.lock().locks.remove(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        crate::contract::check(&mut MemoryStorage::new);
    }

    #[test]
    fn a_full_disk_tears_the_append() {
        let storage = MemoryStorage::new();
        let file = FileName::new("a").unwrap();
        storage.create(&file).unwrap();
        storage.set_bytes_max(Some(3));
        assert_eq!(storage.append(&file, b"abcd").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(storage.contents(&file).unwrap(), b"abc");
    }
}

//! A storage that consists of a subfolder of another storage.

use std::io;
use std::sync::Arc;

use varve_world::{FileLock, FileName, LockError, Storage};

/// The files below `folder` in another storage.
pub(crate) struct SubfolderStorage {
    whole: Arc<dyn Storage>,
    folder: String,
}

impl SubfolderStorage {
    /// `folder` must be valid as a part of a [`FileName`].
    pub(crate) fn new(whole: Arc<dyn Storage>, folder: String) -> Self {
        Self { whole, folder }
    }

    fn file(&self, file: &FileName) -> FileName {
        FileName::new(&format!("{}/{file}", self.folder)).expect("both parts are good names")
    }

    fn folder(&self, folder: &str) -> String {
        if folder.is_empty() { self.folder.clone() } else { format!("{}/{folder}", self.folder) }
    }
}

impl Storage for SubfolderStorage {
    fn create(&self, file: &FileName) -> io::Result<()> {
        self.whole.create(&self.file(file))
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.whole.append(&self.file(file), bytes)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.whole.read_at(&self.file(file), offset, into)
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.whole.length(&self.file(file))
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.whole.truncate(&self.file(file), length)
    }

    fn sync_soon(&self, file: &FileName) {
        self.whole.sync_soon(&self.file(file));
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.whole.sync(&self.file(file))
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        let whole = self.folder(folder);
        self.whole.sync_folder(&whole)?;
        // The folder's own name is in its parent folder, and so on, up to the root of the storage.
        let mut above = whole.as_str();
        while let Some((parent, _)) = above.rsplit_once('/') {
            self.whole.sync_folder(parent)?;
            above = parent;
        }
        self.whole.sync_folder("")
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.whole.rename(&self.file(from), &self.file(to))
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.whole.remove(&self.file(file))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        let whole = self.whole.list(&self.folder(folder))?;
        let own =
            |file: FileName| FileName::new(file.as_str().strip_prefix(&self.folder)?.strip_prefix('/')?).ok();
        Ok(whole.into_iter().filter_map(own).collect())
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.whole.lock(&self.file(file), holder)
    }
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::*;

    #[test]
    fn it_is_a_storage_like_any_other() {
        varve_world::contract::check(&mut || {
            SubfolderStorage::new(Arc::new(MemoryStorage::new()), "slots/07".into())
        });
    }

    #[test]
    fn two_places_do_not_meet() {
        let whole: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let [one, other] =
            ["a/1", "a/10"].map(|folder| SubfolderStorage::new(Arc::clone(&whole), folder.into()));
        let file = FileName::new("x").unwrap();
        one.create(&file).unwrap();
        assert_eq!(one.list("").unwrap(), [file]);
        assert_eq!(other.list("").unwrap(), []);
    }
}

//! The lock of a store's one writer: the file `lock`, and the folder of the arenas.
//!
//! Other programs leave stale lock files, so somebody may remove `lock` while a writer works. The
//! next writer would then lock a new file. Nobody removes the folder of the arenas. The file is
//! locked as well: it names the holder, and earlier programs lock nothing else.

use varve_log::ArenaId;
use varve_world::{FileLock, FileName, LockError, Storage};

/// The most bytes of the note about the holder.
const HOLDER_BYTES_MAX: u64 = 1000;

/// The held lock.
pub struct WriterLock {
    _file: Box<dyn FileLock>,
    _folder: Box<dyn FileLock>,
}

impl FileLock for WriterLock {}

impl WriterLock {
    /// Takes the lock. Other processes are shown `holder`.
    ///
    /// # Errors
    /// [`LockError::Held`], without waiting, if another writer holds the store.
    pub fn take(storage: &dyn Storage, holder: &str) -> Result<Self, LockError> {
        let file = FileName::new("lock").expect("a plain name");
        // The folder comes first: a writer that is refused makes no new file.
        let folder = storage.lock_folder(ArenaId::FOLDER).map_err(|error| match error {
            LockError::Held { holder } => {
                let note = storage.read_whole(&file, HOLDER_BYTES_MAX).unwrap_or_default();
                let note = String::from_utf8_lossy(&note).trim().to_owned();
                LockError::Held { holder: if note.is_empty() { holder } else { note } }
            }
            other => other,
        })?;
        Ok(Self { _file: storage.lock(&file, holder)?, _folder: folder })
    }
}

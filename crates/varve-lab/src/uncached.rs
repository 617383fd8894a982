//! A storage whose reads bypass the page cache. Each read goes to the disk, as in a store far
//! larger than memory.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use varve_block::to_usize;
use varve_world::{FileName, PAGE_BYTES, PageBuffer, RealStorage, Storage, forward_storage, open_uncached};

/// Maximum number of open files.
const OPEN_FILES_MAX: usize = 256;

/// The files below a folder. Appends go through the page cache, and reach the disk when the file is
/// synced or read. Reads go directly to the disk, if the file system supports that.
pub struct UncachedStorage {
    inner: RealStorage,
    root: PathBuf,
    open_files: Mutex<BTreeMap<FileName, Arc<File>>>,
    /// Buffers for reading. Direct transfers need whole pages.
    buffers: Mutex<Vec<PageBuffer>>,
    is_direct: AtomicBool,
}

impl UncachedStorage {
    /// Creates a storage for the files below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            inner: RealStorage::new(root),
            root: root.into(),
            open_files: Mutex::default(),
            buffers: Mutex::default(),
            is_direct: AtomicBool::new(true),
        }
    }

    /// Reports whether all transfers so far have bypassed the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    /// Opens a file for direct access. Returns `None` if that is unsupported.
    fn open(&self, name: &FileName) -> io::Result<Option<Arc<File>>> {
        if let Some(open) = self.open_files.lock().get(name) {
            return Ok(Some(Arc::clone(open)));
        }
        let path = self.root.join(name.as_str());
        let Some(file) = open_uncached(&path, OpenOptions::new().read(true).write(true))? else {
            self.is_direct.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        let file = Arc::new(file);
        let mut open_files = self.open_files.lock();
        if open_files.len() >= OPEN_FILES_MAX {
            open_files.clear();
        }
        open_files.insert(name.clone(), Arc::clone(&file));
        Ok(Some(file))
    }

    fn forget(&self, name: &FileName) {
        self.open_files.lock().remove(name);
    }

    /// Lends a buffer that begins and ends at page boundaries.
    fn with_buffer<T>(&self, bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let buffers = || self.buffers.lock();
        let mut memory = buffers().pop().unwrap_or_default();
        if memory.len() < bytes {
            memory.resize(bytes);
        }
        let done = work(&mut memory[..bytes]);
        buffers().push(memory);
        done
    }
}

/// Reads until the buffer is full or the file ends, and returns the number of bytes.
fn read_pages(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    // A read that ends within a page has reached the end of the file.
    while done < into.len() && done.is_multiple_of(PAGE_BYTES) {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl Storage for UncachedStorage {
    forward_storage!(inner: append, length, truncate, sync_soon, sync, sync_folder, list, lock);

    fn create(&self, file: &FileName) -> io::Result<()> {
        self.forget(file);
        self.inner.create(file)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let Some(open) = self.open(file)? else { return self.inner.read_at(file, offset, into) };
        let page = PAGE_BYTES as u64;
        let first = offset / page * page;
        let skipped = to_usize(offset - first);
        let wanted = skipped + into.len();
        self.with_buffer(wanted.next_multiple_of(PAGE_BYTES), |pages| {
            let count = read_pages(&open, first, pages)?;
            if count < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into.copy_from_slice(&pages[skipped..wanted]);
            Ok(())
        })
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.inner.rename(from, to)?;
        self.forget(from);
        self.forget(to);
        Ok(())
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.forget(file);
        self.inner.remove(file)
    }

    fn remove_and_free_soon(&self, file: &FileName) -> io::Result<()> {
        self.forget(file);
        self.inner.remove_and_free_soon(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        let mut folders = Vec::new();
        varve_world::contract::check(&mut || {
            folders.push(tempfile::tempdir().unwrap());
            UncachedStorage::new(folders.last().unwrap().path())
        });
    }

    #[test]
    fn any_part_of_a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let storage = UncachedStorage::new(folder.path());
        let file = FileName::new("file").unwrap();
        storage.create(&file).unwrap();
        let contents: Vec<u8> = (0..30_011_u32).map(|number| (number % 251) as u8).collect();
        for piece in contents.chunks(7013) {
            storage.append(&file, piece).unwrap();
        }
        for (from, to) in
            [(0, 30_011), (0, 1), (4095, 4097), (5000, 29_999), (30_010, 30_011), (8192, 12_288)]
        {
            let mut piece = vec![0; to - from];
            storage.read_at(&file, from as u64, &mut piece).unwrap();
            assert!(piece == contents[from..to], "{from}..{to}");
        }
        assert!(storage.read_at(&file, 30_000, &mut [0; 12]).is_err());
    }
}

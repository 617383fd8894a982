//! A disk whose syncs take time, as on real disks, so that other threads run meanwhile.

use std::io;
use std::time::Duration;

use varve_world::{FileLock, FileName, LockError, Storage};

use crate::disk::Disk;

const PAGE_BYTES: usize = 4096;

/// A [`Disk`] on which each sync takes 0.2 ms of real time, and on which other threads can see an
/// append half done. File systems make only the writing of single pages atomic for readers.
#[derive(Debug, Clone)]
pub struct SlowDisk(pub Disk);

#[expect(clippy::disallowed_methods, reason = "what threads do at the same time is about time")]
fn slowly<T>(done: T) -> T {
    std::thread::sleep(Duration::from_micros(200));
    done
}

impl Storage for SlowDisk {
    fn create(&self, file: &FileName) -> io::Result<()> {
        self.0.create(file)
    }
    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let (begun, rest) = bytes.split_at(bytes.len() / PAGE_BYTES / 2 * PAGE_BYTES);
        if begun.is_empty() {
            return self.0.append(file, rest);
        }
        let start = self.0.append(file, begun)?;
        std::thread::yield_now();
        self.0.append(file, rest)?;
        Ok(start)
    }
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(file, offset, into)
    }
    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.0.length(file)
    }
    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.0.truncate(file, length)
    }
    fn sync_soon(&self, file: &FileName) {
        self.0.sync_soon(file);
    }
    fn sync(&self, file: &FileName) -> io::Result<()> {
        slowly(self.0.sync(file))
    }
    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        slowly(self.0.sync_folder(folder))
    }
    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.0.remove(file)
    }
    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.0.list(folder)
    }
    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.0.lock(file, holder)
    }
}

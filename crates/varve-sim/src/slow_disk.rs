//! A disk whose syncs take time, as on real disks, so that other threads run meanwhile.

use std::io;
use std::time::Duration;

use varve_world::{FileName, Storage, forward_storage};

use crate::disk::SimDisk;

const PAGE_BYTES: usize = 4096;

/// A [`SimDisk`] on which each sync takes 0.2 ms of real time, and on which other threads can see
/// an append half done. File systems make only the writing of single pages atomic for readers.
#[derive(Debug, Clone)]
pub struct SlowDisk(pub SimDisk);

#[expect(clippy::disallowed_methods, reason = "the concurrency of threads depends on time")]
fn slowly<T>(done: T) -> T {
    std::thread::sleep(Duration::from_micros(200));
    done
}

impl Storage for SlowDisk {
    forward_storage!(0: create, read_at, length, truncate, sync_soon, rename, remove, list, lock);

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
    fn sync(&self, file: &FileName) -> io::Result<()> {
        slowly(self.0.sync(file))
    }
    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        slowly(self.0.sync_folder(folder))
    }
}

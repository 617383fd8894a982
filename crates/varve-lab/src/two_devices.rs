//! A storage on two devices: one for the index, and one for the log and all else.

use std::io;
use std::sync::Arc;

use varve_sim::{DeviceProfile, EmulatedStorage, PageCacheLimits, TimedStorage, VirtualClock};
use varve_world::{FileName, MemoryStorage, Storage, forward_storage};

/// Routes each file to the timed storage of its device. Both have the same files.
pub(crate) struct TwoDevices {
    pub(crate) log: TimedStorage,
    pub(crate) index: TimedStorage,
}

impl TwoDevices {
    /// Makes an empty storage, and its clock.
    pub(crate) fn new(
        log: &DeviceProfile,
        index: &DeviceProfile,
        log_cache: PageCacheLimits,
        index_cache: PageCacheLimits,
    ) -> (Arc<Self>, Arc<VirtualClock>) {
        let clock = Arc::new(VirtualClock::new());
        let bytes: Arc<dyn Storage> = Arc::new(EmulatedStorage::new(Arc::new(MemoryStorage::new())));
        let on = |device, limits| TimedStorage::new(Arc::clone(&bytes), Arc::clone(&clock), device, limits);
        (Arc::new(Self { log: on(log, log_cache), index: on(index, index_cache) }), clock)
    }

    fn of(&self, file: &FileName) -> &TimedStorage {
        if file.as_str().starts_with("index/") { &self.index } else { &self.log }
    }
}

impl Storage for TwoDevices {
    forward_storage!(log: sync_folder, list);

    fn create(&self, file: &FileName) -> io::Result<()> {
        self.of(file).create(file)
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.of(file).append(file, bytes)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.of(file).read_at(file, offset, into)
    }

    fn read_uncached_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.of(file).read_uncached_at(file, offset, into)
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.of(file).length(file)
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.of(file).truncate(file, length)
    }

    fn sync_soon(&self, file: &FileName) {
        self.of(file).sync_soon(file);
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.of(file).sync(file)
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.of(to).rename(from, to)
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.of(file).remove(file)
    }

    fn lock(
        &self,
        file: &FileName,
        holder: &str,
    ) -> Result<Box<dyn varve_world::FileLock>, varve_world::LockError> {
        self.of(file).lock(file, holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        let device = DeviceProfile::known("mems-first").unwrap();
        let none = PageCacheLimits::default();
        varve_world::contract::check(&mut || {
            let (storage, _) = TwoDevices::new(&device, &device, none, none);
            Arc::into_inner(storage).unwrap()
        });
    }
}

//! A storage whose transfers take virtual time.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::to_usize;
use varve_world::{FileName, Storage, forward_storage};

use super::baton::Baton;
use super::clock::VirtualClock;
use super::device::DeviceProfile;
use super::page_cache::PageCacheLimits;
use super::schedule::DeviceTimes;
use super::state::TimedState;

/// A storage in front of another one, which has the bytes. Appends fill a modelled page cache, and
/// wait when it is full. Syncs wait for the device. Reads wait for their turn, unless the page
/// cache has the data. Names and locks take no time.
pub struct TimedStorage {
    inner: Arc<dyn Storage>,
    clock: Arc<VirtualClock>,
    baton: Arc<Baton>,
    state: Arc<Mutex<TimedState>>,
}

impl TimedStorage {
    /// Puts the files of `inner` on a device. `inner` must be empty.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Storage>,
        clock: Arc<VirtualClock>,
        profile: &DeviceProfile,
        limits: PageCacheLimits,
    ) -> Self {
        let baton = Arc::new(Baton::new(Arc::clone(&clock)));
        Self::with_baton(inner, clock, profile, limits, baton)
    }

    pub(super) fn with_baton(
        inner: Arc<dyn Storage>,
        clock: Arc<VirtualClock>,
        profile: &DeviceProfile,
        limits: PageCacheLimits,
        baton: Arc<Baton>,
    ) -> Self {
        let state = Arc::new(Mutex::new(TimedState::new(profile, limits)));
        Self { inner, clock, baton, state }
    }

    /// Returns the work of the device since the last call: for the files of the index, and for the
    /// log and all others.
    #[must_use]
    pub fn take_times(&self) -> [DeviceTimes; 2] {
        self.state.lock().take_times()
    }

    /// Empties the page cache of data that needs no writing.
    pub fn forget(&self) {
        self.state.lock().forget();
    }

    fn write(&self, file: &FileName, range: Range<u64>) {
        if !range.is_empty() {
            let end = self.state.lock().write(self.clock.nanoseconds(), file, range);
            self.clock.wait_until(end);
        }
    }

    /// Takes the time of a read, and zeroes the bytes that the device has lost.
    fn read(&self, file: &FileName, offset: u64, into: &mut [u8], is_cached: bool) {
        let range = offset..offset + into.len() as u64;
        if range.is_empty() {
            return;
        }
        let missing = self.state.lock().missing(file, &range, is_cached);
        if let Some(read) = missing {
            self.baton.read(&self.state, read);
        }
        for lost in self.state.lock().lost_in(file, &range) {
            into[to_usize(lost.start - offset)..to_usize(lost.end - offset)].fill(0);
        }
    }
}

impl Storage for TimedStorage {
    forward_storage!(inner: create, length, sync_folder, list, lock);

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let start = self.inner.append(file, bytes)?;
        self.state.lock().grow(file);
        self.write(file, start..start + bytes.len() as u64);
        Ok(start)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(file, offset, into)?;
        self.read(file, offset, into, true);
        Ok(())
    }

    fn read_uncached_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(file, offset, into)?;
        self.read(file, offset, into, false);
        Ok(())
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.inner.truncate(file, length)?;
        self.state.lock().truncate(file, length);
        Ok(())
    }

    fn sync_soon(&self, file: &FileName) {
        self.inner.sync_soon(file);
        self.state.lock().sync(self.clock.nanoseconds(), file);
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.inner.sync(file)?;
        let durable_at = self.state.lock().sync(self.clock.nanoseconds(), file);
        self.clock.wait_until(durable_at);
        Ok(())
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.inner.rename(from, to)?;
        self.state.lock().rename(from, to);
        Ok(())
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.inner.remove(file)?;
        self.state.lock().remove(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use varve_world::{Clock as _, MemoryStorage, Timestamp};

    use super::*;
    use crate::timed::device::ConstantDisk;

    const MILLISECOND: u64 = 1_000_000;

    /// A seek takes 10 ms, a kilobyte is read in 1 ms and written in 2 ms.
    fn disk(limits: PageCacheLimits) -> (TimedStorage, Arc<VirtualClock>) {
        let disk = ConstantDisk { seek_ms: 10.0, read_bytes_per_second: 1e6, write_bytes_per_second: 0.5e6 };
        let clock = Arc::new(VirtualClock::new());
        let profile = DeviceProfile::constant("test", "made up", disk);
        (TimedStorage::new(Arc::new(MemoryStorage::new()), Arc::clone(&clock), &profile, limits), clock)
    }

    fn file(storage: &TimedStorage, name: &str) -> FileName {
        let name = FileName::new(name).unwrap();
        storage.create(&name).unwrap();
        name
    }

    #[test]
    fn keeps_the_contract() {
        varve_world::contract::check(&mut || disk(PageCacheLimits::default()).0);
        let limits = PageCacheLimits { dirty_bytes: 10, clean_bytes: 1 << 20 };
        varve_world::contract::check(&mut || disk(limits).0);
    }

    #[test]
    fn without_a_page_cache_each_access_takes_its_time() {
        let (storage, clock) = disk(PageCacheLimits::default());
        let (log, index) = (file(&storage, "arenas/1"), file(&storage, "index/1"));
        storage.append(&log, &[0; 1000]).unwrap();
        assert_eq!(clock.nanoseconds(), 12 * MILLISECOND);
        storage.append(&log, &[0; 1000]).unwrap();
        assert_eq!(clock.nanoseconds(), 14 * MILLISECOND, "it goes on where it was");
        storage.append(&index, &[0; 500]).unwrap();
        assert_eq!(clock.nanoseconds(), 25 * MILLISECOND);
        storage.read_at(&log, 0, &mut [0; 1000]).unwrap();
        storage.sync(&log).unwrap();
        assert_eq!(clock.nanoseconds(), 36 * MILLISECOND);
        let [of_index, of_log] = storage.take_times();
        assert_eq!((of_index.seeks, of_index.writing, of_index.written_bytes), (1, MILLISECOND, 500));
        assert_eq!((of_log.seeks, of_log.writes, of_log.reads), (2, 2, 1));
        assert_eq!((of_log.seeking, of_log.reading), (20 * MILLISECOND, MILLISECOND));
        assert_eq!(storage.take_times(), [DeviceTimes::default(); 2]);
    }

    #[test]
    fn with_a_page_cache_only_a_sync_or_a_full_cache_waits() {
        let limits = PageCacheLimits { dirty_bytes: 4000, clean_bytes: 1 << 20 };
        let (storage, clock) = disk(limits);
        let log = file(&storage, "arenas/1");
        storage.append(&log, &[0; 1000]).unwrap();
        storage.read_at(&log, 0, &mut [0; 1000]).unwrap();
        assert_eq!(clock.nanoseconds(), 0, "it waits in memory");
        storage.append(&log, &[0; 2000]).unwrap();
        assert_eq!(clock.nanoseconds(), 0, "it is on its way, and there is room");
        storage.append(&log, &[0; 2000]).unwrap();
        assert_eq!(clock.nanoseconds(), 16 * MILLISECOND, "the first 3000 bytes made room");
        storage.sync(&log).unwrap();
        assert_eq!(clock.nanoseconds(), 20 * MILLISECOND);
        storage.read_at(&log, 0, &mut [0; 5000]).unwrap();
        assert_eq!(clock.now(), Timestamp(20_000_000), "what was written is still in memory");
        storage.read_uncached_at(&log, 0, &mut [0; 5000]).unwrap();
        assert_eq!(clock.nanoseconds(), 35 * MILLISECOND);
        storage.forget();
        storage.read_at(&log, 0, &mut [0; 1000]).unwrap();
        assert_eq!(clock.nanoseconds(), 45 * MILLISECOND + 4_096_000, "a whole page is read");
        storage.read_at(&log, 1000, &mut [0; 4000]).unwrap();
        assert_eq!(clock.nanoseconds(), 45 * MILLISECOND + 8_192_000, "and then the next one");
    }

    #[test]
    fn a_sync_in_the_background_saves_the_wait() {
        let (storage, clock) = disk(PageCacheLimits { dirty_bytes: 10_000, clean_bytes: 0 });
        let log = file(&storage, "arenas/1");
        storage.append(&log, &[0; 1000]).unwrap();
        storage.sync_soon(&log);
        clock.advance(7 * MILLISECOND);
        storage.sync(&log).unwrap();
        assert_eq!(clock.nanoseconds(), 12 * MILLISECOND);
    }
}

//! The space that new data leaves free on the store's file system.
//!
//! A disk that is full to its last byte could not be emptied: recovering an arena after a crash,
//! the catalog without the forgotten snapshots, and the successor of an arena that a collector
//! rewrites all need space before any is freed. So new data is refused earlier, as on a full disk,
//! and only catalogs and notes use the rest.

use std::io;

use varve_world::Storage;

use crate::arenas::address::ArenaMap;

/// The file system is asked again after this many appended bytes.
const ASKED_BYTES: u64 = 1 << 20;
/// The reserve beside that for two arenas: for catalogs, notes and pages.
const CATALOG_BYTES: u64 = 4 << 20;
/// The reserve is at most this part of the file system.
const LARGEST_PART: u64 = 16;

/// The check that new data leaves the reserve free.
#[derive(Debug)]
pub(crate) struct ReservedSpace {
    reserve_bytes: u64,
    /// The bytes that were appended since the file system was asked.
    unasked_bytes: u64,
    /// The number of callers that may use the reserve.
    user_count: u32,
}

impl ReservedSpace {
    /// The reserve has room for an arena that is recovered, and for one that is rewritten.
    pub(crate) fn new(map: ArenaMap) -> Self {
        let reserve_bytes = map.arena_bytes().saturating_mul(2).saturating_add(CATALOG_BYTES);
        Self { reserve_bytes, unasked_bytes: ASKED_BYTES, user_count: 0 }
    }

    pub(crate) fn begin_use(&mut self) {
        self.user_count = self.user_count.saturating_add(1);
    }

    pub(crate) fn end_use(&mut self) {
        self.user_count = self.user_count.saturating_sub(1);
    }

    /// Requires that an append of `bytes` leaves the reserve free. A storage that does not know how
    /// much is free refuses nothing.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`].
    pub(crate) fn require(&mut self, storage: &dyn Storage, bytes: u64) -> io::Result<()> {
        self.unasked_bytes = self.unasked_bytes.saturating_add(bytes);
        if self.user_count > 0 || self.unasked_bytes < ASKED_BYTES {
            return Ok(());
        }
        let Some(space) = storage.free_space().ok().flatten() else { return Ok(()) };
        let reserve_bytes = self.reserve_bytes.min(space.total_bytes / LARGEST_PART);
        if space.free_bytes < reserve_bytes.saturating_add(bytes) {
            let text = format!(
                "No space left: {} bytes are free, and {reserve_bytes} must stay free for `forget` and `gc`",
                space.free_bytes
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        self.unasked_bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::*;

    fn reserve() -> ReservedSpace {
        ReservedSpace::new(ArenaMap::new(1 << 20).expect("1 MiB is between the bounds"))
    }

    #[test]
    fn new_data_leaves_the_reserve_free() {
        let storage = MemoryStorage::new();
        let mut reserve = reserve();
        reserve.require(&storage, 1 << 40).expect("nothing is known about the disk");
        storage.set_bytes_max(Some(1 << 30));
        reserve.require(&storage, (1 << 30) - (6 << 20)).expect("it leaves the reserve free");
        let refused = reserve.require(&storage, (1 << 30) - (6 << 20) + 1).expect_err("it needs the reserve");
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        reserve.begin_use();
        reserve.require(&storage, (1 << 30) - 1).expect("a catalog may use it");
        reserve.end_use();
        reserve.require(&storage, (1 << 30) - 1).expect_err("the next data may not");
    }

    #[test]
    fn a_small_disk_has_a_small_reserve() {
        let storage = MemoryStorage::new();
        storage.set_bytes_max(Some(16 << 20));
        reserve().require(&storage, 15 << 20).expect("a sixteenth stays free");
        reserve().require(&storage, (15 << 20) + 1).expect_err("less stays free");
    }
}

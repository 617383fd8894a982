//! Addresses: arenas, offsets in arenas, and the map from log addresses to both.

use std::ops::Range;

use varve_block::LogAddress;
use varve_world::FileName;

use crate::records::granule::{GRANULE_BYTES, Granule};
use crate::records::record_sizes::RECORD_BYTES_MAX;

/// The ending of the file of an arena's successor.
const SUCCESSOR_SUFFIX: &str = ".next";

/// The number of an arena. Arenas are counted from 0 in the order in which they are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArenaId(pub u64);

impl ArenaId {
    /// Returns the name of the arena's file.
    #[must_use]
    pub fn file_name(self) -> FileName {
        FileName::new(&format!("{}/{:010}.arena", Self::FOLDER, self.0)).expect("digits make a good name")
    }

    /// Returns the arena of a file; `None` if the file is not an arena.
    #[must_use]
    pub fn of_file(file: &FileName) -> Option<Self> {
        let digits = file.as_str().strip_prefix(Self::FOLDER)?.strip_prefix('/')?.strip_suffix(".arena")?;
        let id = Self(digits.parse().ok()?);
        (id.file_name() == *file).then_some(id)
    }

    /// Returns the name of the file in which the arena's successor is made, and waits until the log
    /// has recorded it.
    #[must_use]
    pub fn successor_file_name(self) -> FileName {
        FileName::new(&format!("{}{SUCCESSOR_SUFFIX}", self.file_name())).expect("digits make a good name")
    }

    /// Returns the arena whose successor a file is; `None` if the file is none.
    #[must_use]
    pub fn of_successor_file(file: &FileName) -> Option<Self> {
        let arena_file = file.as_str().strip_suffix(SUCCESSOR_SUFFIX)?;
        Self::of_file(&FileName::new(arena_file).ok()?)
    }

    /// The folder of the arenas.
    pub const FOLDER: &'static str = "arenas";
}

impl std::fmt::Display for ArenaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Maps the log's addresses to arenas. Each arena has as many addresses as it has granules below
/// its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaMap {
    granules_per_arena: u64,
}

/// The most records that end beyond the limit of their arena: a clump that begins below it, the
/// page that names it, and two pages without blocks, which only carry the ledger.
const RECORDS_BEHIND_LIMIT: u64 = 4;

impl ArenaMap {
    /// The smallest limit of an arena.
    pub const ARENA_BYTES_MIN: u64 = 1 << 20;
    /// The largest limit of an arena.
    pub const ARENA_BYTES_MAX: u64 = 1 << 34;

    /// Makes the map for arenas in which no clump begins at or beyond `arena_bytes`. Returns `None`
    /// unless `arena_bytes` is a multiple of [`GRANULE_BYTES`] between [`Self::ARENA_BYTES_MIN`]
    /// and [`Self::ARENA_BYTES_MAX`].
    #[must_use]
    pub fn new(arena_bytes: u64) -> Option<Self> {
        let fits = (Self::ARENA_BYTES_MIN..=Self::ARENA_BYTES_MAX).contains(&arena_bytes);
        (fits && arena_bytes.is_multiple_of(GRANULE_BYTES))
            .then_some(Self { granules_per_arena: arena_bytes / GRANULE_BYTES })
    }

    /// Returns the limit of an arena in bytes.
    #[must_use]
    pub fn arena_bytes(self) -> u64 {
        self.granules_per_arena * GRANULE_BYTES
    }

    /// Returns the upper bound for the end of an arena's records, in bytes. The last clump begins
    /// below the limit. The clump and the pages after it may end beyond the limit.
    pub(crate) fn log_bytes_max(self) -> u64 {
        self.arena_bytes() + RECORDS_BEHIND_LIMIT * RECORD_BYTES_MAX as u64
    }

    /// Returns the greatest length of an arena's file. The records are followed by a row for each
    /// page and a footer. A row is shorter than a quarter of a granule, and a page takes at least
    /// one granule. The footer is shorter than a granule.
    #[must_use]
    pub fn file_bytes_max(self) -> u64 {
        let log_bytes = self.log_bytes_max();
        log_bytes + log_bytes / 4 + GRANULE_BYTES
    }

    /// Returns the address of a granule; `None` if it is beyond the arena's limit or beyond the
    /// last address.
    #[must_use]
    pub fn address(self, arena: ArenaId, granule: Granule) -> Option<LogAddress> {
        if u64::from(granule.0) >= self.granules_per_arena {
            return None;
        }
        let first = arena.0.checked_mul(self.granules_per_arena)?;
        LogAddress::new(first.checked_add(u64::from(granule.0))?)
    }

    /// Returns the granules of the log's addresses in an arena.
    #[must_use]
    pub fn granules_of(self, arena: ArenaId) -> Range<u64> {
        let first = arena.0.saturating_mul(self.granules_per_arena);
        first..first.saturating_add(self.granules_per_arena)
    }

    /// Returns the arena and the granule of a log address. There is no other way to compute them.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "an arena's limit keeps its granules below 2^27")]
    pub fn locate(self, address: LogAddress) -> (ArenaId, Granule) {
        let granule = address.granule() % self.granules_per_arena;
        (ArenaId(address.granule() / self.granules_per_arena), Granule(granule as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lead_to_arenas_and_back() {
        assert_eq!(ArenaId(7).file_name().as_str(), "arenas/0000000007.arena");
        assert_eq!(ArenaId::of_file(&ArenaId(12_345_678_901).file_name()), Some(ArenaId(12_345_678_901)));
        let successor = ArenaId(7).successor_file_name();
        assert_eq!(successor.as_str(), "arenas/0000000007.arena.next");
        assert_eq!(ArenaId::of_successor_file(&successor), Some(ArenaId(7)));
        assert_eq!(ArenaId::of_file(&successor), None);
        assert_eq!(ArenaId::of_successor_file(&ArenaId(7).file_name()), None);
        for foreign in ["arenas/7.arena", "arenas/0000000007.arena.new", "lock", "arenas/+000000007.arena"] {
            assert_eq!(
                FileName::new(foreign).ok().and_then(|file| ArenaId::of_file(&file)),
                None,
                "{foreign}"
            );
        }
    }

    #[test]
    fn addresses_lead_to_places_and_back() {
        let map = ArenaMap::new(1 << 20).unwrap();
        for (arena, granule) in [(0, 0), (0, 8191), (1, 0), (1000, 4)] {
            let address = map.address(ArenaId(arena), Granule(granule)).unwrap();
            assert_eq!(map.locate(address), (ArenaId(arena), Granule(granule)));
        }
        assert_eq!(map.address(ArenaId(0), Granule(8192)), None);
        assert_eq!(map.address(ArenaId(1 << 27), Granule(0)), None, "128 TiB is the end");
        assert_eq!(ArenaMap::new(1 << 19), None);
        assert_eq!(ArenaMap::new((1 << 20) + 1), None);
    }
}

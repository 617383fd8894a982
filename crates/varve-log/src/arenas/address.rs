//! Where things are: arenas, places in them, and how the log's addresses lead to both.

use varve_block::LogAddress;
use varve_world::FileName;

use crate::records::record_header::RECORD_BYTES_MAX;

/// Records begin at multiples of this many bytes, so that an address of 40 bits reaches through 128 TiB of log.
pub const GRANULE_BYTES: u64 = 128;

/// The number of an arena: they are counted from 0 as they are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArenaId(pub u64);

impl ArenaId {
    /// The arena's file.
    #[must_use]
    pub fn file_name(self) -> FileName {
        FileName::new(&format!("{}/{:010}.arena", Self::FOLDER, self.0)).expect("digits make a good name")
    }

    /// The arena whose file this is; `None` for any other file.
    #[must_use]
    pub fn of_file(file: &FileName) -> Option<Self> {
        let digits = file.as_str().strip_prefix(Self::FOLDER)?.strip_prefix('/')?.strip_suffix(".arena")?;
        let id = Self(digits.parse().ok()?);
        (id.file_name() == *file).then_some(id)
    }

    /// Where arenas are.
    pub const FOLDER: &'static str = "arenas";
}

impl std::fmt::Display for ArenaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in an arena, in units of [`GRANULE_BYTES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule(pub u32);

impl Granule {
    /// The place in bytes.
    #[must_use]
    pub fn byte_offset(self) -> u64 {
        u64::from(self.0) * GRANULE_BYTES
    }

    /// The first granule at or after a place in bytes; `None` where no arena reaches.
    #[must_use]
    pub fn at_or_after(byte_offset: u64) -> Option<Self> {
        u32::try_from(byte_offset.div_ceil(GRANULE_BYTES)).ok().map(Self)
    }
}

/// How the log's addresses are spread over arenas: each arena takes as many as it has granules below its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaMap {
    granules_per_arena: u64,
}

/// The most records that end behind the limit of their arena: a clump that begins below it, the page that names it, and two pages that name
/// nothing but what is sealed.
const RECORDS_BEHIND_LIMIT: u64 = 4;

impl ArenaMap {
    /// The smallest limit of an arena.
    pub const ARENA_BYTES_MIN: u64 = 1 << 20;
    /// The largest limit of an arena.
    pub const ARENA_BYTES_MAX: u64 = 1 << 34;

    /// The map for arenas in which no clump begins at or beyond `arena_bytes`; `None` unless that is a multiple of
    /// [`GRANULE_BYTES`] between [`Self::ARENA_BYTES_MIN`] and [`Self::ARENA_BYTES_MAX`].
    #[must_use]
    pub fn new(arena_bytes: u64) -> Option<Self> {
        let fits = (Self::ARENA_BYTES_MIN..=Self::ARENA_BYTES_MAX).contains(&arena_bytes);
        (fits && arena_bytes.is_multiple_of(GRANULE_BYTES))
            .then_some(Self { granules_per_arena: arena_bytes / GRANULE_BYTES })
    }

    /// Where arenas end, in bytes.
    #[must_use]
    pub fn arena_bytes(self) -> u64 {
        self.granules_per_arena * GRANULE_BYTES
    }

    /// No arena's records go on behind this. The last clump begins below the limit; it, and the pages that name it and those before it, may
    /// end behind it.
    #[must_use]
    pub fn log_bytes_max(self) -> u64 {
        self.arena_bytes() + RECORDS_BEHIND_LIMIT * RECORD_BYTES_MAX as u64
    }

    /// The longest file that an arena may have. Behind the records come a row for each page, which is shorter than a quarter of a granule, where
    /// a page is a granule at least; and a footer, which is shorter than a granule.
    #[must_use]
    pub fn file_bytes_max(self) -> u64 {
        let log_bytes = self.log_bytes_max();
        log_bytes + log_bytes / 4 + GRANULE_BYTES
    }

    /// The address of a place; `None` beyond the arena's limit, or beyond the end of any log.
    #[must_use]
    pub fn address(self, arena: ArenaId, granule: Granule) -> Option<LogAddress> {
        if u64::from(granule.0) >= self.granules_per_arena {
            return None;
        }
        let first = arena.0.checked_mul(self.granules_per_arena)?;
        LogAddress::new(first.checked_add(u64::from(granule.0))?)
    }

    /// The one way from a log address to a place in a file.
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

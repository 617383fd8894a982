//! The directories of the log: arenas' headers and keys, and directory pages. They name the blocks,
//! so that finding one takes no reading of clumps. They are loaded when first needed and cached for
//! later look-ups of neighbours, as Foundation caches arena summaries (Rhea et al. 2008, section
//! 4).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::{BlockName, ClumpName, LogAddress, PlacedName, Score};
use varve_log::{
    AppendedPage, ArenaId, ArenaState, ClumpRow, DirectoryPage, Granule, Log, OpenedArena, PageBlock,
    PageRow, ReadLogError,
};
use varve_world::{FixedHasher, weighted_cache};

use crate::cache::CacheBytes;

/// The most arenas whose keys are cached.
const ARENAS_MAX: u64 = 4096;
/// The most times that an arena is read because it was replaced meanwhile.
const READS_MAX: usize = 16;
/// The most memory for the places of clumps in by-value stores.
const PLACES_BYTES_MAX: u64 = 16 << 20;

/// Identifies a page. After a crash another page may be written at the place of one that a reader
/// still knows, so the code of the page is part of the key.
type PageKey = (ArenaId, Granule, [u8; 16]);

fn page_key(arena: ArenaId, row: &PageRow) -> PageKey {
    (arena, row.granule, row.code)
}

/// Returns the first page after a clump: the page that names it.
fn row_after(rows: &[PageRow], clump: Granule) -> Option<PageRow> {
    rows.get(rows.partition_point(|row| row.granule <= clump)).copied()
}

#[derive(Clone)]
struct PageWeight;

impl Weighter<PageKey, Arc<DirectoryPage>> for PageWeight {
    fn weight(&self, _: &PageKey, page: &Arc<DirectoryPage>) -> u64 {
        page.memory_bytes() as u64 + 100
    }
}

#[derive(Clone)]
struct RowsWeight;

impl Weighter<ArenaId, Arc<[PageRow]>> for RowsWeight {
    fn weight(&self, _: &ArenaId, rows: &Arc<[PageRow]>) -> u64 {
        size_of_val::<[PageRow]>(rows) as u64 + 100
    }
}

#[derive(Clone)]
struct UnitWeight;

impl Weighter<ArenaId, Arc<OpenedArena>> for UnitWeight {
    fn weight(&self, _: &ArenaId, _: &Arc<OpenedArena>) -> u64 {
        1
    }
}

/// The place of a clump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClumpPlace {
    pub arena: ArenaId,
    /// Its offsets in the arena.
    pub bytes: Range<u64>,
}

/// The places of an arena's clumps, by the clumps' names.
struct ArenaPlaces {
    /// Sorted by name.
    clumps: Vec<(ClumpName, Granule)>,
    /// The number of pages that were read for this, and the code of the last one. More pages may
    /// follow in an arena without a seal.
    page_count: usize,
    last_page: Option<[u8; 16]>,
}

impl ArenaPlaces {
    /// Returns the places of the clump of this name. There are several if some of its blocks were
    /// stored again.
    fn find(&self, clump: &ClumpName) -> Vec<Granule> {
        let first = self.clumps.partition_point(|(name, _)| name < clump);
        let these = self.clumps.iter().skip(first).take_while(|(name, _)| name == clump);
        these.map(|(_, granule)| *granule).collect()
    }

    fn is_of(&self, rows: &[PageRow]) -> bool {
        self.page_count == rows.len() && self.last_page == rows.last().map(|row| row.code)
    }
}

#[derive(Clone)]
struct PlacesWeight;

impl Weighter<ArenaId, Arc<ArenaPlaces>> for PlacesWeight {
    fn weight(&self, _: &ArenaId, places: &Arc<ArenaPlaces>) -> u64 {
        size_of_val::<[(ClumpName, Granule)]>(&places.clumps) as u64 + 100
    }
}

/// Returns the names and places of the clumps that a page names.
fn clumps_of(page: &DirectoryPage) -> impl Iterator<Item = (ClumpName, Granule)> + '_ {
    page.clumps().iter().filter_map(|clump| {
        let first = page.blocks_of(clump.granule).next()?;
        Some((PlacedName::of(&first.name.score)?.clump, clump.granule))
    })
}

/// The directories of a log, behind caches of bounded size.
pub(crate) struct Directory {
    log: Arc<Log>,
    arenas: Cache<ArenaId, Arc<OpenedArena>, UnitWeight, FixedHasher>,
    rows: Cache<ArenaId, Arc<[PageRow]>, RowsWeight, FixedHasher>,
    pages: Cache<PageKey, Arc<DirectoryPage>, PageWeight, FixedHasher>,
    places: Cache<ArenaId, Arc<ArenaPlaces>, PlacesWeight, FixedHasher>,
    /// The pages of arenas without a seal, which no footer lists.
    unsealed: Mutex<BTreeMap<ArenaId, Vec<PageRow>>>,
}

impl Directory {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        let bytes = CacheBytes::default();
        Self {
            log,
            arenas: weighted_cache(ARENAS_MAX, 1, UnitWeight),
            rows: weighted_cache(bytes.page_lists, 300, RowsWeight),
            pages: weighted_cache(bytes.pages, 150_000, PageWeight),
            places: weighted_cache(PLACES_BYTES_MAX, 1500, PlacesWeight),
            unsealed: Mutex::default(),
        }
    }

    /// Returns an arena's checked header and keys.
    pub(crate) fn arena(&self, id: ArenaId) -> Result<Arc<OpenedArena>, ReadLogError> {
        self.arenas.get_or_insert_with(&id, || self.log.open_arena(id).map(Arc::new))
    }

    /// Reads the header of an arena again, after a part of the arena could not be read. If it
    /// differs from the cached one, drops everything that is cached of the arena, and returns true:
    /// the arena was replaced, or its header was read from an earlier state of the disk.
    pub(crate) fn has_other_header(&self, id: ArenaId) -> bool {
        let Some(known) = self.arenas.get(&id) else { return false };
        let Ok(now) = self.log.open_arena(id) else { return false };
        let is_other = known.header() != now.header();
        if is_other {
            self.forget(id);
            self.arenas.insert(id, Arc::new(now));
        }
        is_other
    }

    /// Calls `read`, which reads an arena through these caches. If it meets damage, calls it again:
    /// another process may have replaced, begun, sealed or cut the arena meanwhile. Damage counts
    /// if two calls meet it in a file of one length.
    pub(crate) fn read<T>(
        &self,
        id: ArenaId,
        mut read: impl FnMut() -> Result<T, ReadLogError>,
    ) -> Result<T, ReadLogError> {
        let mut damaged = None;
        for _ in 1..READS_MAX {
            match read() {
                Err(error) if error.is_damage() => {
                    if self.has_other_header(id) {
                        continue;
                    }
                    let now = Some(self.log.file_bytes(id).ok());
                    if damaged == now {
                        return Err(error);
                    }
                    damaged = now;
                }
                other => return other,
            }
        }
        read()
    }

    /// Adds a page of an arena that has no seal.
    pub(crate) fn note_unsealed(&self, arena: ArenaId, row: PageRow) {
        self.unsealed().entry(arena).or_default().push(row);
    }

    /// Replaces the list of pages of an arena that has no seal.
    pub(crate) fn note_unsealed_anew(&self, arena: ArenaId, rows: Vec<PageRow>) {
        self.unsealed().insert(arena, rows);
    }

    /// Returns true if an arena has a page with this code, as far as is known without a scan.
    pub(crate) fn has_page(&self, arena: ArenaId, code: [u8; 16]) -> bool {
        let has = |rows: &[PageRow]| rows.iter().any(|row| row.code == code);
        match self.unsealed().get(&arena) {
            Some(rows) => has(rows),
            None => self.sealed_rows(arena).is_ok_and(|rows| has(&rows)),
        }
    }

    /// Adds a page that has just been written.
    pub(crate) fn note_appended(&self, appended: &AppendedPage) {
        self.note_unsealed(appended.arena, appended.row);
        self.pages.insert(page_key(appended.arena, &appended.row), Arc::clone(&appended.page));
    }

    /// Drops everything that was read of an arena that was written anew.
    pub(crate) fn forget(&self, arena: ArenaId) {
        self.arenas.remove(&arena);
        self.rows.remove(&arena);
        self.places.remove(&arena);
        self.pages.retain(|(of, ..), _| *of != arena);
        self.unsealed().remove(&arena);
    }

    /// Drops the page lists of arenas that have a seal now.
    pub(crate) fn note_sealed(&self, is_sealed: impl Fn(ArenaId) -> bool) {
        self.unsealed().retain(|arena, _| !is_sealed(*arena));
    }

    fn unsealed(&self) -> MutexGuard<'_, BTreeMap<ArenaId, Vec<PageRow>>> {
        self.unsealed.lock()
    }

    /// Returns the row of this block in the directory page of the clump at `address`; `None` if the
    /// page does not name the block there.
    ///
    /// # Errors
    /// [`ReadLogError`] when the page cannot be read. Nothing is then known of the block.
    pub(crate) fn find(
        &self,
        address: LogAddress,
        name: &BlockName,
    ) -> Result<Option<PageBlock>, ReadLogError> {
        let (arena, granule) = self.log.config().map.locate(address);
        let Some(page) = self.read(arena, || self.page(arena, granule))? else { return Ok(None) };
        Ok(page.find(granule, name))
    }

    /// Returns the clump at `address`, if the page that names it names this block in it.
    ///
    /// # Errors
    /// As for [`find`](Self::find).
    pub(crate) fn clump_with(
        &self,
        address: LogAddress,
        name: &BlockName,
    ) -> Result<Option<ClumpPlace>, ReadLogError> {
        let (arena, granule) = self.log.config().map.locate(address);
        let Some(page) = self.read(arena, || self.page(arena, granule))? else { return Ok(None) };
        let clumps = page.clumps();
        let clump = clumps.get(clumps.partition_point(|clump| clump.granule < granule));
        let clump = clump.filter(|clump| clump.granule == granule && page.find(granule, name).is_some());
        Ok(clump.map(|clump| ClumpPlace { arena, bytes: granule.byte_offset()..clump.end() }))
    }

    /// Returns the place of a block on the page that names the clump at `address`, if that page is
    /// in memory.
    pub(crate) fn find_on_known_page(&self, address: LogAddress, name: &BlockName) -> Option<LogAddress> {
        let map = self.log.config().map;
        let (id, granule) = map.locate(address);
        let unsealed = self.unsealed().get(&id).map(|rows| row_after(rows, granule));
        let row = unsealed.unwrap_or_else(|| row_after(&self.rows.get(&id)?, granule))?;
        let found = self.pages.get(&page_key(id, &row))?.find_anywhere(name)?;
        map.address(id, found.granule)
    }

    /// Returns the blocks near the clump at `address` with their places: first clump by clump from
    /// there on, then backwards from there, in the same arena, up to `blocks_max`. Three quarters
    /// of them are for the clumps that follow.
    ///
    /// # Errors
    /// [`ReadLogError`] when the page that names the clump cannot be read.
    pub(crate) fn beside(
        &self,
        address: LogAddress,
        blocks_max: usize,
    ) -> Result<Vec<(BlockName, LogAddress)>, ReadLogError> {
        let (id, granule) = self.log.config().map.locate(address);
        let rows = self.all_rows(id)?;
        let at = rows.partition_point(|row| row.granule <= granule).min(rows.len());
        let mut found = Vec::new();
        let mut add = |clump: &ClumpRow, page: &DirectoryPage, enough: usize| {
            if found.len() < enough {
                found.extend(self.named_in(id, page, clump.granule));
            }
            found.len() < enough
        };
        let for_after = blocks_max - blocks_max / 4;
        for (number, row) in (at..).zip(&rows[at..]) {
            let page = match self.load(id, row) {
                Ok(page) => page,
                Err(error) if number == at => return Err(error),
                Err(_) => break,
            };
            let mut clumps = page.clumps().iter().filter(|clump| clump.granule >= granule);
            if !clumps.all(|clump| add(clump, &page, for_after)) {
                break;
            }
        }
        for row in rows[..rows.len().min(at + 1)].iter().rev() {
            let Ok(page) = self.load(id, row) else { break };
            let mut clumps = page.clumps().iter().rev().filter(|clump| clump.granule < granule);
            if !clumps.all(|clump| add(clump, &page, blocks_max)) {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the number of blocks that all directories name. Skips unreadable pages.
    pub(crate) fn block_count(&self) -> u64 {
        let mut count = 0;
        self.each_page(|_, page| count += page.block_count() as u64);
        count
    }

    /// Searches all directories for blocks, and returns their places. Skips unreadable pages.
    pub(crate) fn search(&self, is_wanted: impl Fn(&BlockName) -> bool) -> Vec<LogAddress> {
        let mut found = Vec::new();
        self.each_page(|id, page| {
            found.extend(self.named_by(id, page).filter(|(named, _)| is_wanted(named)).map(|(_, at)| at));
        });
        found
    }

    /// Calls `take` with all pages of the log; with those of an arena twice, if it is replaced
    /// meanwhile. Skips unreadable pages.
    fn each_page(&self, mut take: impl FnMut(ArenaId, &DirectoryPage)) {
        for id in self.log.arenas().unwrap_or_default() {
            // Damage is reported to the caller that requests a block there.
            drop(self.read(id, || {
                let (arena, rows) = (self.arena(id)?, self.all_rows(id)?);
                let mut failed = None;
                for row in rows.iter() {
                    // Pages are not added to the cache, since the pages in it are more likely to be
                    // needed.
                    let known = self
                        .pages
                        .get(&page_key(id, row))
                        .map_or_else(|| self.log.read_page(&arena, row).map(Arc::new), Ok);
                    match known {
                        Ok(page) => take(id, &page),
                        Err(error) => failed = Some(error),
                    }
                }
                failed.map_or(Ok(()), Err)
            }));
        }
    }

    /// Returns the places of a by-value store's block according to its name; none if there is no
    /// such clump in that arena, or if the name contains no place.
    ///
    /// # Errors
    /// [`ReadLogError`] when some of that arena's pages could not be read, and the others do not
    /// name the clump.
    pub(crate) fn places_of(&self, score: &Score) -> Result<Vec<LogAddress>, ReadLogError> {
        let Some(name) = PlacedName::of(score) else { return Ok(Vec::new()) };
        let id = ArenaId(name.clump.arena.into());
        let find = || {
            let rows = self.all_rows(id)?;
            match self.places.get(&id).filter(|known| known.is_of(&rows)) {
                Some(known) => Ok(known.find(&name.clump)),
                None => self.read_places(id, &rows, &name.clump),
            }
        };
        let granules = match self.read(id, find) {
            // Either the name is that of another store's block, or the arena is gone. The latter is
            // reported when the index leads there.
            Err(ReadLogError::Storage { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            other => other?,
        };
        let map = self.log.config().map;
        Ok(granules.into_iter().filter_map(|granule| map.address(id, granule)).collect())
    }

    /// Returns the clumps that lie in another arena than their names say: a repair had no room for
    /// them, or they were put back.
    pub(crate) fn moved(&self) -> BTreeMap<ClumpName, Vec<LogAddress>> {
        let map = self.log.config().map;
        let mut moved: BTreeMap<_, Vec<_>> = BTreeMap::new();
        self.each_page(|id, page| {
            for (name, granule) in clumps_of(page).filter(|(name, _)| u64::from(name.arena) != id.0) {
                moved.entry(name).or_default().extend(map.address(id, granule));
            }
        });
        moved
    }

    fn read_places(
        &self,
        id: ArenaId,
        rows: &[PageRow],
        wanted: &ClumpName,
    ) -> Result<Vec<Granule>, ReadLogError> {
        let (mut clumps, mut failed) = (Vec::new(), None);
        for row in rows {
            match self.load(id, row) {
                Ok(page) => clumps.extend(clumps_of(&page)),
                Err(error) => failed = Some(error),
            }
        }
        clumps.sort_unstable();
        let (page_count, last_page) = (rows.len(), rows.last().map(|row| row.code));
        let places = ArenaPlaces { clumps, page_count, last_page };
        match (places.find(wanted), failed) {
            (granules, None) => {
                self.places.insert(id, Arc::new(places));
                Ok(granules)
            }
            (granules, Some(error)) if granules.is_empty() => Err(error),
            (granules, Some(_)) => Ok(granules),
        }
    }

    /// Returns the rows of those blocks in the clump at `address` whose scores begin with `prefix`.
    ///
    /// # Errors
    /// [`ReadLogError`] when the page cannot be read.
    pub(crate) fn blocks_like(
        &self,
        address: LogAddress,
        prefix: &[u8],
    ) -> Result<Vec<PageBlock>, ReadLogError> {
        let (arena, granule) = self.log.config().map.locate(address);
        let page = self.read(arena, || self.page(arena, granule))?;
        Ok(page.map(|page| page.blocks_like(granule, prefix).collect()).unwrap_or_default())
    }

    fn named_by(&self, id: ArenaId, page: &DirectoryPage) -> impl Iterator<Item = (BlockName, LogAddress)> {
        let map = self.log.config().map;
        page.blocks().filter_map(move |block| Some((block.name, map.address(id, block.granule)?)))
    }

    /// Returns the blocks that a page names in the clump at `granule`.
    fn named_in(
        &self,
        id: ArenaId,
        page: &DirectoryPage,
        granule: Granule,
    ) -> impl Iterator<Item = (BlockName, LogAddress)> {
        let address = self.log.config().map.address(id, granule);
        page.blocks_of(granule).filter_map(move |block| Some((block.name, address?)))
    }

    pub(crate) fn all_rows(&self, id: ArenaId) -> Result<Arc<[PageRow]>, ReadLogError> {
        let unsealed = self.unsealed().get(&id).map(|rows| Arc::from(rows.as_slice()));
        unsealed.map_or_else(|| self.sealed_rows(id), Ok)
    }

    /// Iterates over all pages of an arena, in order. Each is read by itself, so an unreadable page
    /// hides no other.
    ///
    /// # Errors
    /// [`ReadLogError`] when the arena cannot be read.
    pub(crate) fn pages(
        &self,
        id: ArenaId,
    ) -> Result<impl Iterator<Item = Result<Arc<DirectoryPage>, ReadLogError>>, ReadLogError> {
        let rows = self.read(id, || self.all_rows(id))?;
        Ok((0..rows.len()).map(move |number| self.load(id, &rows[number])))
    }

    /// Bounds the memory for pages and lists of pages.
    pub(crate) fn bound(&self, bytes: CacheBytes) {
        self.pages.set_capacity(bytes.pages);
        self.rows.set_capacity(bytes.page_lists);
    }

    /// Returns the code of the last page of an arena that names a block; `None` if there is none.
    ///
    /// # Errors
    /// [`ReadLogError`] when the arena or such a page cannot be read.
    pub(crate) fn last_named_page(&self, id: ArenaId) -> Result<Option<[u8; 16]>, ReadLogError> {
        self.read(id, || {
            for row in self.all_rows(id)?.iter().rev() {
                if self.load(id, row)?.block_count() > 0 {
                    return Ok(Some(row.code));
                }
            }
            Ok(None)
        })
    }

    /// Returns the page that names the clump at `granule`: the first page after it.
    fn page(&self, id: ArenaId, granule: Granule) -> Result<Option<Arc<DirectoryPage>>, ReadLogError> {
        let unsealed = self.unsealed().get(&id).map(|rows| row_after(rows, granule));
        let row = match unsealed {
            Some(row) => row,
            None => row_after(&self.sealed_rows(id)?, granule),
        };
        row.map(|row| self.load(id, &row)).transpose()
    }

    fn load(&self, id: ArenaId, row: &PageRow) -> Result<Arc<DirectoryPage>, ReadLogError> {
        let load = || self.log.read_page(&*self.arena(id)?, row).map(Arc::new);
        self.pages.get_or_insert_with(&page_key(id, row), load)
    }

    fn sealed_rows(&self, id: ArenaId) -> Result<Arc<[PageRow]>, ReadLogError> {
        if let Some(known) = self.rows.get(&id) {
            return Ok(known);
        }
        let arena = self.arena(id)?;
        match self.log.state(&arena)? {
            ArenaState::Sealed { pages, .. } => {
                let rows: Arc<[PageRow]> = pages.into();
                self.rows.insert(id, Arc::clone(&rows));
                Ok(rows)
            }
            // The arena has lost its seal, or it has just been begun. It may get more pages and a
            // seal, so this list is not cached.
            ArenaState::Unsealed => {
                let mut found = self.log.scan(&arena)?;
                // The next writer cuts off the durable marks at the end.
                found.drop_mark();
                Ok(found.pages.into_iter().map(|(row, _)| row).collect())
            }
        }
    }
}

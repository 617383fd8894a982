//! Computes the loss before a damaged arena is written anew.
//!
//! A page names the blocks of its clumps, so a block whose page can be read is lost by name. If
//! neither a page nor a clump can be read, nobody knows what was there. The loss is then a range of
//! bytes of the arena.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use varve_block::BlockName;
use varve_log::{
    ARENA_HEADER_BYTES, ArenaHeaderError, ArenaId, ArenaState, DirectoryPage, GRANULE_BYTES, OpenedArena,
    PageRow, ReadLogError, RecordHeader, RecordKind, SalvagedClump, Seal, UnopenedEnd,
};
use varve_store::{CompareMode, NotedPage, ScoreAlgorithm};

use super::Checker;
use crate::damage::is_finding;
use crate::salvaged::named;

/// At most this many lost ranges of one arena are distinguished. If there are more, one range
/// covers all of them.
const RANGES_MAX: usize = 64;

/// The contents of an arena that are lost, and that a new arena in its place will not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArenaLoss {
    /// `None` if the arena's header is unreadable.
    pub generation: Option<u32>,
    /// The blocks that its pages name and that are not whole in it, with their sizes in bytes.
    /// Other arenas may have them.
    pub blocks: BTreeMap<BlockName, u32>,
    /// The parts that may have held blocks which no page names any more, each with the witness of a
    /// copy that has them.
    pub ranges: Vec<(LostRange, Option<Witness>)>,
    /// The witness of a copy that has all of the arena.
    pub whole: Option<Witness>,
}

/// Proof that a copy of this store has the same history up to a place. The copy then has everything
/// that the store had written before that place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// The code of a page's header. An arena that has the page has had everything that came before
    /// it.
    Page([u8; 16]),
    /// The code of an arena's seal. An arena that has it is the same to the byte.
    Seal([u8; 32]),
}

/// The end of a log that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEnd {
    /// The arena of the page that was noted last.
    pub arena: ArenaId,
    /// The part of the arena that is gone.
    pub range: LostRange,
    /// The code of that page's header.
    pub page: [u8; 16],
}

/// A part of an arena, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// The first byte.
    pub first: u64,
    /// The last byte; `None` if its end is not known.
    pub last: Option<u64>,
}

/// The parts of an arena whose contents are known.
#[derive(Default)]
struct KnownRanges {
    ranges: Vec<Range<u64>>,
}

impl KnownRanges {
    fn add(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if (last.start..=last.end).contains(&range.start) => {
                last.end = last.end.max(range.end)
            }
            _ => self.ranges.push(range),
        }
    }

    /// Returns the unknown parts of `start..end`, in order.
    fn gaps(mut self, start: u64, end: u64) -> Vec<LostRange> {
        self.ranges.sort_by_key(|range| range.start);
        let (mut gaps, mut place) = (Vec::new(), start);
        for range in self.ranges {
            if range.start > place && place < end {
                gaps.push(LostRange { first: place, last: Some(range.start.min(end).saturating_sub(1)) });
            }
            place = place.max(range.end);
        }
        if place < end {
            gaps.push(LostRange { first: place, last: Some(end.saturating_sub(1)) });
        }
        match (gaps.first(), gaps.last()) {
            (Some(first), Some(last)) if gaps.len() > RANGES_MAX => {
                vec![LostRange { first: first.first, last: last.last }]
            }
            _ => gaps,
        }
    }
}

/// The readable pages of an arena, and its extent.
struct ReadablePages {
    pages: Vec<DirectoryPage>,
    /// The places of all pages, readable or not.
    rows: Vec<PageRow>,
    log_bytes: u64,
    /// True if more records may have followed.
    is_cut: bool,
    /// True if the arena ends with a seal.
    is_sealed: bool,
    /// True if nothing between the pages is broken.
    is_unbroken: bool,
}

impl ReadablePages {
    /// Returns the witness of a lost part: the first page behind it that names a block. A page that
    /// names none is a mark: marks are cut off, and no copy has them.
    fn witness_of(&self, range: &LostRange) -> Option<Witness> {
        let last = range.last?;
        let mut behind = self.rows.iter().filter(|row| row.granule.byte_offset() > last);
        behind.find(|row| !row.names_nothing()).map(|row| Witness::Page(row.code))
    }

    /// Returns true if nothing is broken in the pages, and no more may have followed.
    fn are_all(&self) -> bool {
        self.is_unbroken && !self.is_cut
    }
}

impl Checker<'_> {
    /// Computes the loss of an arena that is to be written anew. Reads all of it.
    ///
    /// # Errors
    /// [`ReadLogError`] when it cannot be read for a reason other than damage.
    pub fn loss_of(&self, id: ArenaId) -> Result<ArenaLoss, ReadLogError> {
        let arena = match self.log().open_arena(id) {
            Ok(arena) => arena,
            Err(error) if self.is_of_others(&error) => return Ok(ArenaLoss::default()),
            // The file shows nothing about the arena that was here.
            Err(error) if error.is_of_another_place() => {
                return Ok(self.loss_of_all(id, UnopenedEnd::default()));
            }
            Err(error) if is_finding(&error) => {
                return match self.log().unopened_end(id) {
                    Err(error) if !is_finding(&error) => Err(error),
                    end => Ok(self.loss_of_all(id, end.unwrap_or_default())),
                };
            }
            Err(error) => return Err(error),
        };
        let pages = self.pages_left(&arena)?;
        let mut known = KnownRanges::default();
        self.log().records(&arena, &mut |record: &RecordHeader| {
            if record.kind == RecordKind::Page {
                known.add(record.granule.byte_offset()..record.end());
            }
        })?;
        pages.rows.iter().for_each(|row| known.add(row.granule.byte_offset()..row.end()));
        let clumps = pages.pages.iter().flat_map(DirectoryPage::clumps);
        clumps.for_each(|clump| known.add(clump.granule.byte_offset()..clump.end()));
        let kept = self.kept_of(&arena, &mut known)?;
        let named = pages.pages.iter().flat_map(DirectoryPage::blocks);
        let blocks = named.map(|block| (block.name, block.size)).filter(|(name, _)| !kept.contains(name));
        let blocks = blocks.collect();
        let mut ranges = known.gaps(ARENA_HEADER_BYTES as u64, pages.log_bytes);
        ranges.extend(pages.is_cut.then_some(LostRange { first: pages.log_bytes, last: None }));
        let whole = self.seal_in_mind(id).map(|seal| Witness::Seal(seal.code));
        // For a range behind all remaining pages, the page that was noted last may be the witness.
        let is_left = |code: [u8; 16]| pages.rows.iter().any(|row| row.code == code);
        let noted = self.noted_page_of(id, Some(arena.header().generation));
        let noted = noted.filter(|code| !is_left(*code)).map(Witness::Page);
        let witness = |range: &LostRange| pages.witness_of(range).or(whole).or(noted);
        let ranges = ranges.into_iter().map(|range| (range, witness(&range))).collect();
        Ok(ArenaLoss { generation: Some(arena.header().generation), blocks, ranges, whole })
    }

    fn seal_in_mind(&self, id: ArenaId) -> Option<Seal> {
        self.store.intake()?.known_seal(id)
    }

    /// Returns the code of the page that was noted last if it is one of this arena. A page of
    /// another generation says nothing about the places in this one.
    fn noted_page_of(&self, id: ArenaId, generation: Option<u32>) -> Option<[u8; 16]> {
        let noted = self.vault().noted_page().filter(|noted| noted.arena == id)?;
        generation.is_none_or(|generation| generation == noted.generation).then_some(noted.code)
    }

    /// Returns the names of the blocks that are whole in an arena, read clump by clump.
    fn kept_of(
        &self,
        arena: &OpenedArena,
        known: &mut KnownRanges,
    ) -> Result<BTreeSet<BlockName>, ReadLogError> {
        let mut kept = BTreeSet::new();
        let mut take = |clump: SalvagedClump| -> Result<(), ReadLogError> {
            let named = named(self.store, &clump);
            if clump.is_whole() && named.len() == clump.content.block_count() {
                known.add(clump.granule.byte_offset()..clump.end());
            }
            kept.extend(named.into_iter().map(|(name, _)| name));
            Ok(())
        };
        self.log().salvage(arena, self.store, &mut take)?;
        Ok(kept)
    }

    /// Returns the loss of an arena of which nothing can be read.
    fn loss_of_all(&self, id: ArenaId, end: UnopenedEnd) -> ArenaLoss {
        let seal = self.seal_in_mind(id);
        let whole = seal.map(|seal| seal.code).or(end.seal).map(Witness::Seal);
        let is_empty = end.log_bytes <= ARENA_HEADER_BYTES as u64;
        let witness = end.page.map(Witness::Page).or(whole);
        let witness = witness.or_else(|| {
            let generation = seal.map(|seal| seal.generation);
            self.noted_page_of(id, generation).map(Witness::Page)
        });
        let last = (!is_empty).then(|| end.log_bytes.saturating_sub(1));
        ArenaLoss {
            generation: seal.map(|seal| seal.generation),
            blocks: BTreeMap::new(),
            ranges: vec![(LostRange { first: 0, last }, witness)],
            whole,
        }
    }

    /// Returns true if an arena is another store's, and no arena of this store is missing.
    fn is_of_others(&self, error: &ReadLogError) -> bool {
        matches!(error, ReadLogError::Header { source: ArenaHeaderError::ForeignStore { .. }, .. })
            && self.store.intake().is_some_and(|intake| !intake.is_any_seal_missing())
            && !self.store.end_is_lost()
    }

    fn pages_left(&self, arena: &OpenedArena) -> Result<ReadablePages, ReadLogError> {
        match self.log().state_as_left(arena) {
            Ok(ArenaState::Sealed { footer, pages: rows }) => {
                let mut pages = Vec::new();
                for row in &rows {
                    match self.log().read_page(arena, row) {
                        Ok(page) => pages.push(page),
                        Err(error) if is_finding(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
                let log_bytes = footer.log_bytes;
                Ok(ReadablePages {
                    pages,
                    rows,
                    log_bytes,
                    is_cut: false,
                    is_sealed: true,
                    is_unbroken: true,
                })
            }
            Err(error) if !is_finding(&error) => Err(error),
            state => {
                let found = self.log().scan(arena)?;
                let hidden = found.hidden.as_ref().map_or(0, |hidden| hidden.end().saturating_add(1));
                let log_bytes = found.log_bytes.max(found.durable_bytes).max(hidden);
                // The seal of a complete log may be damaged or gone, and nothing that it covered.
                let has_lost_seal = state.is_err() || self.has_lost_seal(arena.id());
                let is_cut = has_lost_seal && !found.ends_at_seal();
                let is_unbroken = state.is_ok() && found.gap.is_none() && found.hidden.is_none();
                let (rows, pages) = found.pages.into_iter().unzip();
                Ok(ReadablePages { pages, rows, log_bytes, is_cut, is_sealed: false, is_unbroken })
            }
        }
    }

    /// Returns the lost end of a log whose noted last page is gone: it begins where the log ends
    /// now. `None` if no page was noted.
    #[must_use]
    pub fn lost_end(&self) -> Option<LostEnd> {
        let NotedPage { arena, code: page, .. } = self.vault().noted_page()?;
        let left = self.log().open_arena(arena).and_then(|arena| self.pages_left(&arena));
        let first = left.map_or(0, |pages| pages.log_bytes);
        Some(LostEnd { arena, range: LostRange { first, last: None }, page })
    }

    /// Returns true if this store, a copy of the one that has lost a range, has named every block
    /// that was there: it has the same history up to `witness`, its own arena reaches as far, and
    /// nothing is broken in it.
    #[must_use]
    pub fn has_named(&self, id: ArenaId, range: LostRange, witness: &Witness) -> bool {
        let Some(pages) = self.log().open_arena(id).ok().and_then(|arena| self.pages_left(&arena).ok())
        else {
            return false;
        };
        let has_witness = match witness {
            Witness::Page(code) => pages.rows.iter().any(|row| row.code == *code),
            Witness::Seal(code) => {
                pages.is_sealed
                    && self.seal_of(id).is_ok_and(|seal| seal.is_some_and(|seal| seal.seal_code == *code))
            }
        };
        // A page that names a block lies at least a granule further, behind its clump. A mark may
        // lie nearer, but no copy has it.
        let reached = pages.log_bytes.saturating_add(GRANULE_BYTES);
        let reaches = pages.is_sealed || range.last.is_none_or(|last| last < reached);
        has_witness && reaches && pages.are_all()
    }

    /// Returns true if all arenas from `first` on are there, and nothing is broken in them.
    #[must_use]
    pub fn is_unbroken_from(&self, first: ArenaId) -> bool {
        let Ok(ids) = self.store.arenas() else { return false };
        let pages = |id| self.log().open_arena(id).and_then(|arena| self.pages_left(&arena));
        let mut after = ids.into_iter().filter(|id| *id >= first);
        after.all(|id| pages(id).is_ok_and(|pages| pages.are_all()))
            && self.check_order().is_ok_and(|damage| damage.is_empty())
    }

    /// Returns true if other programs may have stored archives here that no catalog names: clients
    /// of a Venti server, which need SHA-1. In any other store a block counts if a snapshot leads
    /// to it.
    #[must_use]
    pub fn may_have_foreign_roots(&self) -> bool {
        self.store.config().score == ScoreAlgorithm::Sha1 && self.store.config().compare == CompareMode::Hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_covers_is_lost() {
        let mut known = KnownRanges::default();
        [512..1024, 1024..1152, 2048..4096, 1280..1408].into_iter().for_each(|range| known.add(range));
        let gap = |first, last| LostRange { first, last: Some(last) };
        assert_eq!(known.gaps(512, 5000), [gap(1152, 1279), gap(1408, 2047), gap(4096, 4999)]);
        let mut known = KnownRanges::default();
        known.add(512..8192);
        assert_eq!(known.gaps(512, 8192), []);
        assert_eq!(KnownRanges::default().gaps(512, 1024), [gap(512, 1023)]);
        let mut known = KnownRanges::default();
        known.add(8192..16_384);
        assert_eq!(known.gaps(512, 1024), [gap(512, 1023)], "bounded by where the log ended");
    }

    #[test]
    fn very_many_places_become_one() {
        let mut known = KnownRanges::default();
        (0..200).for_each(|number| known.add(1000 * number + 512..1000 * number + 600));
        assert_eq!(known.gaps(512, 200_000), [LostRange { first: 600, last: Some(199_999) }]);
    }
}

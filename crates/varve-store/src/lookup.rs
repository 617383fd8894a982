//! Where a block may be: first by what is in memory, then by the index on disk, and where that fails by all directories.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use varve_block::{BlockName, ClumpName, LogAddress, PlacedName};
use varve_index::{DiskIndex, Near};
use varve_log::ArenaId;

use crate::config::Prefetch;
use crate::store::Store;

/// With so many blocks at most a look-up on disk fills the cache: a whole arena, if its blocks are not very small.
const BESIDE_MAX: u64 = 1 << 16;
/// Venti reads ahead after so many look-ups on disk that lead on in one arena.
const ROW_LENGTH: u32 = 4;

/// What is remembered of look-ups.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Whether somebody was told that the index is of no use.
    is_told: AtomicBool,
    row: Mutex<Row>,
    /// In a store without an index: the clumps that are not where their names say, once that was asked.
    moved: Mutex<Option<BTreeMap<ClumpName, Vec<LogAddress>>>>,
}

/// Look-ups on disk that lead on in one arena.
#[derive(Debug, Default)]
struct Row {
    arena: Option<ArenaId>,
    last: Option<LogAddress>,
    length: u32,
}

impl Store {
    /// Hands the places where a block may be to `is_there` until it says that it is.
    pub(crate) fn is_at_any_place<E>(
        &self,
        name: &BlockName,
        mut is_there: impl FnMut(LogAddress) -> Result<bool, E>,
    ) -> Result<bool, E> {
        // What its name says, if it says anything: what cannot be read there says nothing.
        for address in self.directory.places_of(&name.score).unwrap_or_default() {
            if is_there(address)? {
                return Ok(true);
            }
        }
        self.is_where_indexed(name, is_there)
    }

    /// The same with the places that the index proposes, and no others.
    pub(crate) fn is_where_indexed<E>(
        &self,
        name: &BlockName,
        mut is_there: impl FnMut(LogAddress) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let (near, is_all) = self.look_near(name);
        for address in &near {
            if is_there(*address)? {
                return Ok(true);
            }
        }
        if is_all {
            return Ok(false);
        }
        for address in self.look_further(name) {
            if !near.contains(&address) && is_there(address)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where a block may be by what is in memory, and whether that is all.
    pub(crate) fn look_near(&self, name: &BlockName) -> (Vec<LogAddress>, bool) {
        if self.has_no_index {
            return (Vec::new(), false);
        }
        match self.index.near(self.namer.fingerprint(name)) {
            Near::All(places) => {
                self.candidate_counters.note(places.len());
                (places, true)
            }
            Near::Some(places) => (places, false),
        }
    }

    /// All places where a block may be. Reads the disk, and what is likely to be asked for next.
    pub(crate) fn look_further(&self, name: &BlockName) -> Vec<LogAddress> {
        if self.has_no_index {
            return self.look_among_moved(name);
        }
        let found = self.index.candidates(self.namer.fingerprint(name));
        let mut places = found.addresses;
        let Some(index) = self.index.disk() else {
            self.candidate_counters.note(places.len());
            return places;
        };
        if !found.is_complete {
            if !self.lookups.is_told.swap(true, Ordering::Relaxed) {
                let trouble = index.trouble().unwrap_or_default();
                tracing::warn!(
                    %trouble,
                    "the index on disk is of no use; blocks are looked for in the log's directories, which is slow"
                );
            }
            places.extend(self.directory.search(|named| self.namer.may_be(named, name)));
            places.sort_unstable();
            places.dedup();
        }
        self.candidate_counters.note(places.len());
        if found.is_from_disk || !found.is_complete {
            for place in &places {
                if !found.is_complete || self.should_read_ahead(*place) {
                    self.remember_beside(index, *place);
                } else {
                    index.remember([(self.namer.fingerprint(name), *place)]);
                }
            }
        }
        places
    }

    /// Where a block of a by-value store lies that is not where its name says, in a store without an index.
    fn look_among_moved(&self, name: &BlockName) -> Vec<LogAddress> {
        let Some(placed) = PlacedName::of(&name.score) else { return Vec::new() };
        let mut moved = self.lookups.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.get_or_insert_with(|| self.directory.moved()).get(&placed.clump).cloned().unwrap_or_default()
    }

    /// Forgets what was moved: more may have been.
    pub(crate) fn forget_moved(&self) {
        *self.lookups.moved.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn should_read_ahead(&self, place: LogAddress) -> bool {
        match self.config.disk_index.prefetch {
            Prefetch::Arena => return true,
            Prefetch::None => return false,
            Prefetch::Four => {}
        }
        let (arena, _) = self.log.config().map.locate(place);
        let mut row = self.lookups.row.lock().unwrap_or_else(PoisonError::into_inner);
        let leads_on = row.arena == Some(arena) && row.last.is_some_and(|last| last <= place);
        *row =
            Row { arena: Some(arena), last: Some(place), length: if leads_on { row.length + 1 } else { 1 } };
        row.length >= ROW_LENGTH
    }

    fn remember_beside(&self, index: &DiskIndex, place: LogAddress) {
        let blocks_max = usize::try_from(index.remember_max().min(BESIDE_MAX)).unwrap_or(usize::MAX);
        match self.directory.beside(place, blocks_max) {
            Ok(beside) => {
                index.remember(beside.iter().map(|(name, place)| (self.namer.fingerprint(name), *place)));
            }
            // Whoever asked for the block meets the same, and says so.
            Err(error) => tracing::debug!(%error, "what stands beside a block cannot be read"),
        }
    }
}

//! Where a block may be: first by what is in memory, then by the index on disk, and where that fails by all directories.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use varve_block::{BlockName, ClumpName, LogAddress, PlacedName};
use varve_index::{DiskIndex, Near};
use varve_log::{ArenaId, GRANULE_BYTES};

use crate::config::{CompareMode, Prefetch};
use crate::store::Store;

/// With so many blocks at most a look-up on disk fills the cache: a whole arena, if its blocks are not very small.
const BESIDE_MAX: u64 = 1 << 16;
/// With so many it begins, once look-ups lead on: as many as a directory page names.
const BESIDE_FIRST: u64 = 1 << 12;
/// Each time that they lead on it is so many times as many.
const BESIDE_GROWTH: u64 = 4;
/// A look-up leads on from one that is no farther away than this in the log: mostly it is in the same clump.
const NEAR_GRANULES: u64 = (256 << 10) / GRANULE_BYTES;
/// The same from the last clump that was remembered, which may be as long as this.
const NEXT_GRANULES: u64 = (1 << 20) / GRANULE_BYTES;
/// So many sequences of look-ups are told apart.
const SEQUENCES_MAX: usize = 4;
/// Venti reads ahead after so many look-ups on disk that lead on in one arena.
const ROW_LENGTH: u32 = 4;

/// What is remembered of look-ups.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Whether somebody was told that the index is of no use.
    is_told: AtomicBool,
    row: Mutex<Row>,
    sequences: Mutex<Sequences>,
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

/// Where look-ups on disk have led lately, the last one at the end. One that leads nowhere near the others is likely to be alone, and what
/// stands beside it is left alone as well: that is a thousand times the work of the look-up itself.
#[derive(Debug, Default)]
struct Sequences(Vec<Sequence>);

#[derive(Debug, Clone, Copy)]
struct Sequence {
    /// Where the last look-up led.
    last: LogAddress,
    /// The last place beside it that was remembered: what comes after that is asked for next, if all goes on.
    end: LogAddress,
    /// How many blocks were to be remembered; none if there was only one look-up.
    blocks: u64,
}

impl Sequences {
    /// Notes a look-up on disk that led to `place`. Returns how many blocks beside it are worth to be remembered.
    fn note(&mut self, place: LogAddress) -> u64 {
        let at = self.0.iter().rposition(|sequence| sequence.leads_to(place));
        let before = at.map(|at| self.0.remove(at));
        let blocks = before
            .map_or(0, |before| before.blocks.saturating_mul(BESIDE_GROWTH).clamp(BESIDE_FIRST, BESIDE_MAX));
        if self.0.len() >= SEQUENCES_MAX {
            self.0.remove(0);
        }
        self.0.push(Sequence { last: place, end: place, blocks });
        blocks
    }

    /// Where they have led, the last one first.
    fn places(&self) -> Vec<LogAddress> {
        self.0.iter().rev().map(|sequence| sequence.last).collect()
    }

    /// Notes that one that has led to `before` has gone on to `place` without the disk.
    fn note_without_disk(&mut self, before: LogAddress, place: LogAddress) {
        if let Some(at) = self.0.iter().rposition(|sequence| sequence.last == before) {
            let sequence = self.0.remove(at);
            self.0.push(Sequence { last: place, end: sequence.end.max(place), ..sequence });
        }
    }

    /// Notes how far has been remembered what stands beside `place`.
    fn note_end(&mut self, place: LogAddress, end: LogAddress) {
        if let Some(sequence) = self.0.iter_mut().rfind(|sequence| sequence.last == place) {
            sequence.end = end;
        }
    }
}

impl Sequence {
    fn leads_to(&self, place: LogAddress) -> bool {
        let beyond = place.granule().checked_sub(self.end.granule());
        (self.blocks > 0 && beyond.is_some_and(|gap| gap <= NEXT_GRANULES))
            || self.last.granule().abs_diff(place.granule()) <= NEAR_GRANULES
    }
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
            Near::Some(places) if places.is_empty() => (self.look_beside(name).into_iter().collect(), false),
            Near::Some(places) => (places, false),
        }
    }

    /// Where a block lies by the directory pages that name what was looked up on disk last, as far as they are in memory: whoever looked for a
    /// duplicate has read them. One of them tells of thousands of neighbours, and nothing has to be taken in for that.
    fn look_beside(&self, name: &BlockName) -> Option<LogAddress> {
        if self.config.compare != CompareMode::Hash || self.config.disk_index.prefetch != Prefetch::Arena {
            return None;
        }
        let before = self.lookups.sequences().places();
        let find = |before| Some((before, self.directory.find_on_known_page(before, name)?));
        let (before, place) = before.into_iter().find_map(find)?;
        self.lookups.sequences().note_without_disk(before, place);
        Some(place)
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
                let blocks = if found.is_complete { self.ahead_of(*place) } else { BESIDE_MAX };
                if blocks > 0 {
                    self.remember_beside(index, *place, blocks);
                }
                index.remember([(self.namer.fingerprint(name), *place)]);
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

    /// How many blocks beside one that was looked up on disk are worth to be remembered.
    fn ahead_of(&self, place: LogAddress) -> u64 {
        match self.config.disk_index.prefetch {
            Prefetch::Arena => self.lookups.sequences().note(place),
            Prefetch::None => 0,
            Prefetch::Four => {
                let (arena, _) = self.log.config().map.locate(place);
                let mut row = self.lookups.row.lock().unwrap_or_else(PoisonError::into_inner);
                let leads_on = row.arena == Some(arena) && row.last.is_some_and(|last| last <= place);
                let length = if leads_on { row.length + 1 } else { 1 };
                *row = Row { arena: Some(arena), last: Some(place), length };
                if length >= ROW_LENGTH { BESIDE_MAX } else { 0 }
            }
        }
    }

    fn remember_beside(&self, index: &DiskIndex, place: LogAddress, blocks: u64) {
        let blocks = usize::try_from(index.remember_max().min(blocks)).unwrap_or(usize::MAX);
        match self.directory.beside(place, blocks) {
            Ok(beside) => {
                index.remember(beside.iter().map(|(name, place)| (self.namer.fingerprint(name), *place)));
                if let Some(end) = beside.iter().map(|(_, place)| *place).max() {
                    self.lookups.sequences().note_end(place, end);
                }
            }
            // Whoever asked for the block meets the same, and says so.
            Err(error) => tracing::debug!(%error, "what stands beside a block cannot be read"),
        }
    }
}

impl Lookups {
    fn sequences(&self) -> MutexGuard<'_, Sequences> {
        self.sequences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(granule: u64) -> LogAddress {
        LogAddress::new(granule).unwrap()
    }

    #[test]
    fn what_leads_on_brings_in_more_and_more_and_what_is_alone_nothing() {
        let mut sequences = Sequences::default();
        for number in 0..1000 {
            assert_eq!(sequences.note(place(number * 3 * NEAR_GRANULES)), 0, "{number}");
        }
        assert_eq!(sequences.0.len(), SEQUENCES_MAX);
        // Two walk on, in turns: the first two look-ups of each lead to neighbours, and then each to what comes after what was remembered.
        let (mut one, mut other) = (1 << 30, 1 << 32);
        let mut asked = Vec::new();
        for _ in 0..6 {
            for at in [&mut one, &mut other] {
                let blocks = sequences.note(place(*at));
                asked.push(blocks);
                sequences.note_end(place(*at), place(*at + blocks * 16));
                *at += blocks * 16 + 100;
            }
        }
        assert_eq!(
            asked,
            [0, 0, 4096, 4096, 1 << 14, 1 << 14, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16]
        );
        // In the midst of what was remembered, where it has been let go since, all begins anew.
        assert_eq!(sequences.note(place(one - (1 << 19))), 0);
    }
    #[test]
    fn what_is_found_without_the_disk_leads_on_too() {
        let mut sequences = Sequences::default();
        assert_eq!((sequences.note(place(5000)), sequences.note(place(1 << 30))), (0, 0));
        sequences.note_without_disk(place(5000), place(5000 + 10 * NEAR_GRANULES));
        assert_eq!(sequences.places(), [place(5000 + 10 * NEAR_GRANULES), place(1 << 30)]);
        assert_eq!(sequences.note(place(5001 + 10 * NEAR_GRANULES)), BESIDE_FIRST);
        sequences.note_without_disk(place(77), place(78));
        assert_eq!(sequences.places().len(), 2, "what was let go meanwhile stays away");
    }
}

//! Look-ups of the places of a block: first in memory, then in the index on disk. If the index
//! fails, all directories are searched.

use std::sync::atomic::Ordering;

use varve_block::{BlockName, LogAddress, PlacedName, to_usize};
use varve_index::{DiskIndex, NearAddresses};

use super::Finder;
use super::read_ahead::BESIDE_MAX;
use crate::config::{CompareMode, Prefetch};

impl Finder {
    /// Calls `is_there` with each place where a block may be, until it returns true. Barren blocks
    /// count as absent.
    pub(crate) fn is_at_any_place<E>(
        &self,
        name: &BlockName,
        mut is_there: impl FnMut(LogAddress) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut is_there = |address| Ok(!self.is_barren(name, address) && is_there(address)?);
        // The place that the name contains, if any. An unreadable place is ignored.
        for address in self.vault.directory().places_of(&name.score).unwrap_or_default() {
            if is_there(address)? {
                return Ok(true);
            }
        }
        self.is_where_indexed(name, is_there)
    }

    /// Like [`is_at_any_place`](Self::is_at_any_place), but only with the places that the index
    /// proposes.
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

    /// Returns the places that memory knows for a block, and true if there can be no others.
    pub(crate) fn look_near(&self, name: &BlockName) -> (Vec<LogAddress>, bool) {
        if self.has_no_index {
            return (Vec::new(), false);
        }
        match self.index.near(self.vault.namer().fingerprint(name)) {
            NearAddresses::All(places) => {
                self.candidate_counters.note(places.len());
                (places, true)
            }
            NearAddresses::Some(places) if places.is_empty() => {
                (self.look_beside(name).into_iter().collect(), false)
            }
            NearAddresses::Some(places) => (places, false),
        }
    }

    /// Looks for a block on the directory pages of the last look-ups on disk, if these pages are in
    /// memory. A search for duplicates has read them. One page names thousands of neighbours, and
    /// none of them has to be added to the index's cache for that.
    fn look_beside(&self, name: &BlockName) -> Option<LogAddress> {
        if self.vault.config().compare != CompareMode::Hash
            || self.vault.config().disk_index.prefetch != Prefetch::Arena
        {
            return None;
        }
        let before = self.read_ahead.places();
        let find = |before| Some((before, self.vault.directory().find_on_known_page(before, name)?));
        let (before, place) = before.into_iter().find_map(find)?;
        self.read_ahead.note_without_disk(before, place);
        Some(place)
    }

    /// Returns all places where a block may be. Reads the disk, and prefetches the blocks that are
    /// likely to be requested next.
    pub(crate) fn look_further(&self, name: &BlockName) -> Vec<LogAddress> {
        if self.has_no_index {
            return self.look_among_moved(name);
        }
        let found = self.index.candidates(self.vault.namer().fingerprint(name));
        let mut places = found.addresses;
        let Some(index) = self.index.disk() else {
            self.candidate_counters.note(places.len());
            return places;
        };
        if !found.is_complete {
            if !self.is_trouble_reported.swap(true, Ordering::Relaxed) {
                let trouble = index.failure().unwrap_or_default();
                tracing::warn!(
                    %trouble,
                    "the index on disk cannot be used; look-ups search the log's directory pages, which is slow"
                );
            }
            places.extend(self.vault.directory().search(|named| self.vault.namer().may_be(named, name)));
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
                index.remember([(self.vault.namer().fingerprint(name), *place)]);
            }
        }
        places
    }

    /// Returns the places of a by-value store's block that is not where its name says, in a store
    /// without an index.
    fn look_among_moved(&self, name: &BlockName) -> Vec<LogAddress> {
        let Some(placed) = PlacedName::of(&name.score) else { return Vec::new() };
        let mut moved = self.moved.lock();
        moved
            .get_or_insert_with(|| self.vault.directory().moved())
            .get(&placed.clump)
            .cloned()
            .unwrap_or_default()
    }

    /// Drops the list of moved clumps, since more may have been moved.
    pub(crate) fn forget_moved(&self) {
        *self.moved.lock() = None;
    }

    /// Returns the number of blocks to prefetch beside one that was looked up on disk.
    fn ahead_of(&self, place: LogAddress) -> u64 {
        let (arena, _) = self.vault.map().locate(place);
        self.read_ahead.note(self.vault.config().disk_index.prefetch, arena, place)
    }

    fn remember_beside(&self, index: &DiskIndex, place: LogAddress, blocks: u64) {
        let blocks = to_usize(index.remember_max().min(blocks));
        match self.vault.directory().beside(place, blocks) {
            Ok(beside) => {
                index.remember(
                    beside.iter().map(|(name, place)| (self.vault.namer().fingerprint(name), *place)),
                );
                if let Some(end) = beside.iter().map(|(_, place)| *place).max() {
                    self.read_ahead.note_end(place, end);
                }
            }
            // The caller that requested the block gets the same error and reports it.
            Err(error) => tracing::debug!(%error, "the directory pages for read-ahead cannot be read"),
        }
    }

    /// Returns the places that memory knows for these blocks, sorted and without duplicates.
    pub(crate) fn places_in_memory(&self, names: &[BlockName]) -> Vec<LogAddress> {
        let near = |name: &BlockName| match self.index.near(self.vault.namer().fingerprint(name)) {
            NearAddresses::All(places) | NearAddresses::Some(places) => places,
        };
        let mut places: Vec<LogAddress> = names.iter().flat_map(near).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

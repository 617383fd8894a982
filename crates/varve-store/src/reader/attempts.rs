//! Gets blocks: the attempts to find a block, in their order.
//!
//! A *place* is the address of a clump that may hold the block. The block is usually at the first
//! place that is proposed. Each further attempt is for one failure, and only for the blocks that no
//! earlier attempt has found:
//!
//! | attempt        | the failure that it is for                         | action                                      |
//! |----------------|----------------------------------------------------|---------------------------------------------|
//! | `Proposed`     | none                                               | asks the drafts, the block's by-value name, |
//! |                |                                                    | and the part of the index that is in memory |
//! | `Further`      | memory has no place, or only wrong ones            | reads the index on disk or all directories  |
//! | `ChangedArena` | an arena was replaced since its directory was read | reads the directories of such arenas anew   |
//! | `ReadAnew`     | a read has returned an earlier state of the disk,  | drops the cached frames of wrong places,    |
//! |                | or another block has the same fingerprint          | and reads these places again                |
//!
//! More retries are inside each read, and above it:
//!
//! | retry          | the failure that it is for                         | where                                       |
//! |----------------|----------------------------------------------------|---------------------------------------------|
//! | bad read       | bytes fail their code: a transient fault           | `Window` in `varve-log`                     |
//! | empty caches   | an arena was replaced, or a read was of an earlier | `read_run` in `read_clumps.rs`              |
//! |                | state of the disk                                  |                                             |
//! | look again     | blocks were moved to the end of the log            | `Store::until_settled` in `store.rs`        |
//! | remote call    | a remote target does not answer                    | `RetryingTarget` in `varve-remote`          |
//! | healing        | the block is damaged or gone here for good         | `HealingStore` in `varve-replica`           |
//!
//! The cheapest attempt comes first, and each builds on the earlier ones. Changed arenas are looked
//! for only among the places that the whole index has proposed. Cached frames are dropped only when
//! the index cannot be the cause any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, GetError, LogAddress};
use varve_log::ArenaState;

use super::Reader;
use super::search::{AcceptedForms, BlockSearch, LossNotes, RequestedBlock};
use crate::drafts::PendingBlock;
use crate::role::Permission;

/// One attempt to find blocks.
#[derive(Debug, Clone, Copy)]
enum SearchAttempt {
    Proposed,
    Further,
    ChangedArena,
    ReadAnew,
}

/// All attempts, in their order.
const ATTEMPTS: [SearchAttempt; 4] =
    [SearchAttempt::Proposed, SearchAttempt::Further, SearchAttempt::ChangedArena, SearchAttempt::ReadAnew];

impl Reader {
    /// Gets the blocks of these names. Returns a block only if its bytes have its name.
    pub(crate) fn get_blocks(&self, names: &[BlockName], notes: LossNotes) -> Vec<Result<Bytes, GetError>> {
        // Without the permission not even pending blocks are returned.
        if let Err(refused) = self.vault.role().require(Permission::Read) {
            let refuse = |name: &BlockName| Err(GetError::Failed { name: *name, source: refused.into() });
            return names.iter().map(refuse).collect();
        }
        let search = self.search(names, AcceptedForms::All, notes);
        search.requested.into_iter().map(RequestedBlock::into_result).collect()
    }

    /// Searches for the blocks of these names.
    pub(super) fn search(
        &self,
        names: &[BlockName],
        accepted: AcceptedForms,
        notes: LossNotes,
    ) -> BlockSearch {
        let changed_before = self.finder.changed_count();
        let mut search = BlockSearch::new(names, accepted, notes);
        for attempt in ATTEMPTS {
            let places = self.places_for(attempt, changed_before, &mut search);
            self.read_places(&places, &mut search);
            search.note_read(places);
            if search.is_over() {
                break;
            }
        }
        self.clear_outdated(&mut search);
        if notes == LossNotes::Final {
            for requested in search.requested.iter().filter(|requested| requested.is_lost()) {
                self.lost.add(requested.name);
            }
        }
        search
    }

    /// Forgets damage at places where no directory page names the block: the index is out of date
    /// there, because the arena was replaced. No page names a block that waits for its page, and
    /// damage may have taken the page.
    fn clear_outdated(&self, search: &mut BlockSearch) {
        let BlockSearch { requested, read, .. } = search;
        for (number, requested) in requested.iter_mut().enumerate().filter(|(_, one)| one.is_lost()) {
            let mut places = read.iter().filter(|(_, numbers)| numbers.contains(&number));
            let is_named = places.any(|(address, _)| {
                !matches!(self.vault.directory().find(*address, &requested.name), Ok(None))
                    || !self.may_be_outdated(*address)
            });
            if !is_named && !requested.waits_for_page {
                requested.damage = None;
            }
        }
    }

    /// Returns true if the arena at a place is whole, or ends before it: so nothing but an index
    /// that is out of date leads there. The bytes of an arena without a seal may have been
    /// overwritten.
    fn may_be_outdated(&self, address: LogAddress) -> bool {
        let (log, (id, granule)) = (self.vault.log(), self.vault.map().locate(address));
        match log.open_arena(id).and_then(|arena| log.state(&arena)) {
            Ok(ArenaState::Sealed { .. }) => true,
            Ok(ArenaState::Unsealed) => log.file_bytes(id).is_ok_and(|bytes| bytes <= granule.byte_offset()),
            Err(_) => false,
        }
    }

    /// Returns the places to read for an attempt, each with the numbers of the blocks that may be
    /// there.
    fn places_for(
        &self,
        attempt: SearchAttempt,
        changed_before: u64,
        search: &mut BlockSearch,
    ) -> BTreeMap<LogAddress, Vec<usize>> {
        match attempt {
            SearchAttempt::Proposed => {
                let mut places: BTreeMap<LogAddress, Vec<usize>> = BTreeMap::new();
                for (number, requested) in search.requested.iter_mut().enumerate() {
                    for address in self.proposed(requested) {
                        places.entry(address).or_default().push(number);
                    }
                }
                places
            }
            SearchAttempt::Further => self.further(search),
            SearchAttempt::ChangedArena => {
                let missed = search.missed_places().map(|address| self.vault.map().locate(address).0);
                let arenas = missed.chain(search.missed_homes()).collect();
                let changed = self.finder.take_in_changed(&arenas, changed_before);
                if changed.is_empty() {
                    return BTreeMap::new();
                }
                changed.iter().for_each(|arena| self.frames.forget(self.vault.map(), *arena));
                search.forget_places(|address| changed.contains(&self.vault.map().locate(address).0));
                search.requested.iter_mut().for_each(|requested| requested.may_be_further = true);
                let mut places = self.further(search);
                // A name that is a place leads to the new directory of that arena.
                for (number, requested) in search.requested.iter().enumerate() {
                    if requested.found.is_none() {
                        let by_name = self.vault.directory().places_of(&requested.name.score);
                        for address in by_name.unwrap_or_default() {
                            places.entry(address).or_default().push(number);
                        }
                    }
                }
                places
            }
            // No error and no code shows this failure, because the bytes were good once. So they
            // are dropped from the cache and read again.
            SearchAttempt::ReadAnew => {
                let places = search.take_wrong_places();
                places.keys().for_each(|address| self.frames.remove(*address));
                places
            }
        }
    }

    /// Returns the places where a block may be according to memory. A block that waits in a draft
    /// is taken from there at once, and has no places.
    fn proposed(&self, requested: &mut RequestedBlock) -> Vec<LogAddress> {
        if self.vault.namer().is_everywhere(&requested.name.score) {
            requested.found = Some(Bytes::new());
            return Vec::new();
        }
        match self.drafts.waiting(&requested.name) {
            Some(PendingBlock::At(address)) => {
                requested.waits_for_page = true;
                return vec![address];
            }
            Some(PendingBlock::Here(bytes)) => {
                requested.found = bytes;
                return Vec::new();
            }
            None => {}
        }
        match self.vault.directory().places_of(&requested.name.score) {
            Ok(places) if !places.is_empty() => {
                requested.may_be_further = true;
                return places;
            }
            Ok(_) => {}
            Err(error) => requested.damage = Some(Arc::new(error)),
        }
        let (near, is_all) = self.finder.look_near(&requested.name);
        if near.is_empty() && !is_all {
            return self.finder.look_further(&requested.name);
        }
        requested.may_be_further = !is_all;
        near
    }

    /// Returns the places that the whole index proposes for blocks that were not found, except
    /// places that were read already.
    fn further(&self, search: &mut BlockSearch) -> BTreeMap<LogAddress, Vec<usize>> {
        let mut further: BTreeMap<LogAddress, Vec<usize>> = BTreeMap::new();
        for (number, requested) in search.requested.iter_mut().enumerate() {
            if requested.found.is_none() && requested.may_be_further {
                requested.may_be_further = false;
                for address in self.finder.look_further(&requested.name) {
                    if !search.read.get(&address).is_some_and(|numbers| numbers.contains(&number)) {
                        further.entry(address).or_default().push(number);
                    }
                }
            }
        }
        further
    }
}

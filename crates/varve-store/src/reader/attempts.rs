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

use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, GetError, LogAddress};
use varve_log::ArenaState;

use super::Reader;
use super::search::{AcceptedForms, BlockSearch, ExpectedBlocks, KnownInMemory, LossNotes};
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
        self.search(names, AcceptedForms::All, notes).into_results().collect()
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
        // Where no directory page names the block, the index is out of date, because the arena was
        // replaced.
        search.forget_outdated_damage(|address, name| {
            matches!(self.vault.directory().find(address, name), Ok(None)) && self.may_be_outdated(address)
        });
        if notes == LossNotes::Final {
            search.lost().for_each(|name| self.lost.add(name));
        }
        search
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
    ) -> ExpectedBlocks {
        let further = |name: &BlockName| self.finder.look_further(name);
        match attempt {
            SearchAttempt::Proposed => search.ask_memory(|name| self.known_in_memory(name)),
            SearchAttempt::Further => search.further(further),
            SearchAttempt::ChangedArena => {
                let missed = search.missed_places().map(|address| self.vault.map().locate(address).0);
                let arenas = missed.chain(search.missed_homes()).collect();
                let changed = self.finder.take_in_changed(&arenas, changed_before);
                if changed.is_empty() {
                    return ExpectedBlocks::new();
                }
                changed.iter().for_each(|arena| self.frames.forget(self.vault.map(), *arena));
                search.forget_places(|address| changed.contains(&self.vault.map().locate(address).0));
                let mut places = search.further(further);
                // A name that is a place leads to the new directory of that arena.
                search.add_places(&mut places, |name| {
                    self.vault.directory().places_of(&name.score).unwrap_or_default()
                });
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

    /// Asks memory for a block: the drafts, its by-value name, and the part of the index that is in
    /// memory.
    fn known_in_memory(&self, name: &BlockName) -> KnownInMemory {
        if self.vault.namer().is_everywhere(&name.score) {
            return KnownInMemory::Here(Some(Bytes::new()));
        }
        match self.drafts.waiting(name) {
            Some(PendingBlock::At(address)) => return KnownInMemory::WaitsForPage(address),
            Some(PendingBlock::Here(bytes)) => return KnownInMemory::Here(bytes),
            None => {}
        }
        let damage = match self.vault.directory().places_of(&name.score) {
            Ok(places) if !places.is_empty() => {
                return KnownInMemory::MayBeAt { places, may_be_further: true, damage: None };
            }
            Ok(_) => None,
            Err(error) => Some(Arc::new(error)),
        };
        let (near, is_all) = self.finder.look_near(name);
        if near.is_empty() && !is_all {
            let places = self.finder.look_further(name);
            return KnownInMemory::MayBeAt { places, may_be_further: false, damage };
        }
        KnownInMemory::MayBeAt { places: near, may_be_further: !is_all, damage }
    }
}

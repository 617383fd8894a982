//! Arenas whose files differ from those that the index was made from: a collector or a repair has
//! replaced them, or somebody has put back an earlier file. The log is right and the index is
//! wrong: the same blocks lie in other places.

use std::collections::{BTreeMap, BTreeSet};

use varve_log::{ArenaId, ArenaState, Granule, OpenedArena, Seal};

use super::Finder;

/// The arenas that were found to be replaced because a block was not where it was.
#[derive(Default)]
pub(super) struct ChangedArenas {
    /// The number of times that an arena was found to be replaced.
    count: u64,
    /// For each such arena, the count at the last time.
    last: BTreeMap<ArenaId, u64>,
}

impl Finder {
    /// Checks these arenas because blocks are not where the saved index says. Adds those that
    /// differ from the ones that it knows. Returns the arenas that were added since
    /// [`changed_count`](Self::changed_count) was `since`, also those that another thread has
    /// added: the caller may have looked for its blocks before.
    pub(crate) fn take_in_changed(&self, suspected: &BTreeSet<ArenaId>, since: u64) -> BTreeSet<ArenaId> {
        // The lock is held until the new directories are in the index. Another thread that misses a
        // block in the same arena waits for them.
        let mut changed = self.changed.lock();
        for id in suspected {
            if self.is_other_than_taken(*id) {
                tracing::info!(arena = %id, "an arena was replaced since its directory was read");
                if self.take_in_replaced(*id) {
                    changed.count += 1;
                    let count = changed.count;
                    changed.last.insert(*id, count);
                }
            }
        }
        let is_new = |id: &&ArenaId| changed.last.get(*id).is_some_and(|count| *count > since);
        suspected.iter().filter(is_new).copied().collect()
    }

    /// Returns the number of times that [`take_in_changed`](Self::take_in_changed) has added an
    /// arena.
    pub(crate) fn changed_count(&self) -> u64 {
        self.changed.lock().count
    }

    /// Reads the directory of a replaced arena into the index. Its old entries stay there: they
    /// propose places that turn out to be wrong. Returns false if it cannot be read.
    pub(crate) fn take_in_replaced(&self, id: ArenaId) -> bool {
        self.vault.directory().forget(id);
        self.forget_notes_in(id);
        match self.follow_arena(id, Granule::default()) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(arena = %id, %error, "the replaced arena cannot be read");
                false
            }
        }
    }

    /// Records an arena whose pages are read into the index.
    pub(crate) fn note_taken(&self, arena: &OpenedArena) {
        self.believed.lock().remove(arena.id());
        self.taken.lock().insert(arena.id(), arena.header().uid);
    }

    /// Returns true if the saved index knows an arena as sealed, and the arena was not checked
    /// since.
    pub(crate) fn is_believed(&self, id: ArenaId) -> bool {
        self.believed.lock().contains(id)
    }

    /// Returns true if an arena differs from the one whose pages are in the index.
    fn is_other_than_taken(&self, id: ArenaId) -> bool {
        let log = self.vault.log();
        let taken = self.taken.lock().get(&id).copied();
        if let Some(uid) = taken {
            // Damage is reported to the caller that requests a block there.
            return log.open_arena(id).is_ok_and(|arena| arena.header().uid != uid);
        }
        let mut believed = self.believed.lock();
        let Some(known) = believed.get(id).copied() else { return false };
        believed.remove(id);
        drop(believed);
        match log.read_arena(id, |arena| Ok((log.state(&arena)?, arena))) {
            Ok((ArenaState::Sealed { footer, .. }, arena)) => {
                let is_other = Seal::of(arena.header(), &footer) != known;
                if !is_other {
                    // It may be replaced later.
                    self.note_taken(&arena);
                }
                is_other
            }
            Ok((ArenaState::Unsealed, _)) => true,
            // Damage is reported to the caller that requests a block there.
            Err(_) => false,
        }
    }
}

//! Arenas whose files differ from those that the index was made from: a collector or a repair has
//! replaced them, or somebody has put back an earlier file. The log is right and the index is
//! wrong: the same blocks lie in other places.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use varve_log::{ArenaId, ArenaState, Granule, OpenedArena, Seal};

use super::Finder;

impl Finder {
    /// Checks these arenas because blocks are not where the saved index says. Adds those that
    /// differ from the ones that it knows, and returns them.
    pub(crate) fn take_in_changed(&self, suspected: &BTreeSet<ArenaId>) -> BTreeSet<ArenaId> {
        let is_changed = |id: &ArenaId| {
            self.is_other_than_taken(*id) && {
                tracing::info!(arena = %id, "an arena was replaced since its directory was read");
                self.take_in_replaced(*id)
            }
        };
        let changed: BTreeSet<_> = suspected.iter().copied().filter(is_changed).collect();
        self.changed_count.fetch_add(changed.len() as u64, Ordering::Relaxed);
        changed
    }

    /// Returns the number of arenas that [`take_in_changed`](Self::take_in_changed) has returned.
    pub(crate) fn changed_count(&self) -> u64 {
        self.changed_count.load(Ordering::Relaxed)
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

    /// Returns true if an arena differs from the one whose pages are in the index. An arena that
    /// only the saved index knows is checked once.
    fn is_other_than_taken(&self, id: ArenaId) -> bool {
        let log = self.vault.log();
        let taken = self.taken.lock().get(&id).copied();
        if let Some(uid) = taken {
            return log.open_arena(id).is_ok_and(|arena| arena.header().uid != uid);
        }
        let mut believed = self.believed.lock();
        let Some(known) = believed.get(id).copied() else { return false };
        believed.remove(id);
        drop(believed);
        match log.open_arena(id).and_then(|arena| Ok((log.state(&arena)?, arena))) {
            Ok((ArenaState::Sealed { footer, .. }, arena)) => Seal::of(arena.header(), &footer) != known,
            Ok((ArenaState::Unsealed, _)) => true,
            // Damage is reported to the caller that requests a block there.
            Err(_) => false,
        }
    }
}

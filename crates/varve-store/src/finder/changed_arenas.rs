//! Arenas whose files differ from those that the saved index knows: they were mended, or somebody
//! replaced them. The log is right and the saved index is wrong: the same blocks lie in other
//! places.

use std::collections::BTreeSet;

use varve_log::{ArenaId, ArenaState, Granule, Seal};

use super::Finder;

impl Finder {
    /// Checks these arenas because blocks are not where the saved index says. Adds those that
    /// differ from the ones that it knows, and returns true if there was one: an arena was put back
    /// as it was before a repair, or after.
    pub(crate) fn take_in_changed(&self, suspected: &BTreeSet<ArenaId>) -> bool {
        let mut is_any = false;
        for id in suspected.iter().copied().filter(|id| self.is_other_than_believed(*id)) {
            tracing::warn!(arena = %id, "an arena was replaced since the index was saved");
            self.vault.directory().forget(id);
            match self.follow_arena(id, Granule::default()) {
                Ok(_) => is_any = true,
                Err(error) => tracing::warn!(arena = %id, %error, "the replaced arena cannot be read"),
            }
        }
        is_any
    }

    /// Returns true if the saved index knows an arena as sealed, and the arena was not checked
    /// since.
    pub(crate) fn is_believed(&self, id: ArenaId) -> bool {
        self.believed.lock().contains(id)
    }

    /// Returns true if an arena differs from the one that the saved index knows. Each arena is
    /// checked once.
    fn is_other_than_believed(&self, id: ArenaId) -> bool {
        let mut believed = self.believed.lock();
        let Some(known) = believed.get(id).copied() else { return false };
        believed.remove(id);
        drop(believed);
        let log = self.vault.log();
        match log.open_arena(id).and_then(|arena| Ok((log.state(&arena)?, arena))) {
            Ok((ArenaState::Sealed { footer, .. }, arena)) => Seal::of(arena.header(), &footer) != known,
            Ok((ArenaState::Unsealed, _)) => true,
            // Damage is reported to the caller that requests a block there.
            Err(_) => false,
        }
    }
}

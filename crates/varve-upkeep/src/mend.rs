//! Mends: gives a damaged arena back its bytes, from its parity or from a copy, or writes it anew
//! without the lost parts.
//!
//! A plan lists the ways for each damaged arena. [`Mender::mend`] mends whole arenas, and
//! [`Mender::rewrite`] then writes anew the arenas for which every other way has failed. In between
//! the caller fetches lost blocks and records losses.
//!
//! It owns no state. Always true: the new file is whole, checked and durable before it takes the
//! old one's name. Every hint that knew the old file is removed before that. A crash between two
//! steps leaves a store that can be opened, and mended again.

mod from_copy;
mod from_parity;
mod plan;
mod rewrite;
mod whole_arenas;

pub use from_parity::{MendError, MendedArena};
pub use plan::{ArenaMend, MendPlan, MendWay};
pub use rewrite::{RepairError, Repaired};

use std::sync::Arc;

use varve_log::{ArenaId, ArenaState, Log, OpenedArena, ReadLogError, Seal};
use varve_store::{Intake, ReplaceError, Store, Vault};

/// Mends a store that is open for writing.
#[derive(Clone, Copy)]
pub struct Mender<'a> {
    store: &'a Store,
    intake: &'a Intake,
}

impl<'a> Mender<'a> {
    /// Makes a mender of this store.
    ///
    /// # Errors
    /// [`RepairError::ReadOnly`].
    pub fn of(store: &'a Store) -> Result<Self, RepairError> {
        let intake = store.intake().ok_or(RepairError::ReadOnly)?;
        Ok(Self { store, intake })
    }

    fn vault(&self) -> &'a Vault {
        self.store.vault()
    }

    fn log(&self) -> &'a Arc<Log> {
        self.store.vault().log()
    }

    /// From now on, unreadable data counts as lost.
    pub fn accept_withheld(&self) {
        self.intake.accept_withheld();
    }

    /// Adds the sealed arenas that differ from those that this session knows, because somebody has
    /// replaced them, and returns their numbers. Skips their damaged pages.
    ///
    /// # Errors
    /// [`RepairError`] when an arena cannot be read for a reason other than damage, or a saved
    /// index cannot be removed.
    pub fn take_in_replaced(&self) -> Result<Vec<ArenaId>, RepairError> {
        let mut replaced = Vec::new();
        for id in self.log().arenas()? {
            let (state, arena) = match self.open_with_state(id) {
                Ok(opened) => opened,
                Err(error) if error.is_damage() => continue,
                Err(error) => return Err(error.into()),
            };
            let ArenaState::Sealed { footer, mut pages } = state else { continue };
            if !self.intake.is_news(id, Seal::of(arena.header(), &footer)) {
                continue;
            }
            if replaced.is_empty() {
                self.intake.let_go_of_saved_index().map_err(ReplaceError::from)?;
            }
            pages.retain(|row| self.log().read_page(&arena, row).is_ok());
            self.intake.take_in_sealed::<RepairError>(&arena, &footer, &pages)?;
            tracing::warn!(arena = %id, "an arena was replaced while the store was open");
            replaced.push(id);
        }
        Ok(replaced)
    }

    fn open_with_state(&self, id: ArenaId) -> Result<(ArenaState, OpenedArena), ReadLogError> {
        let arena = self.log().open_arena(id)?;
        Ok((self.log().state(&arena)?, arena))
    }
}

//! The names of all blocks of an arena in the log's order, for callers that copy the whole store.

use std::sync::Arc;

use varve_block::BlockName;
use varve_log::{ArenaId, DirectoryPage, OpenedArena, ReadLogError};

use super::Vault;

/// The names of an arena's blocks.
#[derive(Debug, Default)]
pub struct ArenaNames {
    /// In the log's order, which never changes. Blocks of an unreadable page are missing.
    pub names: Vec<BlockName>,
    /// The error of an unreadable page, if there was one.
    pub failure: Option<ReadLogError>,
}

impl Vault {
    /// Iterates over the directory pages of an arena. See
    /// [`Store::pages_in_arena`](crate::Store::pages_in_arena).
    pub(crate) fn pages_in_arena(
        &self,
        arena: ArenaId,
    ) -> Result<impl Iterator<Item = Result<Arc<DirectoryPage>, ReadLogError>>, ReadLogError> {
        self.directory.pages(arena)
    }

    /// Opens the arenas that may hold deltas. See
    /// [`Store::arenas_with_deltas`](crate::Store::arenas_with_deltas).
    pub(crate) fn arenas_with_deltas<'a>(
        &'a self,
        arenas: &'a [ArenaId],
    ) -> impl Iterator<Item = Result<OpenedArena, ReadLogError>> + 'a {
        let mut has_deltas = false;
        arenas.iter().filter(|id| !self.log().was_never_begun(**id).unwrap_or(false)).filter_map(move |id| {
            match self.log().open_arena(*id) {
                // No arena before the first one with deltas has any.
                Err(error) if !has_deltas && error.is_damage() => None,
                Err(error) => Some(Err(error)),
                Ok(arena) => {
                    let may_hold_deltas = arena.header().may_hold_deltas();
                    has_deltas |= may_hold_deltas;
                    may_hold_deltas.then_some(Ok(arena))
                }
            }
        })
    }

    /// Returns the names of all blocks that pages name in an arena. After a sync these are all its
    /// blocks.
    ///
    /// Takes about forty bytes of memory for each name.
    ///
    /// # Errors
    /// [`ReadLogError`] when nothing of the arena can be read.
    pub(crate) fn names_in_arena(&self, arena: ArenaId) -> Result<ArenaNames, ReadLogError> {
        let mut found = ArenaNames::default();
        let mut collect = || {
            found = ArenaNames::default();
            for page in self.directory.pages(arena)? {
                match page {
                    Ok(page) => found.names.extend(page.blocks().map(|block| block.name)),
                    Err(error) => found.failure = Some(error),
                }
            }
            // An arena that was replaced meanwhile is read again.
            found.failure.take().map_or(Ok(()), Err)
        };
        let read = self.directory.read(arena, &mut collect);
        match read {
            Ok(()) => Ok(found),
            Err(error) if found.names.is_empty() => Err(error),
            Err(error) => Ok(ArenaNames { failure: Some(error), ..found }),
        }
    }
}

//! The names of all blocks of an arena in the log's order, for callers that copy the whole store.

use std::sync::Arc;

use varve_block::BlockName;
use varve_log::{ArenaId, DirectoryPage, ReadLogError};

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

    /// Returns the names of all blocks that pages name in an arena. After a sync these are all its
    /// blocks.
    ///
    /// Takes about forty bytes of memory for each name.
    ///
    /// # Errors
    /// [`ReadLogError`] when nothing of the arena can be read.
    pub(crate) fn names_in_arena(&self, arena: ArenaId) -> Result<ArenaNames, ReadLogError> {
        let mut found = ArenaNames::default();
        for page in self.directory.pages(arena)? {
            match page {
                Ok(page) => found.names.extend(page.blocks().map(|block| block.name)),
                Err(error) => found.failure = Some(error),
            }
        }
        Ok(found)
    }
}

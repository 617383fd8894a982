//! What a store holds, name by name, in the log's order: for whoever takes all of it somewhere else.

use varve_block::BlockName;
use varve_log::{ArenaId, ReadLogError};

use super::Vault;

/// The names of an arena's blocks.
#[derive(Debug, Default)]
pub struct ArenaNames {
    /// In the log's order, which never changes; but what is named by a page that cannot be read is missing here.
    pub names: Vec<BlockName>,
    /// Why a page could not be read, if that happened.
    pub failure: Option<ReadLogError>,
}

impl Vault {
    /// The names of all blocks that an arena holds, as far as pages name them: after a sync, all.
    ///
    /// Takes some forty bytes of memory for each.
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

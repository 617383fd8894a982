//! The successors of arenas that a collector has made, while they are in files of their own.

use std::io;
use std::sync::Arc;

use varve_log::{ArenaId, ArenaState, Seal};

use super::{UnfinishedFile, Vault};

impl Vault {
    /// Lists the arenas that have a successor in a file of its own, finished or not.
    ///
    /// # Errors
    /// When the folder of the arenas cannot be listed.
    pub fn successors(&self) -> io::Result<Vec<ArenaId>> {
        let files = self.storage().list(ArenaId::FOLDER)?;
        Ok(files.iter().filter_map(ArenaId::of_successor_file).collect())
    }

    /// Returns the seal of an arena's successor; `None` if it has none that is sealed.
    #[must_use]
    pub fn successor_seal(&self, id: ArenaId) -> Option<Seal> {
        let storage = Arc::clone(&self.world.storage);
        let view = UnfinishedFile { storage, arena: id, file: id.successor_file_name() };
        let log = self.log.over(Arc::new(view));
        let arena = log.open_arena(id).ok()?;
        match log.state(&arena).ok()? {
            ArenaState::Sealed { footer, .. } => Some(Seal::of(arena.header(), &footer)),
            ArenaState::Unsealed => None,
        }
    }
}

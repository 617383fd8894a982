//! The arenas that hold the file contents of this session. A machine that may not read the store
//! remembers them: what it has put stays there while they stand.

use std::collections::BTreeSet;

use varve_block::{BlockKind, BlockName, LogAddress};
use varve_log::ArenaId;

use super::Intake;
use crate::config::CompareMode;

/// Returns true if a block belongs to the content of a file, as a leaf or as a pointer block.
fn is_data(name: &BlockName) -> bool {
    name.block_type.kind() == BlockKind::Data
}

impl Intake {
    /// Returns the arenas that hold the file contents which this session has put, whether they were
    /// stored or found there. Every block must have been synced. `None` in a store that compares by
    /// value, where this is not noted.
    pub(crate) fn data_arenas(&self) -> Option<BTreeSet<ArenaId>> {
        match self.vault.config().compare {
            CompareMode::Hash => Some(self.data_arenas.lock().clone()),
            CompareMode::Value => None,
        }
    }

    /// Notes the places in which blocks were found that have been put again.
    pub(super) fn note_found_data<'a>(&self, found: impl Iterator<Item = (&'a BlockName, LogAddress)>) {
        let data = found.filter(|(name, _)| is_data(name));
        let arenas: BTreeSet<_> = data.map(|(_, place)| self.vault.map().locate(place).0).collect();
        if !arenas.is_empty() {
            self.data_arenas.lock().extend(arenas);
        }
    }

    /// Notes the place of a clump that was appended with these blocks.
    pub(super) fn note_stored_data(&self, mut names: impl Iterator<Item = BlockName>, place: LogAddress) {
        if names.any(|name| is_data(&name)) {
            self.data_arenas.lock().insert(self.vault.map().locate(place).0);
        }
    }
}

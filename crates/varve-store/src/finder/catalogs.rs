//! The catalog roots in sight: the newest catalog, and the roots that have to be read to know
//! everything that it lists.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use varve_block::{BlockName, BlockType, LogAddress};
use varve_log::{ArenaId, DirectoryPage};

use super::Finder;
use crate::saved_index::RootsInSight;

/// The catalog roots that pages name.
pub(super) struct Catalogs {
    /// The newest root of a writer that could read its predecessor, and all roots after it.
    roots: Mutex<BTreeMap<LogAddress, BlockName>>,
    /// The roots in pages that may have outlived their clumps. A key that cannot read cannot check
    /// that.
    uncertain: Mutex<Vec<(LogAddress, BlockName)>>,
}

impl Catalogs {
    pub(super) fn new(roots: BTreeMap<LogAddress, BlockName>) -> Self {
        Self { roots: Mutex::new(roots), uncertain: Mutex::default() }
    }
}

impl Finder {
    /// Returns the roots in sight, by their addresses.
    pub(crate) fn catalogs(&self) -> BTreeMap<LogAddress, BlockName> {
        self.catalogs.roots.lock().clone()
    }

    /// Returns the roots and the notes in sight.
    pub(crate) fn in_sight(&self) -> RootsInSight {
        RootsInSight { catalogs: self.catalogs(), notes: self.note_places() }
    }

    pub(crate) fn has_catalog(&self) -> bool {
        !self.catalogs.roots.lock().is_empty()
    }

    /// Returns the newest catalog root first. If this store's key cannot tell whether that root is
    /// complete, the roots before it follow.
    pub(crate) fn newest_catalogs(&self) -> Vec<BlockName> {
        let last = self.catalogs.roots.lock().last_key_value().map(|(address, name)| (*address, *name));
        let is_newer = |address: &LogAddress| last.is_none_or(|(known, _)| *address > known);
        let uncertain = self.catalogs.uncertain.lock();
        let mut roots: Vec<_> = uncertain.iter().copied().filter(|(address, _)| is_newer(address)).collect();
        drop(uncertain);
        roots.extend(last);
        roots.sort_by_key(|(address, _)| std::cmp::Reverse(*address));
        roots.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the address of the newest root of a writer that could read its predecessor.
    pub(crate) fn newest_final_catalog(&self) -> Option<LogAddress> {
        let roots = self.catalogs.roots.lock();
        roots.keys().rev().copied().find(|place| self.is_final(*place))
    }

    /// Records the root that a page names, if it names one. `is_appended`: this session wrote the
    /// page at the end of the log.
    pub(crate) fn note_catalog(&self, arena: ArenaId, page: &DirectoryPage, is_appended: bool) {
        let Some(root) = page.last_of_type(BlockType::CATALOG) else { return };
        let Some(address) = self.vault.map().address(arena, root.granule) else { return };
        let is_final = self.is_final(address);
        let mut roots = self.catalogs.roots.lock();
        if is_final && is_appended {
            // A root at a later address does not count either. Only a saved index can know such a
            // root, one that was saved before the end of the log was lost.
            roots.clear();
        }
        roots.insert(address, root.name);
        // Arenas without a seal are read last, so roots at later addresses may be known already.
        let is_behind_others = roots.keys().next_back() == Some(&address);
        if is_final || !is_behind_others {
            let newest = roots.keys().rev().copied().find(|place| self.is_final(*place));
            roots.retain(|place, _| newest.is_none_or(|newest| *place >= newest));
        }
    }

    /// Drops the roots in an arena that is about to be replaced. Those of its new generation are
    /// recorded with its pages.
    pub(super) fn forget_catalogs_in(&self, arena: ArenaId) {
        let map = self.vault.map();
        self.catalogs.roots.lock().retain(|address, _| map.locate(*address).0 != arena);
    }

    /// Records the root that a page names, for a key that cannot tell whether the root's clump
    /// exists.
    pub(crate) fn note_uncertain_catalog(&self, arena: ArenaId, page: &DirectoryPage) {
        let Some(root) = page.last_of_type(BlockType::CATALOG) else { return };
        let address = self.vault.map().address(arena, root.granule);
        self.catalogs.uncertain.lock().extend(address.map(|address| (address, root.name)));
    }

    /// Returns true if a root was written by somebody who could read the root before it. Of any
    /// other root nobody knows whether it leads to all earlier snapshots.
    pub(crate) fn is_final(&self, root: LogAddress) -> bool {
        let (arena, _) = self.vault.map().locate(root);
        self.vault.directory().arena(arena).is_ok_and(|arena| !arena.header().is_write_only())
    }
}

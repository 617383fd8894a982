//! The catalog roots in sight: where the newest catalog is, and which roots have to be read to know all that it lists.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use varve_block::{BlockName, BlockType, LogAddress};
use varve_log::{ArenaId, DirectoryPage};

use super::Finder;

/// The catalog roots that pages name.
pub(super) struct Catalogs {
    /// The newest root of a writer that could read the one before it, and all roots behind that.
    roots: Mutex<BTreeMap<LogAddress, BlockName>>,
    /// Roots in pages that may have outlived their clumps: a key that cannot read cannot tell.
    uncertain: Mutex<Vec<(LogAddress, BlockName)>>,
}

impl Catalogs {
    pub(super) fn new(roots: BTreeMap<LogAddress, BlockName>) -> Self {
        Self { roots: Mutex::new(roots), uncertain: Mutex::default() }
    }
}

impl Finder {
    /// The roots in sight, by where they are.
    pub(crate) fn catalogs(&self) -> BTreeMap<LogAddress, BlockName> {
        self.catalogs.roots.lock().clone()
    }

    pub(crate) fn has_catalog(&self) -> bool {
        !self.catalogs.roots.lock().is_empty()
    }

    /// The newest catalog root first, and then, as far as this store's key cannot tell whether that is whole, those before it.
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

    /// The place of the newest root of a writer that could read the one before it.
    pub(crate) fn newest_final_catalog(&self) -> Option<LogAddress> {
        let roots = self.catalogs.roots.lock();
        roots.keys().rev().copied().find(|place| self.is_final(*place))
    }

    /// Notes the root that a page names, if it names one. `is_appended`: by this session, behind all that there is.
    pub(crate) fn note_catalog(&self, arena: ArenaId, page: &DirectoryPage, is_appended: bool) {
        let Some(root) = page.last_of_type(BlockType::CATALOG) else { return };
        let Some(address) = self.vault.map().address(arena, root.granule) else { return };
        let is_final = self.is_final(address);
        let mut roots = self.catalogs.roots.lock();
        if is_final && is_appended {
            // Not even a root behind it counts: only an index can know that one, which was saved before the end of the log
            // was lost.
            roots.clear();
        }
        roots.insert(address, root.name);
        // Arenas without a seal are taken in last, and others may lie behind them.
        let is_behind_others = roots.keys().next_back() == Some(&address);
        if is_final || !is_behind_others {
            let newest = roots.keys().rev().copied().find(|place| self.is_final(*place));
            roots.retain(|place, _| newest.is_none_or(|newest| *place >= newest));
        }
    }

    /// Notes the root that a page names of which this key cannot tell whether its clump is there.
    pub(crate) fn note_uncertain_catalog(&self, arena: ArenaId, page: &DirectoryPage) {
        let Some(root) = page.last_of_type(BlockType::CATALOG) else { return };
        let address = self.vault.map().address(arena, root.granule);
        self.catalogs.uncertain.lock().extend(address.map(|address| (address, root.name)));
    }

    /// Whether a root is that of a writer that could read the one before it. Of any other nobody knows whether it leads to
    /// all that was there.
    pub(crate) fn is_final(&self, root: LogAddress) -> bool {
        let (arena, _) = self.vault.map().locate(root);
        self.vault.directory().arena(arena).is_ok_and(|arena| !arena.header().is_write_only())
    }
}

//! Adds the names in directory pages to the index.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use varve_block::BlockType;
use varve_log::{
    AppendError, AppendedPage, ArenaId, ArenaState, DirectoryPage, Granule, OpenedArena, PageRow,
    ReadLogError, RecoveredArena,
};

use super::Finder;
use crate::vault::OpenStoreError;

/// The position in an arena up to which it has been followed.
pub(crate) enum FollowedArena {
    /// All of its pages have been added, and there will be no more.
    Sealed,
    Growing {
        /// All pages before this place have been added.
        taken: Granule,
    },
}

impl Finder {
    /// Adds the pages of an arena without a seal, from the place on that the saved index does not
    /// cover.
    pub(crate) fn take_in(
        &self,
        arena: &OpenedArena,
        found: &RecoveredArena,
        covered: Option<Granule>,
    ) -> Result<(), AppendError> {
        self.note_taken(arena);
        for (row, page) in &found.pages {
            self.vault.directory().note_unsealed(arena.id(), *row);
            if covered.is_none_or(|covered| row.granule >= covered) {
                self.insert_page(arena.id(), page)?;
            }
        }
        Ok(())
    }

    /// Adds the names in a page to the index, while the log is being read.
    pub(crate) fn insert_page(&self, arena: ArenaId, page: &DirectoryPage) -> Result<(), AppendError> {
        self.insert_names(arena, page)?;
        self.note_catalog(arena, page, false);
        self.note_notes(arena, page);
        // The part of the log that has been read is not known here, so the run that is written now
        // is saved later.
        if let Some(index) = self.index.disk().filter(|index| index.is_due()) {
            index.begin(None);
        }
        Ok(())
    }

    /// Adds a page that this session has just written.
    pub(crate) fn insert_appended(&self, appended: &AppendedPage) -> Result<(), AppendError> {
        self.vault.directory().note_appended(appended);
        self.insert_names(appended.arena, &appended.page)?;
        self.note_catalog(appended.arena, &appended.page, true);
        self.note_notes(appended.arena, &appended.page);
        Ok(())
    }

    /// Takes the names of arenas out of the index that are about to be replaced. An index on disk
    /// drops them when it is written next.
    pub(crate) fn take_out(&self, arenas: &BTreeSet<ArenaId>) {
        for id in arenas {
            self.forget_notes_in(*id);
            self.forget_catalogs_in(*id);
        }
        if let Some(index) = self.index.disk() {
            let places: Vec<_> = arenas.iter().map(|id| self.vault.map().granules_of(*id)).collect();
            index.outdate(&places);
            return;
        }
        for id in arenas {
            // Entries that stay because their page cannot be read propose places that turn out to
            // be wrong.
            let Ok(pages) = self.vault.directory().pages(*id) else { continue };
            pages.filter_map(Result::ok).for_each(|page| self.remove_page(*id, &page));
        }
    }

    /// Removes the names in a page from an index in memory.
    fn remove_page(&self, arena: ArenaId, page: &DirectoryPage) {
        let (map, namer) = (self.vault.map(), self.vault.namer());
        let entries = page
            .blocks()
            .filter_map(|block| Some((namer.fingerprint(&block.name), map.address(arena, block.granule)?)));
        self.index.remove_all(&entries.collect::<Vec<_>>());
    }

    fn insert_names(&self, arena: ArenaId, page: &DirectoryPage) -> Result<(), AppendError> {
        let (map, namer) = (self.vault.map(), self.vault.namer());
        if !self.has_no_index {
            let entries = page.blocks().map(|block| {
                let address = map.address(arena, block.granule).ok_or(AppendError::LogFull)?;
                Ok((namer.fingerprint(&block.name), address))
            });
            let entries = entries.collect::<Result<Vec<_>, AppendError>>()?;
            let inserted = self.index.insert_all(&entries).map_err(|_| AppendError::LogFull)?;
            self.unsaved_blocks.fetch_add(inserted, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds the pages of an arena from a place on; all of them if the arena was replaced since it
    /// was read.
    ///
    /// # Errors
    /// [`OpenStoreError`] when the arena cannot be read, or there is no room for the names.
    pub(crate) fn follow_arena(&self, id: ArenaId, from: Granule) -> Result<FollowedArena, OpenStoreError> {
        let (log, directory) = (self.vault.log(), self.vault.directory());
        let mut full = Ok(());
        // If the arena is replaced meanwhile and read again, the names of before propose places
        // that turn out to be wrong.
        let mut take = |page: &DirectoryPage| {
            if full.is_ok() {
                full = self.insert_page(id, page);
            }
        };
        let followed = log.read_arena(id, |arena| {
            let is_same = self.taken.lock().get(&id).is_none_or(|uid| *uid == arena.header().uid);
            if !is_same {
                directory.forget(id);
            }
            let from = if is_same { from } else { Granule::default() };
            if let ArenaState::Sealed { pages, .. } = log.state(&arena)? {
                self.each_whole_page(&arena, pages.iter().filter(|row| row.granule >= from), &mut take)?;
                directory.note_sealed(|sealed| sealed == id);
                return Ok((arena, FollowedArena::Sealed));
            }
            let mut found = log.scan(&arena)?;
            self.leave_out_lost_roots(&arena, &mut found)?;
            // The next writer cuts off the durable marks at the end.
            found.drop_mark();
            let taken = found.pages.last().map_or(from, |(row, _)| row.after());
            directory.note_unsealed_anew(id, found.pages.iter().map(|(row, _)| *row).collect());
            found.pages.iter().filter(|(row, _)| row.granule >= from).for_each(|(_, page)| take(page));
            Ok((arena, FollowedArena::Growing { taken }))
        });
        let (arena, followed) = followed?;
        full?;
        self.note_taken(&arena);
        Ok(followed)
    }

    /// Calls `take` with the pages of a sealed arena, except for damaged ones. If the arena was
    /// replaced while they were read, returns the damage, so that the arena is read again.
    fn each_whole_page<'a>(
        &self,
        arena: &OpenedArena,
        rows: impl Iterator<Item = &'a PageRow>,
        take: &mut dyn FnMut(&DirectoryPage),
    ) -> Result<(), ReadLogError> {
        for row in rows {
            match self.vault.log().read_page(arena, row) {
                Ok(page) => take(&page),
                Err(error) if error.is_damage() && !self.vault.log().is_replaced(arena) => {
                    tracing::error!(%error, "a directory page is damaged");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Drops pages whose catalog root is lost. A power cut may have kept a page and lost the
    /// catalog root that it names. A writer cuts such a page off. A reader ignores it, and finds
    /// the root before it. Everything that a root leads to was durable before the root was written.
    pub(crate) fn leave_out_lost_roots(
        &self,
        arena: &OpenedArena,
        found: &mut RecoveredArena,
    ) -> Result<(), ReadLogError> {
        let log = self.vault.log();
        if !log.keys().can_read() {
            return Ok(());
        }
        let durable = found.durable();
        let mut window = log.window(arena, 0);
        let mut failed = None;
        found.pages.retain(|(row, page)| {
            let root = page.last_of_type(BlockType::CATALOG).filter(|root| root.granule >= durable);
            match root.map(|root| window.clump(root.granule)) {
                // Its root was not lost in a power cut: a collector has replaced the arena.
                Some(Err(error)) if error.is_damage() && log.is_replaced(arena) => {
                    failed.get_or_insert(error);
                    true
                }
                // Bytes that the disk does not return were not lost in a power cut.
                Some(Err(error)) if error.is_damage() && !error.is_unreadable() => {
                    tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its root");
                    false
                }
                Some(Err(error)) if !error.is_damage() => {
                    failed.get_or_insert(error);
                    true
                }
                _ => true,
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

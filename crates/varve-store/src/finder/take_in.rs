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
pub(crate) struct FollowedArena {
    pub(crate) is_sealed: bool,
    /// All pages before this place have been added.
    pub(crate) taken: Granule,
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

    /// Adds the pages of an arena from a place on.
    ///
    /// # Errors
    /// [`OpenStoreError`] when the arena cannot be read, or there is no room for the names.
    pub(crate) fn follow_arena(&self, id: ArenaId, from: Granule) -> Result<FollowedArena, OpenStoreError> {
        let (log, directory) = (self.vault.log(), self.vault.directory());
        let arena = directory.arena(id)?;
        self.note_taken(&arena);
        if let ArenaState::Sealed { pages, .. } = log.state(&arena)? {
            self.take_pages(&arena, &pages, from)?;
            directory.note_sealed(|sealed| sealed == id);
            return Ok(FollowedArena { is_sealed: true, taken: from });
        }
        let mut found = log.scan(&arena)?;
        self.leave_out_lost_roots(&arena, &mut found)?;
        let taken = found.pages.last().map_or(from, |(row, _)| after(row));
        directory.note_unsealed_anew(id, found.pages.iter().map(|(row, _)| *row).collect());
        for (_, page) in found.pages.iter().filter(|(row, _)| row.granule >= from) {
            self.insert_page(id, page)?;
        }
        Ok(FollowedArena { is_sealed: false, taken })
    }

    fn take_pages(&self, arena: &OpenedArena, rows: &[PageRow], from: Granule) -> Result<(), OpenStoreError> {
        for row in rows.iter().filter(|row| row.granule >= from) {
            match self.vault.log().read_page(arena, row) {
                Ok(page) => self.insert_page(arena.id(), &page)?,
                Err(error) if error.is_damage() => tracing::error!(%error, "a directory page is damaged"),
                Err(error) => return Err(error.into()),
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

fn after(row: &PageRow) -> Granule {
    Granule(row.granule.0.saturating_add(1))
}

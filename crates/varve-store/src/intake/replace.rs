//! Replaces arenas: an arena's file is exchanged while the store is open. The log as it is then
//! counts. A saved index that knows the old arena would be wrong, so it is removed before.
//!
//! To write arenas anew, call in this order: [`begin_replacing`](Intake::begin_replacing); for each
//! new file [`take_in_rewritten`](Intake::take_in_rewritten);
//! [`note_replaced`](Intake::note_replaced); [`end_replacing`](Intake::end_replacing). A crash
//! between two steps leaves a store that can be opened.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;

use varve_block::PutError;
use varve_log::{
    AppendError, AppendedPage, ArenaId, Footer, Ledger, OpenedArena, PageRow, ReadLogError, Seal, Seals,
    SyncLogError, WholeArena,
};
use varve_world::FileName;

use super::Intake;
use crate::saved_index::{remove_durably, remove_saved_index};

/// Arenas could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The open arena could not be sealed, or the log could not record the new seals.
    #[error("cannot rewrite an arena")]
    Append(#[from] AppendError),
    #[error("cannot remove {file}")]
    Hint { file: FileName, source: io::Error },
    /// The end of the log could not be made durable.
    #[error("{0}")]
    Sync(#[from] SyncLogError),
    /// A note about the log could not be stored.
    #[error("cannot store a note about the replaced arenas")]
    Note(#[from] PutError),
    /// A new arena could not take the place of the old one.
    #[error("cannot put a new arena in the place of the old one")]
    Place(#[source] io::Error),
}

impl From<(FileName, io::Error)> for ReplaceError {
    fn from((file, source): (FileName, io::Error)) -> Self {
        Self::Hint { file, source }
    }
}

impl Intake {
    /// Returns the seals that this session knows.
    #[must_use]
    pub fn seals(&self) -> Seals {
        self.appender.lock().seals().clone()
    }

    /// Returns the seal of an arena as this session knows it.
    #[must_use]
    pub fn known_seal(&self, id: ArenaId) -> Option<Seal> {
        self.appender.lock().seals().get(id).copied()
    }

    /// Returns the ledger that the next page will carry.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.appender.lock().ledger()
    }

    /// Returns true if any of the counted seals is missing.
    #[must_use]
    pub fn is_any_seal_missing(&self) -> bool {
        let appender = self.appender.lock();
        appender.seals().missing_count(appender.ledger().arena_count) > 0
    }

    /// Returns true if an arena has no seal yet: the writer continues it, or seals it soon.
    #[must_use]
    pub fn is_open(&self, id: ArenaId) -> bool {
        self.appender.lock().unsealed().any(|(open, ..)| open == id)
    }

    /// Seals the arena that is being written, which may be one of those to be replaced, and removes
    /// every hint about the contents of the log. No index is saved from here on.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn begin_replacing(&self) -> Result<(), ReplaceError> {
        self.make_durable()?;
        let mut appender = self.appender.lock();
        if let Some(page) = appender.close_arena()? {
            self.index_page(&page)?;
        }
        self.drafts.note_end(appender.home());
        drop(appender);
        self.make_log_durable()?;
        self.stop_saving_index();
        self.remove_hints()
    }

    /// Adds the pages of an arena that was written anew.
    ///
    /// # Errors
    /// [`AppendError`] when there is no room in the index for the names.
    pub fn take_in_rewritten(&self, id: ArenaId, pages: &[AppendedPage]) -> Result<(), AppendError> {
        self.reader.forget(id);
        self.finder.forget_notes_in(id);
        for page in pages {
            self.finder.insert_page(id, &page.page)?;
        }
        Ok(())
    }

    /// Records the seals of arenas that were written anew in the log, durably.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn note_replaced(&self, seals: &[(ArenaId, Seal)]) -> Result<(), ReplaceError> {
        let mut appender = self.appender.lock();
        let page = appender.note_replaced(seals)?;
        self.index_page(&page)?;
        self.drafts.note_end(appender.home());
        drop(appender);
        Ok(self.make_log_durable()?)
    }

    /// Allows indexes to be saved again, after everything was replaced and recorded.
    pub fn end_replacing(&self) {
        self.is_replacing.store(false, Ordering::Relaxed);
    }

    /// From now on, the log as it is counts as complete: the notes about lost parts are removed.
    /// The end of the log is noted anew when the store is closed.
    ///
    /// # Errors
    /// [`ReplaceError::Hint`] when a note cannot be removed.
    pub fn accept_end(&self) -> Result<(), ReplaceError> {
        self.forget_index_notes();
        self.remove_hints()?;
        self.tail.accept_end();
        Ok(())
    }

    /// From now on, unreadable data counts as lost. This is for `repair`, which writes anew the
    /// data that it can read, and sets the rest aside.
    pub fn accept_withheld(&self) {
        self.tail.accept_withheld();
    }

    /// Renames a new file to be the arena.
    ///
    /// # Errors
    /// When the disk refuses; the arena is then as it was.
    pub fn put_in_place(&self, whole: &WholeArena, new_file: &FileName) -> io::Result<()> {
        let id = whole.arena.id();
        if self.is_news(id, Seal::of(whole.arena.header(), &whole.footer)) {
            // The copy is older than the arena that was lost here, or this log no longer knows that
            // arena's seal.
            self.let_go_of_saved_index().map_err(|(_, error)| error)?;
        }
        let storage = self.vault.storage();
        storage.rename(new_file, &id.file_name())?;
        storage.sync_folder(ArenaId::FOLDER)
    }

    /// Makes a sealed arena that was put in place known to this session: its seal and its pages.
    ///
    /// # Errors
    /// [`ReadLogError`] when a page cannot be read, [`AppendError`] when there is no room for the
    /// names.
    pub fn take_in_sealed<E: From<ReadLogError> + From<AppendError>>(
        &self,
        arena: &OpenedArena,
        footer: &Footer,
        pages: &[PageRow],
    ) -> Result<(), E> {
        let id = arena.id();
        let directory = self.vault.directory();
        self.appender.lock().note_mended(id, Seal::of(arena.header(), footer));
        directory.note_sealed(|arena| arena == id);
        directory.forget(id);
        self.finder.forget_notes_in(id);
        for row in pages {
            let page = self.vault.log().read_page(arena, row)?;
            self.finder.insert_page(id, &page)?;
        }
        Ok(())
    }

    /// Returns true if this session knows no seal of an arena, or another one than this.
    #[must_use]
    pub fn is_news(&self, id: ArenaId, seal: Seal) -> bool {
        self.known_seal(id) != Some(seal)
    }

    /// Removes the saved index before an arena that it knows is replaced. No index is saved from
    /// here on.
    ///
    /// # Errors
    /// The file that cannot be removed, and the reason.
    pub fn let_go_of_saved_index(&self) -> Result<(), (FileName, io::Error)> {
        self.stop_saving_index();
        remove_saved_index(self.vault.storage())
    }

    /// Lets go of the hints about the contents of arenas that are about to be replaced: the note of
    /// the last page, and what the saved index has of these arenas.
    pub(super) fn let_go_of_hints(&self, arenas: &BTreeSet<ArenaId>) -> Result<(), ReplaceError> {
        self.finder.let_go_of_saved(arenas)?;
        self.remove_newest_note()
    }

    /// Removes the hints about the contents of the log: the saved index and the note of the last
    /// page.
    pub(super) fn remove_hints(&self) -> Result<(), ReplaceError> {
        remove_saved_index(self.vault.storage())?;
        self.remove_newest_note()
    }

    fn remove_newest_note(&self) -> Result<(), ReplaceError> {
        let newest = FileName::new("index/newest").expect("a plain name");
        Ok(remove_durably(self.vault.storage(), newest)?)
    }
}

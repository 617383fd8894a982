//! Replacing: an arena's file becomes another one while the store is open. The log as it is then counts; a saved index
//! that knows what was there before leads astray, so it is removed before.
//!
//! The steps of writing arenas anew, in their order: [`begin_replacing`](Intake::begin_replacing), the new files, each
//! with [`take_in_rewritten`](Intake::take_in_rewritten), [`note_replaced`](Intake::note_replaced),
//! [`end_replacing`](Intake::end_replacing). A crash between two of them leaves a store that can be opened.

use std::io;
use std::sync::atomic::Ordering;

use varve_log::{
    AppendError, Appended, ArenaId, Footer, Ledger, OpenedArena, PageRow, ReadLogError, Seal, Seals,
    SyncLogError, WholeArena,
};
use varve_world::FileName;

use super::Intake;
use crate::saved_index::{remove_durably, remove_saved_index};

/// Why arenas could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The arena that is being written could not be ended, or the log could not take note of the new ones.
    #[error("cannot write an arena anew")]
    Append(#[from] AppendError),
    /// A hint could not be removed.
    #[error("cannot remove {file}")]
    Hint {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// The end of the log could not be made durable.
    #[error(transparent)]
    Sync(#[from] SyncLogError),
}

impl From<(FileName, io::Error)> for ReplaceError {
    fn from((file, source): (FileName, io::Error)) -> Self {
        Self::Hint { file, source }
    }
}

impl Intake {
    /// The seals that this session knows.
    #[must_use]
    pub fn seals(&self) -> Seals {
        self.appender.lock().seals().clone()
    }

    /// The seal of an arena as this session knows it.
    #[must_use]
    pub fn known_seal(&self, id: ArenaId) -> Option<Seal> {
        self.appender.lock().seals().get(id).copied()
    }

    /// The ledger that the next page will carry.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.appender.lock().ledger()
    }

    /// Whether any of the seals that are counted is missing.
    #[must_use]
    pub fn is_any_seal_missing(&self) -> bool {
        let appender = self.appender.lock();
        appender.seals().missing_count(appender.ledger().arena_count) > 0
    }

    /// Whether an arena has no seal yet: the writer goes on with it, or seals it soon.
    #[must_use]
    pub fn is_open(&self, id: ArenaId) -> bool {
        self.appender.lock().unsealed().any(|(open, ..)| open == id)
    }

    /// Seals the arena that is being written, which may be one of those that are to be replaced, and removes every hint of
    /// what the log held. No index is saved from here on.
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

    /// Takes in an arena that was written anew, page by page.
    ///
    /// # Errors
    /// [`AppendError`] when there is no room in the index for what it names.
    pub fn take_in_rewritten(&self, id: ArenaId, pages: &[Appended]) -> Result<(), AppendError> {
        self.reader.forget(id);
        for page in pages {
            self.finder.insert_page(id, &page.page)?;
        }
        Ok(())
    }

    /// Lets the log take note of the seals of arenas that were written anew, durably.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn note_replaced(&self, seals: &[(ArenaId, Seal)]) -> Result<(), ReplaceError> {
        let mut appender = self.appender.lock();
        appender.note_replaced(seals)?;
        self.drafts.note_end(appender.home());
        drop(appender);
        Ok(self.make_log_durable()?)
    }

    /// Lets indexes be saved again: all that was to be replaced is, and noted.
    pub fn end_replacing(&self) {
        self.is_replacing.store(false, Ordering::Relaxed);
    }

    /// What is there now counts as all there is: nothing is believed any more that was noted of what is lost. The end of
    /// the log is noted anew when the store is closed.
    ///
    /// # Errors
    /// [`ReplaceError::Hint`] when a note cannot be removed.
    pub fn accept_end(&self) -> Result<(), ReplaceError> {
        self.forget_index_notes();
        self.remove_hints()?;
        self.tail.accept_end();
        Ok(())
    }

    /// What cannot be read counts as lost from now on: for `repair`, which writes anew what it can and sets the rest aside.
    pub fn accept_withheld(&self) {
        self.tail.accept_withheld();
    }

    /// Renames a new file to be the arena.
    ///
    /// # Errors
    /// When the disk does not take it; the arena is then as it was.
    pub fn put_in_place(&self, whole: &WholeArena, new_file: &FileName) -> io::Result<()> {
        let id = whole.arena.id();
        if self.is_news(id, Seal::of(whole.arena.header(), &whole.footer)) {
            // A copy is older than what was lost here, or this log has forgotten what that was.
            self.let_go_of_saved_index().map_err(|(_, error)| error)?;
        }
        let storage = self.vault.storage();
        storage.rename(new_file, &id.file_name())?;
        storage.sync_folder(ArenaId::FOLDER)
    }

    /// Lets this session know what a sealed arena holds that has come into place.
    ///
    /// # Errors
    /// [`ReadLogError`] when a page cannot be read, [`AppendError`] when there is no room for what it names.
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
        for row in pages {
            let page = self.vault.log().read_page(arena, row)?;
            self.finder.insert_page(id, &page)?;
        }
        Ok(())
    }

    /// Whether this session knows another seal of an arena than this one, or none.
    #[must_use]
    pub fn is_news(&self, id: ArenaId, seal: Seal) -> bool {
        self.known_seal(id) != Some(seal)
    }

    /// Removes the saved index before an arena is replaced that it knows. No index is saved from here on.
    ///
    /// # Errors
    /// The file that cannot be removed, and why.
    pub fn let_go_of_saved_index(&self) -> Result<(), (FileName, io::Error)> {
        self.stop_saving_index();
        remove_saved_index(self.vault.storage())
    }

    /// Nothing that was noted of the log is believed any more.
    fn remove_hints(&self) -> Result<(), ReplaceError> {
        let newest = FileName::new("index/newest").expect("a plain name");
        remove_saved_index(self.vault.storage())?;
        Ok(remove_durably(self.vault.storage(), newest)?)
    }
}

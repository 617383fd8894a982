//! An arena's file is another one than this session knows: it was mended, or somebody has put it there. What the log says of it counts, and
//! what an index says that was saved before leads astray: the same blocks lie in other places.

use std::collections::BTreeSet;
use std::io;
use std::sync::PoisonError;

use varve_log::{
    AppendError, ArenaId, ArenaState, Footer, Granule, OpenedArena, PageRow, ReadLogError, Seal, WholeArena,
};
use varve_world::FileName;

use crate::repair::RepairError;
use crate::store::{Store, Writer};

impl Store {
    /// Renames a new file to be the arena.
    pub(crate) fn put_in_place(
        &self,
        writer: &Writer,
        whole: &WholeArena,
        new_file: &FileName,
    ) -> io::Result<()> {
        let id = whole.arena.id();
        if self.is_news(writer, id, Seal::of(whole.arena.header(), &whole.footer)) {
            // A copy is older than what was lost here, or this log has forgotten what that was.
            self.let_go_of_saved_index(writer).map_err(|(_, error)| error)?;
        }
        self.world.storage.rename(new_file, &id.file_name())?;
        self.world.storage.sync_folder(ArenaId::FOLDER)
    }

    /// Lets this session know what a sealed arena holds.
    ///
    /// # Errors
    /// [`ReadLogError`] when a page cannot be read, [`AppendError`] when there is no room for what it names.
    pub(crate) fn take_in_sealed<E: From<ReadLogError> + From<AppendError>>(
        &self,
        writer: &Writer,
        arena: &OpenedArena,
        footer: &Footer,
        pages: &[PageRow],
    ) -> Result<(), E> {
        let id = arena.id();
        let mut appender = writer.appender();
        appender.note_mended(id, Seal::of(arena.header(), footer));
        drop(appender);
        self.directory.note_sealed(|arena| arena == id);
        self.directory.forget(id);
        for row in pages {
            let page = self.log.read_page(arena, row)?;
            self.insert_page(id, &page)?;
        }
        Ok(())
    }

    /// Takes in the sealed arenas that are others than this session knows, and says which: somebody has put them there. What of them is
    /// damaged is left out.
    ///
    /// # Errors
    /// [`RepairError`] when an arena cannot be read for a reason that is no damage, or a saved index not be removed.
    pub fn take_in_replaced(&self) -> Result<Vec<ArenaId>, RepairError> {
        let writer = self.writer.as_ref().ok_or(RepairError::ReadOnly)?;
        let mut replaced = Vec::new();
        for id in self.log.arenas()? {
            let (state, arena) = match self.open_with_state(id) {
                Ok(opened) => opened,
                Err(error) if error.is_damage() => continue,
                Err(error) => return Err(error.into()),
            };
            let ArenaState::Sealed { footer, mut pages } = state else { continue };
            if !self.is_news(writer, id, Seal::of(arena.header(), &footer)) {
                continue;
            }
            if replaced.is_empty() {
                self.let_go_of_saved_index(writer)
                    .map_err(|(file, source)| RepairError::Hint { file, source })?;
            }
            pages.retain(|row| self.log.read_page(&arena, row).is_ok());
            self.take_in_sealed::<RepairError>(writer, &arena, &footer, &pages)?;
            tracing::warn!(arena = %id, "an arena is another one than it was");
            replaced.push(id);
        }
        Ok(replaced)
    }

    /// Looks at these arenas because blocks are not where the saved index says. Takes in what is in those that are others than it knows,
    /// and says whether there was one: somebody has put back what was there before a repair, or after.
    pub(crate) fn take_in_others(&self, suspected: &BTreeSet<ArenaId>) -> bool {
        let mut is_any = false;
        for id in suspected.iter().copied().filter(|id| self.is_other_than_believed(*id)) {
            tracing::warn!(arena = %id, "an arena is another one than the saved index knows");
            self.directory.forget(id);
            match self.follow_arena(id, Granule::default()) {
                Ok(_) => is_any = true,
                Err(error) => tracing::warn!(arena = %id, %error, "it cannot be read"),
            }
        }
        is_any
    }

    /// Whether an arena is another one than the saved index knows. Each is looked at once.
    fn is_other_than_believed(&self, id: ArenaId) -> bool {
        let mut believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = believed.get(id).copied() else { return false };
        believed.remove(id);
        drop(believed);
        match self.open_with_state(id) {
            Ok((ArenaState::Sealed { footer, .. }, arena)) => Seal::of(arena.header(), &footer) != known,
            Ok((ArenaState::Unsealed, _)) => true,
            // What is damaged is told to whoever asked.
            Err(_) => false,
        }
    }

    fn open_with_state(&self, id: ArenaId) -> Result<(ArenaState, OpenedArena), ReadLogError> {
        let arena = self.log.open_arena(id)?;
        Ok((self.log.state(&arena)?, arena))
    }

    fn is_news(&self, writer: &Writer, id: ArenaId, seal: Seal) -> bool {
        writer.appender().seals().get(id) != Some(&seal)
    }

    fn let_go_of_saved_index(&self, writer: &Writer) -> Result<(), (FileName, io::Error)> {
        self.stop_saving_index(writer);
        self.remove_saved_index()
    }
}

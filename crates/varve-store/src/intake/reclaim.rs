//! Replaces many arenas in one commit, for a collector. Each arena gets a successor in a file of
//! its own, which takes the arena's name after the commit.
//!
//! Call in this order: [`begin_reclaiming`](Intake::begin_reclaiming); make and seal the successors
//! in the files that [`ArenaId::successor_file_name`] names;
//! [`commit_successors`](Intake::commit_successors). A crash leaves:
//!
//! | crash after                      | left                                  | next writer that can read     |
//! |----------------------------------|---------------------------------------|-------------------------------|
//! | a successor is begun or sealed   | files that nothing refers to          | removes them                  |
//! | the hints about its arena are gone | the same, and a saved index that covers fewer arenas | the same, and reads these arenas |
//! | the note and its page are durable | old arenas, a note about all new ones | renames the successors        |
//! | some renames                     | old and new arenas                    | renames the others            |
//! | all renames                      | new arenas, parity of the old ones    | removes that parity           |

use std::collections::BTreeSet;

use varve_block::{Block, BlockType, LogAddress, PutError};
use varve_log::{AppendError, ArenaId, ArenaVersion, PackedClump, ReplacedArena, Seal, WriteFailure};

use super::Intake;
use super::replace::ReplaceError;
use crate::notes::{BarrenPart, LogNote, ReplacedSeal};

/// A successor that is sealed, checked and durable, and waits for the commit.
#[derive(Debug)]
pub struct ReadySuccessor {
    pub arena: ArenaId,
    /// The seal of the arena that it replaces.
    pub old: Seal,
    pub new: ReplacedArena,
}

impl Intake {
    /// Makes sure that everything added from now on lies in arenas of this version or a later one.
    ///
    /// # Errors
    /// [`ReplaceError`] when the open arena, which has an earlier version, cannot be closed.
    pub fn raise_arena_version(&self, version: ArenaVersion) -> Result<(), ReplaceError> {
        if self.appender.lock().version() >= version {
            return Ok(());
        }
        self.make_durable()?;
        let mut appender = self.appender.lock();
        if let Some(page) = appender.raise_version(version)? {
            self.index_page(&page)?;
        }
        self.drafts.note_end(appender.home());
        Ok(())
    }

    /// Prepares the log for a replacement of arenas.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn begin_reclaiming(&self) -> Result<(), ReplaceError> {
        self.raise_arena_version(ArenaVersion::Notes)?;
        self.make_durable()?;
        Ok(self.make_seals_durable()?)
    }

    /// Returns true if the log has notes, or had some that cannot be found any more. In a store
    /// that has never been collected it has none.
    #[must_use]
    pub fn may_have_notes(&self) -> bool {
        self.appender.lock().version() >= ArenaVersion::Notes || !self.finder.note_places().is_empty()
    }

    /// Records which blocks are barren: structure of no snapshot that stays in the log. The
    /// fingerprints are those of [`note_fingerprint`](crate::note_fingerprint), in ascending order.
    /// The list replaces every earlier one, and is durable when this returns.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub fn note_barren(&self, fingerprints: &[u64]) -> Result<(), ReplaceError> {
        let _reserve = self.use_reserve();
        self.raise_arena_version(ArenaVersion::Notes)?;
        for part in BarrenPart::divide(self.draw_list()?, fingerprints) {
            self.put_note(&LogNote::Barren(part))?;
        }
        self.make_log_durable()?;
        self.finder.write_barren_hint();
        Ok(())
    }

    /// Appends a clump whose blocks are in the log already, at a place that will go. Every block
    /// must have been named from its bytes. [`make_copies_durable`](Self::make_copies_durable) must
    /// come before the old place goes. For a store that names blocks by their contents.
    ///
    /// # Errors
    /// [`AppendError`]; this session accepts nothing more then.
    pub fn append_copy(&self, clump: PackedClump) -> Result<LogAddress, AppendError> {
        let mut appender = self.appender.lock();
        let appended = appender.append(clump);
        self.drafts.note_end(appender.home());
        let taken = appended.and_then(|(address, pages)| {
            self.take_in_pages(&pages, &mut appender)?;
            Ok(address)
        });
        drop(appender);
        match &taken {
            Ok(_) => self.write_due_parity(false),
            Err(error) => self.drafts.fail(error),
        }
        taken
    }

    /// Makes everything durable that [`append_copy`](Self::append_copy) has appended, and names it
    /// in pages.
    ///
    /// # Errors
    /// [`ReplaceError::Sync`].
    pub fn make_copies_durable(&self) -> Result<(), ReplaceError> {
        Ok(self.make_log_durable()?)
    }

    /// Puts successors in the place of their arenas, all or none of them: the note that this writes
    /// is the commit.
    ///
    /// # Errors
    /// [`ReplaceError`]. Before the commit the arenas are as they were. After it, this session
    /// accepts nothing more, and the next writer completes the renames.
    pub fn commit_successors(&self, ready: Vec<ReadySuccessor>) -> Result<(), ReplaceError> {
        if ready.is_empty() {
            return Ok(());
        }
        let _reserve = self.use_reserve();
        let arenas = ready.iter().map(|ready| ready.arena).collect();
        self.stop_saving_index();
        self.let_go_of_hints(&arenas)?;
        let note = LogNote::Replaced { list: self.draw_list()?, arenas: rows_of(&ready) };
        self.vault.storage().sync_folder(ArenaId::FOLDER).map_err(ReplaceError::Place)?;
        self.put_note(&note)?;
        self.append_all_drafts()?;
        let seals: Vec<_> = ready.iter().map(|ready| (ready.arena, ready.new.seal)).collect();
        self.note_replaced(&seals)?;
        let placed = self.place(ready, &arenas);
        self.finder.write_barren_hint();
        if let Err(error) = &placed {
            let reason = WriteFailure::new(format!("replaced arenas are not in place yet: {error}"));
            self.appender.lock().fail(reason.clone());
            self.drafts.fail_with(|| reason);
        }
        placed
    }

    fn draw_list(&self) -> Result<[u8; 16], ReplaceError> {
        let mut list = [0; 16];
        self.vault.world().random.fill(&mut list).map_err(ReplaceError::Place)?;
        Ok(list)
    }

    fn put_note(&self, note: &LogNote) -> Result<(), PutError> {
        self.put_blocks(&[Block { block_type: BlockType::NOTE, bytes: &note.encode() }]).map(drop)
    }

    /// Renames committed successors, and makes this session find blocks in them.
    fn place(&self, ready: Vec<ReadySuccessor>, arenas: &BTreeSet<ArenaId>) -> Result<(), ReplaceError> {
        let storage = self.vault.storage();
        self.finder.take_out(arenas);
        for successor in &ready {
            let file = successor.arena.successor_file_name();
            storage.rename(&file, &successor.arena.file_name()).map_err(ReplaceError::Place)?;
        }
        storage.sync_folder(ArenaId::FOLDER).map_err(ReplaceError::Place)?;
        for ReadySuccessor { arena, new, .. } in ready {
            self.reader.forget(arena);
            for page in &new.pages {
                self.finder.insert_page(arena, &page.page)?;
            }
            let generation = new.seal.generation;
            if let Err((file, error)) = self.vault.parity().remove(arena, |other| other < generation) {
                tracing::warn!(%file, %error, "the parity of a replaced arena could not be removed");
            }
            self.note_parity_due(vec![arena]);
        }
        Ok(())
    }

    /// Ends the replacing of arenas, and makes the parity of the new ones. The index may be saved
    /// again.
    pub fn end_reclaiming(&self) {
        self.write_due_parity(true);
        self.end_replacing();
    }
}

fn rows_of(ready: &[ReadySuccessor]) -> Vec<ReplacedSeal> {
    let row = |ready: &ReadySuccessor| ReplacedSeal {
        arena: ready.arena,
        old_generation: ready.old.generation,
        new_generation: ready.new.seal.generation,
        old_code: ready.old.code,
        new_code: ready.new.seal.code,
    };
    let mut rows: Vec<_> = ready.iter().map(row).collect();
    rows.sort_by_key(|row| row.arena);
    rows
}

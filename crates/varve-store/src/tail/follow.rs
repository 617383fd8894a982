//! Follows a writer: reads the records that another process has added to the log since the last
//! look.

use std::collections::{BTreeMap, BTreeSet};

use varve_block::{BlockName, LogAddress};
use varve_log::{ArenaId, Granule, Seals};

use super::Tail;
use crate::finder::FollowedArena;
use crate::notes::LogNote;
use crate::vault::OpenStoreError;

/// The position of a reader in the log.
#[derive(Debug, Default)]
pub(crate) struct FollowedLog {
    /// The arenas that had a seal when they were read. Nothing is added to them any more.
    sealed: BTreeSet<ArenaId>,
    /// The other arenas.
    growing: BTreeMap<ArenaId, GrowingArena>,
    /// The number of times that something new was found.
    news_count: u64,
    /// The number of replaced arenas that were known the last time.
    changed_count: u64,
    /// True if there was something new when a read followed the log, and nobody was told.
    is_growth_untold: bool,
}

/// An arena that a writer may append to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GrowingArena {
    /// The length of its file before it was read last.
    file_bytes: u64,
    /// All pages before this place have been added to the index.
    taken: Granule,
}

impl GrowingArena {
    /// Makes the position in an arena whose pages before `taken` were added, when its file had
    /// `file_bytes`.
    pub(crate) fn new(file_bytes: u64, taken: Granule) -> Self {
        Self { file_bytes, taken }
    }
}

impl FollowedLog {
    /// Makes the position of a reader that has just read all of these seals and arenas.
    pub(crate) fn new(seals: &Seals, growing: BTreeMap<ArenaId, GrowingArena>) -> Self {
        Self { sealed: seals.iter().map(|(id, _)| id).collect(), growing, ..Self::default() }
    }
}

impl Tail {
    /// Adds the pages that another process has written to the log, and returns true if there were
    /// any.
    ///
    /// # Errors
    /// [`OpenStoreError`] when the log cannot be read. Damage to single arenas is no error here.
    pub(crate) fn follow(&self) -> Result<bool, OpenStoreError> {
        let mut followed = self.followed.lock();
        let has_grown = self.follow_from(&mut followed)?;
        Ok(std::mem::take(&mut followed.is_growth_untold) || has_grown)
    }

    /// Returns the number of times that something new was found in the log.
    pub(crate) fn news_count(&self) -> u64 {
        self.followed.lock().news_count
    }

    /// Follows the log after something was not found where it was: a collector may have moved it
    /// to the end of the log. Returns true if anything new was found since
    /// [`news_count`](Self::news_count) was `since`, so that looking again is worth it. Something
    /// that is merely absent was moved only if an arena was replaced since the last time.
    pub(crate) fn look_again(&self, since: u64, is_damaged: bool) -> bool {
        let mut followed = self.followed.lock();
        let may_be_moved = is_damaged || followed.changed_count != self.finder.changed_count();
        if followed.news_count == since && may_be_moved {
            match self.follow_from(&mut followed) {
                Ok(has_grown) => followed.is_growth_untold |= has_grown,
                Err(error) => {
                    tracing::warn!(%error, "a block was not found, and the end of the log cannot be read");
                }
            }
        }
        followed.news_count != since
    }

    /// Follows the log at the end of an opening: other processes may have moved something to the
    /// end of the log while its arenas were read one after the other.
    ///
    /// # Errors
    /// As for [`follow`](Self::follow).
    pub(crate) fn finish_opening(&self) -> Result<(), OpenStoreError> {
        let mut followed = self.followed.lock();
        self.follow_from(&mut followed)?;
        // A crash may cut off something that the opening has read, so the next time the arenas are
        // read from their start.
        followed.growing.clear();
        Ok(())
    }

    fn follow_from(&self, followed: &mut FollowedLog) -> Result<bool, OpenStoreError> {
        followed.changed_count = self.finder.changed_count();
        let mut has_grown = false;
        for id in self.vault.log().arenas()? {
            if followed.sealed.contains(&id) {
                continue;
            }
            let known = followed.growing.get(&id).copied();
            let file_bytes = match self.vault.log().file_bytes(id) {
                Ok(file_bytes) => file_bytes,
                // A writer has removed an arena that was never begun.
                Err(_) if self.vault.log().is_gone(id) => continue,
                Err(error) => return Err(error.into()),
            };
            if known.is_some_and(|known| known.file_bytes == file_bytes) {
                continue;
            }
            let from = known.map_or_else(Granule::default, |known| known.taken);
            let notes_before = self.finder.note_places();
            let read = self.finder.follow_arena(id, from);
            self.take_in_noted(&notes_before);
            match read {
                Ok(FollowedArena::Sealed) => {
                    followed.growing.remove(&id);
                    followed.sealed.insert(id);
                    has_grown = true;
                }
                Ok(FollowedArena::Growing { taken }) => {
                    has_grown |= taken > from;
                    followed.growing.insert(id, GrowingArena { file_bytes, taken });
                }
                // Either the arena is not yet written that far, or it is damaged. It is read again
                // when it is longer.
                Err(OpenStoreError::Read(error)) if error.is_damage() => {
                    tracing::info!(arena = %id, %error, "the new part of an arena cannot be read yet");
                    followed.growing.insert(id, GrowingArena { file_bytes, taken: from });
                }
                Err(error) => return Err(error),
            }
        }
        if has_grown {
            followed.news_count += 1;
            self.finder.forget_moved();
        }
        Ok(has_grown)
    }

    /// Reads the directories of the arenas that new notes call replaced. If their new files are not
    /// in place yet, they are read when a block is not found where it was.
    fn take_in_noted(&self, notes_before: &BTreeMap<LogAddress, BlockName>) {
        let new = self.finder.note_places().into_keys().filter(|place| !notes_before.contains_key(place));
        for place in new {
            let notes = self.finder.read_notes(place).unwrap_or_else(|error| {
                tracing::warn!(%error, "a new note in the log cannot be read");
                Vec::new()
            });
            for note in notes {
                let LogNote::Replaced { arenas, .. } = note else { continue };
                for replaced in arenas {
                    self.finder.take_in_replaced(replaced.arena);
                }
            }
        }
    }
}

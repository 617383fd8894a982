//! Following a writer: a reader takes in what another process has added to the log since it last looked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use varve_log::{ArenaId, ArenaState, Granule, OpenedArena, PageRow, Seals};

use crate::open::OpenError;
use crate::store::Store;

/// How far a reader has come with the log.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Arenas that had a seal when they were read: nothing is added to them any more.
    sealed: BTreeSet<ArenaId>,
    /// The others.
    growing: BTreeMap<ArenaId, Growing>,
}

/// An arena that somebody may write to.
#[derive(Debug, Clone, Copy, Default)]
struct Growing {
    /// How long its file was.
    file_bytes: u64,
    /// All pages before this place were taken in.
    taken: Granule,
}

impl Followed {
    /// As a reader stands who has just read all of these seals.
    pub(crate) fn new(seals: &Seals) -> Self {
        Self { sealed: seals.iter().map(|(id, _)| id).collect(), growing: BTreeMap::new() }
    }
}

impl Store {
    /// Takes in what another process has added to the log, and says whether there was anything. Costs a look at the lengths of the files
    /// where nothing was added, and else the reading of what grew. A store that is open for writing is the writer itself, and has nothing
    /// to follow.
    ///
    /// What a `repair` has written anew is not noticed: whoever reads it from then on has to open the store again.
    ///
    /// # Errors
    /// [`OpenError`] for what keeps the log from being read. Damage to single arenas is no error here.
    pub fn follow(&self) -> Result<bool, OpenError> {
        if self.writer.is_some() {
            return Ok(false);
        }
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_grown = false;
        for id in self.log.arenas()? {
            if followed.sealed.contains(&id) {
                continue;
            }
            let known = followed.growing.get(&id).copied();
            let file_bytes = self.log.file_bytes(id)?;
            if known.is_some_and(|known| known.file_bytes == file_bytes) {
                continue;
            }
            let from = known.map_or_else(Granule::default, |known| known.taken);
            match self.follow_arena(id, from) {
                Ok(FollowedArena { is_sealed: true, .. }) => {
                    followed.growing.remove(&id);
                    followed.sealed.insert(id);
                    has_grown = true;
                }
                Ok(FollowedArena { taken, .. }) => {
                    has_grown |= taken > from;
                    followed.growing.insert(id, Growing { file_bytes, taken });
                }
                // Not yet written as far as that, or damaged: looked at again when it is longer.
                Err(OpenError::Read(error)) if error.is_damage() => {
                    tracing::info!(arena = %id, %error, "an arena cannot be followed yet");
                    followed.growing.insert(id, Growing { file_bytes, taken: from });
                }
                Err(error) => return Err(error),
            }
        }
        if has_grown {
            self.forget_moved();
        }
        Ok(has_grown)
    }

    pub(crate) fn follow_arena(&self, id: ArenaId, from: Granule) -> Result<FollowedArena, OpenError> {
        let arena = self.directory.arena(id)?;
        if let ArenaState::Sealed { pages, .. } = self.log.state(&arena)? {
            self.take_pages(&arena, &pages, from)?;
            self.directory.note_sealed(|sealed| sealed == id);
            return Ok(FollowedArena { is_sealed: true, taken: from });
        }
        let mut found = self.log.scan(&arena)?;
        self.leave_out_lost_roots(&arena, &mut found)?;
        let taken = found.pages.last().map_or(from, |(row, _)| after(row));
        self.directory.note_unsealed_anew(id, found.pages.iter().map(|(row, _)| *row).collect());
        for (_, page) in found.pages.iter().filter(|(row, _)| row.granule >= from) {
            self.insert_page(id, page)?;
        }
        Ok(FollowedArena { is_sealed: false, taken })
    }

    fn take_pages(&self, arena: &OpenedArena, rows: &[PageRow], from: Granule) -> Result<(), OpenError> {
        for row in rows.iter().filter(|row| row.granule >= from) {
            match self.log.read_page(arena, row) {
                Ok(page) => self.insert_page(arena.id(), &page)?,
                Err(error) if error.is_damage() => tracing::error!(%error, "a directory page is damaged"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// How far an arena has been followed.
pub(crate) struct FollowedArena {
    is_sealed: bool,
    taken: Granule,
}

fn after(row: &PageRow) -> Granule {
    Granule(row.granule.0.saturating_add(1))
}

//! Following a writer: a reader takes in what another process has added to the log since it last looked.

use std::collections::{BTreeMap, BTreeSet};

use varve_log::{ArenaId, Granule, Seals};

use super::Tail;
use crate::finder::FollowedArena;
use crate::vault::OpenError;

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

impl Tail {
    /// Takes in what another process has added to the log, and says whether there was anything.
    ///
    /// # Errors
    /// [`OpenError`] for what keeps the log from being read. Damage to single arenas is no error here.
    pub(crate) fn follow(&self) -> Result<bool, OpenError> {
        let mut followed = self.followed.lock();
        let mut has_grown = false;
        for id in self.vault.log().arenas()? {
            if followed.sealed.contains(&id) {
                continue;
            }
            let known = followed.growing.get(&id).copied();
            let file_bytes = self.vault.log().file_bytes(id)?;
            if known.is_some_and(|known| known.file_bytes == file_bytes) {
                continue;
            }
            let from = known.map_or_else(Granule::default, |known| known.taken);
            match self.finder.follow_arena(id, from) {
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
            self.finder.forget_moved();
        }
        Ok(has_grown)
    }
}

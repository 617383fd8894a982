//! Reads of an arena whose file another process may replace, extend or cut off meanwhile.
//!
//! A collector renames a successor over an arena, and a writer cuts off the durable mark that its
//! predecessor has left, seals arenas, and removes files that were never begun. A reader that is in
//! the middle then meets the end of one file and the header of another. So damage counts only in a
//! file that was the same before and after the read.

use varve_world::Storage;

use crate::arenas::address::ArenaId;
use crate::reading::log::{Log, OpenedArena, ReadLogError, TRIES_MAX};

/// An arena's file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaFile {
    /// Random, and drawn for each generation of the arena.
    uid: [u8; 16],
    file_bytes: u64,
}

impl Log {
    /// Returns the identity and the length of an arena's file as it is now; `None` if it cannot be
    /// opened.
    #[must_use]
    pub fn arena_file(&self, id: ArenaId) -> Option<ArenaFile> {
        let uid = self.open_arena(id).ok()?.header().uid;
        Some(ArenaFile { uid, file_bytes: self.file_bytes(id).ok()? })
    }

    /// Returns true if an arena has a header, and another one than this: its file was replaced.
    #[must_use]
    pub fn is_replaced(&self, arena: &OpenedArena) -> bool {
        self.open_arena(arena.id()).is_ok_and(|now| now.header() != arena.header())
    }

    /// Opens an arena and reads from it. If `read` meets damage and the file is another one than
    /// before, or has another length, begins anew.
    ///
    /// # Errors
    /// The error of `read`, or that of the header.
    pub fn read_arena<T>(
        &self,
        id: ArenaId,
        mut read: impl FnMut(OpenedArena) -> Result<T, ReadLogError>,
    ) -> Result<T, ReadLogError> {
        // A damaged header is reported at once: a successor appears with a whole one, and each
        // header is read twice before it counts as damaged.
        let mut arena = self.open_arena(id)?;
        for _ in 1..TRIES_MAX {
            let (uid, file_bytes) = (arena.header().uid, self.file_bytes(id)?);
            match read(arena) {
                Err(error) if error.is_damage() => {
                    if self.arena_file(id) == Some(ArenaFile { uid, file_bytes }) {
                        return Err(error);
                    }
                    arena = self.open_arena(id)?;
                }
                other => return other,
            }
        }
        read(arena)
    }

    /// Returns true if an arena's file does not exist. A writer removes files that were never
    /// begun.
    #[must_use]
    pub fn is_gone(&self, id: ArenaId) -> bool {
        let storage: &dyn Storage = self.storage().as_ref();
        storage.length(&id.file_name()).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }
}

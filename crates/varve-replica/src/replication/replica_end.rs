//! The last seen state of a replica, so that the replicating machine notices a replica that was
//! emptied or put back to an older state. A hint like all of `index/`: one file for each target.
//!
//! | offset | bytes | field      | meaning                                                   |
//! |-------:|------:|------------|-----------------------------------------------------------|
//! |      0 |     8 | arena      | the newest arena that was there                           |
//! |      8 |     4 | generation | of it                                                     |
//! |     12 |     8 | end        | how much of it was there, in bytes                        |
//! |     20 |    32 | mac        | `BLAKE3(a key of the store's own, bytes 0..20)`           |

use std::io;

use varve_block::to_hex;
use varve_log::{ArenaId, LogKeys};
use varve_remote::Target;
use varve_world::{FileName, Storage};

use crate::objects::listing::ArenaAssembly;

const FILE_BYTES: usize = 52;

/// The end of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaEnd {
    /// The newest arena.
    pub arena: ArenaId,
    /// The generation of that arena.
    pub generation: u32,
    /// The available bytes of that arena.
    pub end: u64,
}

/// Returns the identifier of a target in the names of files about it.
#[must_use]
pub fn name_for_notes(target: &dyn Target) -> String {
    to_hex(&blake3::hash(target.to_string().as_bytes()).as_bytes()[..8])
}

/// Returns the file of a target.
fn file(target: &dyn Target) -> FileName {
    FileName::new(&format!("index/replica-{}", name_for_notes(target))).expect("digits make a good name")
}

fn mac(keys: &LogKeys, body: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&keys.derive("varve 1 replica seen"), body)
}

impl ReplicaEnd {
    /// Reads the last seen state of this target; `None` if there is no authentic one.
    pub(crate) fn read(storage: &dyn Storage, keys: &LogKeys, target: &dyn Target) -> Option<Self> {
        let note = storage.read_whole(&file(target), FILE_BYTES as u64).ok()?;
        let (body, code) = note.split_at_checked(20)?;
        if mac(keys, body).as_bytes() != code {
            return None;
        }
        let arena = ArenaId(u64::from_le_bytes(*body.first_chunk()?));
        let generation = u32::from_le_bytes(body.get(8..12)?.try_into().ok()?);
        let end = u64::from_le_bytes(*body.last_chunk()?);
        Some(Self { arena, generation, end })
    }

    pub(crate) fn write(self, storage: &dyn Storage, keys: &LogKeys, target: &dyn Target) -> io::Result<()> {
        let mut note = Vec::with_capacity(FILE_BYTES);
        note.extend_from_slice(&self.arena.0.to_le_bytes());
        note.extend_from_slice(&self.generation.to_le_bytes());
        note.extend_from_slice(&self.end.to_le_bytes());
        note.extend_from_slice(mac(keys, &note).as_bytes());
        let file = file(target);
        if storage.read_whole(&file, FILE_BYTES as u64).is_ok_and(|now| now == note) {
            return Ok(());
        }
        storage.replace(&file, &note)
    }

    /// Returns the end of these arenas.
    pub(crate) fn of<'a>(
        arenas: impl DoubleEndedIterator<Item = (&'a ArenaId, &'a ArenaAssembly)>,
    ) -> Option<Self> {
        arenas.rev().find(|(_, arena)| arena.is_visible()).map(|(id, arena)| Self {
            arena: *id,
            generation: arena.generation,
            end: arena.bytes(),
        })
    }

    /// Returns true if a replica that ends at `now` has everything that was seen.
    pub(crate) fn is_reached_by(self, now: Option<Self>) -> bool {
        now.is_some_and(|now| (now.arena, now.generation, now.end) >= (self.arena, self.generation, self.end))
    }
}

//! What was last seen at a replica: so that a replica that was emptied, or put back as it was before, is noticed by the
//! machine that replicates there. A hint like all of `index/`: one file for each target.
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

use crate::objects::listing::Assembly;

const FILE_BYTES: usize = 52;

/// How far a replica reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its newest arena.
    pub arena: ArenaId,
    /// The generation of that.
    pub generation: u32,
    /// How much of that was there, in bytes.
    pub end: u64,
}

/// What a target is called in the names of notes about it.
#[must_use]
pub fn name_for_notes(target: &dyn Target) -> String {
    to_hex(&blake3::hash(target.to_string().as_bytes()).as_bytes()[..8])
}

/// The note of one target.
fn file(target: &dyn Target) -> FileName {
    FileName::new(&format!("index/replica-{}", name_for_notes(target))).expect("digits make a good name")
}

fn mac(keys: &LogKeys, body: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&keys.derive("varve 1 replica seen"), body)
}

impl Seen {
    /// What the note of this target says; `None` if there is none that can be believed.
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

    /// How far these arenas reach.
    pub(crate) fn of<'a>(
        arenas: impl DoubleEndedIterator<Item = (&'a ArenaId, &'a Assembly)>,
    ) -> Option<Self> {
        arenas.rev().find(|(_, arena)| arena.is_visible()).map(|(id, arena)| Self {
            arena: *id,
            generation: arena.generation,
            end: arena.bytes(),
        })
    }

    /// Whether a replica that reaches to `now` has all that was there.
    pub(crate) fn is_reached_by(self, now: Option<Self>) -> bool {
        now.is_some_and(|now| (now.arena, now.generation, now.end) >= (self.arena, self.generation, self.end))
    }
}

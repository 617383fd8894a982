//! How far a way has got.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use varve_block::{BlockName, with_causes};
use varve_log::ArenaId;
use varve_world::Timestamp;

use super::segment::Segment;

/// Where the way has got to.
#[derive(Default)]
pub(super) struct Trickle {
    pub(super) cursor: Option<Cursor>,
    /// Segments with blocks that the store behind has refused, and when they are tried again.
    pub(super) kept: BTreeMap<u64, Timestamp>,
}

/// A place in a segment.
pub(super) struct Cursor {
    pub(super) segment: Arc<Segment>,
    /// Arenas that are still to be read, the next one first.
    pub(super) arenas: VecDeque<ArenaId>,
    /// Names of the arena that was read last, the next one first.
    pub(super) names: VecDeque<BlockName>,
    /// How many names are still passed over, as they are marked as through.
    pub(super) skip: u64,
    /// How many blocks lie behind.
    pub(super) done: u64,
    /// How many of them are at the store behind, without a gap; held ones end it.
    pub(super) gapless: u64,
    pub(super) held: u64,
    pub(super) unsynced_bytes: u64,
}

impl Cursor {
    pub(super) fn note_done(&mut self, count: u64) {
        self.done += count;
        if self.held == 0 {
            self.gapless = self.done;
        }
    }

    pub(super) fn hold(&mut self, count: u64) {
        self.held += count;
        self.done += count;
    }

    /// Reads on, until there are names or there is nothing more.
    pub(super) fn fill(&mut self) {
        while self.names.is_empty()
            && let Some(arena) = self.arenas.pop_front()
        {
            match self.segment.store.names_in_arena(arena) {
                Ok(found) => {
                    let count = found.names.len() as u64;
                    self.names = found.names.into();
                    match found.failure {
                        None => {
                            let skipped = self.skip.min(count);
                            self.skip -= skipped;
                            self.names.drain(..usize::try_from(skipped).unwrap_or(usize::MAX));
                            self.note_done(skipped);
                        }
                        Some(error) => self.note_unreadable(&error),
                    }
                }
                Err(error) => self.note_unreadable(&error),
            }
        }
    }

    /// Which blocks those were cannot be told, and so not either which of the others are through.
    pub(super) fn note_unreadable(&mut self, error: &dyn std::error::Error) {
        tracing::error!(
            error = with_causes(error),
            slot = self.segment.slot,
            "what waits here cannot be read: it stays, and is not through"
        );
        self.skip = 0;
        self.hold(1);
    }
}

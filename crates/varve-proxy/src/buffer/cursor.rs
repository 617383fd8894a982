//! The progress of a route.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use varve_block::{BlockName, to_usize, with_causes};
use varve_log::ArenaId;
use varve_world::Timestamp;

use super::segment::BufferSegment;

/// The progress of a route.
#[derive(Default)]
pub(super) struct RouteProgress {
    pub(super) cursor: Option<TrickleCursor>,
    /// Segments with blocks that the target has refused, and the time of their next attempt.
    pub(super) kept: BTreeMap<u64, Timestamp>,
}

/// A position in a segment.
pub(super) struct TrickleCursor {
    pub(super) segment: Arc<BufferSegment>,
    /// The arenas that are still to be read, in order.
    pub(super) arenas: VecDeque<ArenaId>,
    /// The remaining names of the current arena, in order.
    pub(super) names: VecDeque<BlockName>,
    /// The number of names still to be skipped, because they are marked as delivered.
    pub(super) skip: u64,
    /// The number of blocks before this position.
    pub(super) done: u64,
    /// The number of delivered blocks from the segment's beginning up to the first held block.
    pub(super) gapless: u64,
    pub(super) held: u64,
    pub(super) unsynced_bytes: u64,
}

impl TrickleCursor {
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

    /// Reads more arenas, until there are names or no arenas are left.
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
                            self.names.drain(..to_usize(skipped));
                            self.note_done(skipped);
                        }
                        Some(error) => self.note_unreadable(&error),
                    }
                }
                Err(error) => self.note_unreadable(&error),
            }
        }
    }

    /// Records an unreadable arena. It is unknown which blocks it held, so the count of delivered
    /// blocks does not apply beyond it.
    pub(super) fn note_unreadable(&mut self, error: &dyn std::error::Error) {
        tracing::error!(
            error = with_causes(error),
            slot = self.segment.slot,
            "waiting blocks cannot be read: they stay in the write buffer, undelivered"
        );
        self.skip = 0;
        self.hold(1);
    }
}

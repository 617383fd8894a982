//! The segments of waiting blocks, and the share of space of each route.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_store::Store;
use varve_world::Timestamp;

use crate::segments::{SEGMENTS_MAX, SegmentEntry, SegmentFolder};
use crate::shards::ScoreRange;

/// Each route is guaranteed this many segments: one that is open, and one that is being sent.
const SLOTS_OF_A_WAY: usize = 2;

/// A store of blocks that wait to be sent.
pub(super) struct BufferSegment {
    pub(super) number: u64,
    pub(super) slot: u32,
    /// The number of its route.
    pub(super) way: usize,
    /// The range of its scores.
    pub(super) scores: ScoreRange,
    pub(super) through: AtomicU64,
    pub(super) store: Store,
    /// The space that it takes or may take.
    pub(super) bytes: AtomicU64,
    /// The time of the first put in this session.
    pub(super) first_put: Mutex<Option<Timestamp>>,
}

impl BufferSegment {
    pub(super) fn entry(&self) -> SegmentEntry {
        let through = self.through.load(Ordering::SeqCst);
        SegmentEntry { number: self.number, slot: self.slot, through, scores: self.scores }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

/// All segments of a buffer.
pub(super) struct BufferSegments {
    /// Oldest first.
    pub(super) closed: Vec<Arc<BufferSegment>>,
    /// At most one for each route.
    pub(super) open: Vec<Option<Arc<BufferSegment>>>,
    /// Delivered segments that may still be read.
    pub(super) gone: Vec<Arc<BufferSegment>>,
    pub(super) next_number: u64,
    /// The number of routes that take new blocks. Each has a guaranteed share of the space.
    pub(super) sharing: usize,
    /// The space of all routes together.
    pub(super) bytes_max: u64,
}

impl BufferSegments {
    /// The segments that are not fully delivered.
    pub(super) fn live(&self) -> impl Iterator<Item = &Arc<BufferSegment>> {
        self.closed.iter().chain(self.open.iter().flatten())
    }

    pub(super) fn used(&self) -> u64 {
        self.live().chain(&self.gone).map(|segment| segment.bytes()).sum()
    }

    /// The bytes waiting on one route.
    pub(super) fn used_by(&self, way: usize) -> u64 {
        self.live().filter(|segment| segment.way == way).map(|segment| segment.bytes()).sum()
    }

    /// The limit for one route: the space that the others leave. Each of them keeps at least half
    /// of an equal share.
    pub(super) fn room_of(&self, way: usize) -> u64 {
        let share = self.bytes_max / (2 * self.sharing as u64);
        let others = (0..self.open.len()).filter(|other| *other != way);
        let taken = others.map(|other| match other < self.sharing {
            true => self.used_by(other).max(share),
            false => self.used_by(other),
        });
        let gone: u64 = self.gone.iter().map(|segment| segment.bytes()).sum();
        self.bytes_max.saturating_sub(taken.sum::<u64>() + gone)
    }

    /// Removes the delivered segments that nobody reads any more.
    pub(super) fn clear_gone(&mut self, folder: &SegmentFolder) {
        folder.clear_unread(&mut self.gone, |segment| (segment.slot, segment.store));
    }

    /// The entries for the list, in the order in which the segments were begun.
    pub(super) fn entries(&self) -> Vec<SegmentEntry> {
        let mut entries: Vec<SegmentEntry> = self.live().map(|segment| segment.entry()).collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        entries
    }

    /// A free slot for another segment of a route, if enough slots remain for the other routes.
    pub(super) fn free_slot(&self, way: usize) -> Option<u32> {
        let is_free = |slot: &u32| self.live().chain(&self.gone).all(|segment| segment.slot != *slot);
        let free: Vec<u32> = (0..SEGMENTS_MAX).filter(is_free).collect();
        let count = |way: usize| self.live().filter(|segment| segment.way == way).count();
        let others = (0..self.sharing).filter(|other| *other != way);
        let left_to_others: usize = others.map(|other| SLOTS_OF_A_WAY.saturating_sub(count(other))).sum();
        free.first().copied().filter(|_| free.len() > left_to_others)
    }
}

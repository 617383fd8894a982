//! The stores of blocks that are on their way, and how much room each way may take of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_store::Store;
use varve_world::Timestamp;

use crate::segments::{Entry, SEGMENTS_MAX};
use crate::shards::ScoreRange;

/// A way can always have so many segments: one that is open, and one that is being sent.
const SLOTS_OF_A_WAY: usize = 2;

/// A store of blocks that are on their way.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) slot: u32,
    /// Which way they go.
    pub(super) way: usize,
    /// What scores they can have.
    pub(super) scores: ScoreRange,
    pub(super) through: AtomicU64,
    pub(super) store: Store,
    /// Room that it takes, or may take.
    pub(super) bytes: AtomicU64,
    /// When the first block was put into it in this session.
    pub(super) first_put: Mutex<Option<Timestamp>>,
}

impl Segment {
    pub(super) fn entry(&self) -> Entry {
        let through = self.through.load(Ordering::SeqCst);
        Entry { number: self.number, slot: self.slot, through, scores: self.scores }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

/// All of them.
pub(super) struct Segments {
    /// Oldest first.
    pub(super) closed: Vec<Arc<Segment>>,
    /// One for each way, at most.
    pub(super) open: Vec<Option<Arc<Segment>>>,
    /// No longer needed; somebody may still be reading there.
    pub(super) gone: Vec<Arc<Segment>>,
    pub(super) next_number: u64,
    /// So many ways take new blocks, and each has a share of the room that no other takes.
    pub(super) sharing: usize,
    /// How much is shared.
    pub(super) bytes_max: u64,
}

impl Segments {
    /// Those that are not through.
    pub(super) fn live(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.closed.iter().chain(self.open.iter().flatten())
    }

    pub(super) fn used(&self) -> u64 {
        self.live().chain(&self.gone).map(|segment| segment.bytes()).sum()
    }

    /// What waits to go one way.
    pub(super) fn used_by(&self, way: usize) -> u64 {
        self.live().filter(|segment| segment.way == way).map(|segment| segment.bytes()).sum()
    }

    /// How much there may be of one way: what the others leave, and half of what would be its part if all were alike is left to each of them.
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

    /// As the list has them: in the order in which they were begun.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.live().map(|segment| segment.entry()).collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        entries
    }

    /// A slot for another segment of a way, if enough are left for the other ways.
    pub(super) fn free_slot(&self, way: usize) -> Option<u32> {
        let is_free = |slot: &u32| self.live().chain(&self.gone).all(|segment| segment.slot != *slot);
        let free: Vec<u32> = (0..SEGMENTS_MAX).filter(is_free).collect();
        let count = |way: usize| self.live().filter(|segment| segment.way == way).count();
        let others = (0..self.sharing).filter(|other| *other != way);
        let left_to_others: usize = others.map(|other| SLOTS_OF_A_WAY.saturating_sub(count(other))).sum();
        free.first().copied().filter(|_| free.len() > left_to_others)
    }
}

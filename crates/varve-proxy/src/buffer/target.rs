//! Where what is buffered goes, and by which ways.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::{BlockStore, Score};
use varve_world::Timestamp;

use super::cursor::Trickle;
use crate::shards::{ScoreRange, ShardGroup, Shards};

/// Of more shards than these, neighbours share a way: each way has a log of its own, and all of them are synced for who syncs the buffer.
const WAYS_MAX: usize = 16;

/// What a write buffer stands in front of.
#[derive(Clone)]
pub enum BufferTarget {
    /// A store that takes all, or nothing.
    Whole(Arc<dyn BlockStore>),
    /// Shards, of which some may be away.
    Shards(Arc<Shards>),
}

impl BufferTarget {
    /// All of it.
    pub(super) fn blocks(&self) -> Arc<dyn BlockStore> {
        match self {
            Self::Whole(blocks) => Arc::clone(blocks),
            Self::Shards(shards) => Arc::clone(shards) as _,
        }
    }

    /// The ways to it. If there are several, one more is for what was buffered when the shards were others.
    pub(super) fn ways(&self) -> Vec<Way> {
        let whole = || Way::new(self.blocks(), ScoreRange::ALL);
        match self {
            Self::Shards(shards) if shards.count() > 1 => {
                let groups = ShardGroup::all(shards, WAYS_MAX).into_iter();
                let way = |group: ShardGroup| {
                    let scores = group.scores();
                    Way::new(Arc::new(group), scores)
                };
                groups.map(way).chain([whole()]).collect()
            }
            _ => vec![whole()],
        }
    }
}

impl<T: BlockStore + 'static> From<Arc<T>> for BufferTarget {
    fn from(blocks: Arc<T>) -> Self {
        Self::Whole(blocks)
    }
}

/// A way to the target.
pub(super) struct Way {
    pub(super) target: Arc<dyn BlockStore>,
    /// What goes this way.
    pub(super) scores: ScoreRange,
    pub(super) trickle: Mutex<Trickle>,
    /// Why nothing gets through, if that is so.
    pub(super) trouble: Mutex<Option<String>>,
    /// Since when it has no room and nothing gets through.
    pub(super) full_since: Mutex<Option<Timestamp>>,
}

impl Way {
    fn new(target: Arc<dyn BlockStore>, scores: ScoreRange) -> Self {
        Self {
            target,
            scores,
            trickle: Mutex::default(),
            trouble: Mutex::default(),
            full_since: Mutex::default(),
        }
    }
}

/// The way of a new block: the first one that takes it.
pub(super) fn way_of(ways: &[Way], score: &Score) -> usize {
    ways.iter().position(|way| way.scores.contains(score)).expect("one of them takes every score")
}

/// The way of a segment: the narrowest that takes all that it can have.
pub(super) fn way_of_all(ways: &[Way], scores: &ScoreRange) -> usize {
    ways.iter().position(|way| way.scores.covers(scores)).expect("the last one takes every score")
}

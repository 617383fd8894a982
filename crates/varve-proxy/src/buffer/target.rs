//! The target of a write buffer, and the routes to it.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::{BlockStore, Score};
use varve_world::Timestamp;

use super::cursor::RouteProgress;
use crate::shards::{ScoreRange, ShardGroup, ShardedStore};

/// With more shards than this, neighbouring shards share a route: each route has a log of its own,
/// and a sync of the buffer syncs them all.
const WAYS_MAX: usize = 16;

/// The store behind a write buffer.
#[derive(Clone)]
pub enum BufferTarget {
    /// A single store, which is either reachable or not.
    Whole(Arc<dyn BlockStore>),
    /// Shards, some of which may be unreachable.
    Shards(Arc<ShardedStore>),
}

impl BufferTarget {
    /// The target as a single store.
    pub(super) fn blocks(&self) -> Arc<dyn BlockStore> {
        match self {
            Self::Whole(blocks) => Arc::clone(blocks),
            Self::Shards(shards) => Arc::clone(shards) as _,
        }
    }

    /// The routes to the target. If there are several, the last one is for blocks that were
    /// buffered when the shards were different.
    pub(super) fn ways(&self) -> Vec<BufferRoute> {
        let whole = || BufferRoute::new(self.blocks(), ScoreRange::ALL);
        match self {
            Self::Shards(shards) if shards.count() > 1 => {
                let groups = ShardGroup::all(shards, WAYS_MAX).into_iter();
                let way = |group: ShardGroup| {
                    let scores = group.scores();
                    BufferRoute::new(Arc::new(group), scores)
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

/// A route to the target.
pub(super) struct BufferRoute {
    pub(super) target: Arc<dyn BlockStore>,
    /// The scores of the blocks on this route.
    pub(super) scores: ScoreRange,
    pub(super) trickle: Mutex<RouteProgress>,
    /// Why the route is blocked, if it is.
    pub(super) trouble: Mutex<Option<String>>,
    /// Set while the route is full and blocked: the time when that began.
    pub(super) full_since: Mutex<Option<Timestamp>>,
}

impl BufferRoute {
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

/// The route of a new block: the first one that covers its score.
pub(super) fn way_of(ways: &[BufferRoute], score: &Score) -> usize {
    ways.iter().position(|way| way.scores.contains(score)).expect("one of them takes every score")
}

/// The route of a segment: the narrowest one that covers all its scores.
pub(super) fn way_of_all(ways: &[BufferRoute], scores: &ScoreRange) -> usize {
    ways.iter().position(|way| way.scores.covers(scores)).expect("the last one takes every score")
}

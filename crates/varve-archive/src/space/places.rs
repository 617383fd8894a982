//! The places on the disk that a sequential read of a snapshot visits. They are found in the index
//! and the directory pages. No contents are read.

use varve_content::{FolderStack, FolderStep, Node, NodeKind, NodeList, Progress};
use varve_store::{ClumpPlace, Store};
use varve_tree::{Entry, Visit, walk};

use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::reclaiming::block_walk::WalkBlocksError;
use crate::reclaiming::mark_error::MarkTreeError;

/// The most blocks and files of a snapshot that are looked up. A malicious snapshot may lead to the
/// same blocks without end.
const LOOK_UPS_MAX: u64 = 1 << 28;

/// The number of places that are visited for some contents.
///
/// A place is a run of clumps in one arena. A jump that is farther than a clump begins a new one.
/// Only contents count: a reader has the folders and pointer blocks in memory. Files come in the
/// order of their names, folder by folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaceDensity {
    pub place_count: u64,
    /// The bytes of the contents, without holes. Of a snapshot with more than 2²⁸ blocks and files
    /// only the first ones count.
    pub content_bytes: u64,
}

impl PlaceDensity {
    /// Returns the number of places per GiB; `None` if there are no contents.
    #[must_use]
    pub fn per_gib(&self) -> Option<u64> {
        let places = u128::from(self.place_count) << 30;
        u64::try_from(places.checked_div(u128::from(self.content_bytes))?).ok()
    }

    /// Finds the places of a snapshot.
    pub(crate) fn of(store: &Store, snapshot: &Snapshot, progress: &Progress) -> Result<Self, MarkTreeError> {
        let clump_bytes = u64::from(store.config().clump_bytes.get());
        let run = PlaceRun { clump_bytes, ..PlaceRun::default() };
        let mut count = PlaceCount { store, run, progress, look_up_count: 0 };
        match &snapshot.content {
            SnapshotContent::Image(entry) => count.contents(entry)?,
            SnapshotContent::Folder(root) => count.folder(root)?,
        }
        Ok(count.run.density)
    }
}

/// The last clump, and the count so far.
#[derive(Debug, Default)]
struct PlaceRun {
    /// A jump farther than this begins a new place.
    clump_bytes: u64,
    last: Option<ClumpPlace>,
    density: PlaceDensity,
}

impl PlaceRun {
    fn visit(&mut self, clump: ClumpPlace, content_bytes: u64) {
        let is_near = |last: &ClumpPlace| {
            let ahead = clump.bytes.start.saturating_sub(last.bytes.end);
            let back = last.bytes.start.saturating_sub(clump.bytes.end);
            last.arena == clump.arena && ahead.max(back) <= self.clump_bytes
        };
        self.density.place_count += u64::from(!self.last.as_ref().is_some_and(is_near));
        self.density.content_bytes += content_bytes;
        self.last = Some(clump);
    }
}

struct PlaceCount<'a> {
    store: &'a Store,
    run: PlaceRun,
    progress: &'a Progress,
    look_up_count: u64,
}

impl PlaceCount<'_> {
    fn is_enough(&self) -> bool {
        self.look_up_count >= LOOK_UPS_MAX
    }

    fn contents(&mut self, entry: &Entry) -> Result<(), MarkTreeError> {
        let mut failed = None;
        walk(self.store, entry, &mut |block| {
            if failed.is_some() || self.is_enough() {
                return Visit::Skip;
            }
            if self.progress.is_cancelled() {
                failed = Some(WalkBlocksError::Cancelled);
            } else if block.level == 0 {
                self.look_up_count += 1;
                match self.store.clump_of(&block.name) {
                    // The walk of all snapshots does not read contents either, so some may be lost.
                    Ok(None) => {}
                    Ok(Some(clump)) => self.run.visit(clump, block.range.end - block.range.start),
                    Err(error) => failed = Some(WalkBlocksError::Get(error)),
                }
            }
            Visit::Descend
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn folder(&mut self, root: &Node) -> Result<(), MarkTreeError> {
        let mut open = FolderStack::default();
        open.enter(NodeList::new(self.store, root), ())?;
        while let Some(step) = open.next().filter(|_| !self.is_enough()) {
            let FolderStep::Node(node) = step else { continue };
            let node = node?;
            self.look_up_count += 1;
            if node.kind == NodeKind::Folder {
                open.enter(NodeList::new(self.store, &node), ())?;
            } else if let Some(content) = &node.content {
                self.contents(content)?;
            }
            if self.progress.is_cancelled() {
                return Err(WalkBlocksError::Cancelled.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_log::ArenaId;

    use super::*;

    fn run(clumps: &[(u64, u64, u64)]) -> PlaceDensity {
        let mut run = PlaceRun { clump_bytes: 100, ..PlaceRun::default() };
        for (arena, start, bytes) in clumps {
            run.visit(ClumpPlace { arena: ArenaId(*arena), bytes: *start..start + bytes }, 1 << 20);
        }
        run.density
    }

    #[test]
    fn a_jump_farther_than_a_clump_begins_a_place() {
        let places = |clumps: &[(u64, u64, u64)]| run(clumps).place_count;
        assert_eq!(places(&[]), 0);
        // In one clump, and in the next one.
        assert_eq!(places(&[(0, 500, 50), (0, 500, 50), (0, 550, 50)]), 1);
        // Over a gap of a clump, forwards and backwards.
        assert_eq!(places(&[(0, 500, 50), (0, 650, 50), (0, 500, 50)]), 1);
        assert_eq!(places(&[(0, 500, 50), (0, 651, 50)]), 2);
        assert_eq!(places(&[(0, 651, 50), (0, 500, 50)]), 2);
        // Another arena is another file.
        assert_eq!(places(&[(0, 500, 50), (1, 550, 50), (0, 500, 50)]), 3);
    }

    #[test]
    fn places_are_told_for_a_gib() {
        assert_eq!(run(&[(0, 0, 50)]).per_gib(), Some(1024));
        assert_eq!(run(&[]).per_gib(), None);
    }

    proptest! {
        /// The places of two parts are those of the whole, or one more.
        #[test]
        fn a_cut_adds_one_place_at_most(
            clumps in prop::collection::vec((0_u64..3, 0_u64..2000, 1_u64..100), 0..40),
            at in any::<prop::sample::Index>(),
        ) {
            let (one, other) = clumps.split_at(at.index(clumps.len() + 1));
            let parts = run(one).place_count + run(other).place_count;
            let whole = run(&clumps).place_count;
            prop_assert!(whole <= parts && parts <= whole + 1);
            prop_assert!(whole <= clumps.len() as u64);
        }
    }
}

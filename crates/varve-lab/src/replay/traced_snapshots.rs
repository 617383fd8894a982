//! The blocks of the snapshots of a trace, to know what is dead once some are forgotten.
//!
//! A snapshot has the blocks that it puts. One of an image may put only what has changed: the data
//! of its series at all other places stays in it. Blocks that are put outside of snapshots are
//! never dead.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Result, bail};
use varve_block::{BlockKind, to_usize};
use varve_trace::{SnapshotBegin, SourceKind, TraceRun};

/// The snapshots of a trace, as far as it was replayed.
#[derive(Debug, Default)]
pub(super) struct TracedSnapshots {
    /// Blocks that were put outside of snapshots.
    loose: IdRanges,
    /// The blocks of each snapshot that has ended; `None` for a forgotten one.
    ended: Vec<Option<IdRanges>>,
    current: Option<CurrentSnapshot>,
    /// The data of the images of each series: an id by its place.
    images: BTreeMap<u64, BTreeMap<u64, u64>>,
}

#[derive(Debug)]
struct CurrentSnapshot {
    /// The series of an image.
    image: Option<u64>,
    /// The blocks that are not part of an image.
    others: IdRanges,
    is_forgotten: bool,
}

/// Ids, as ranges in the order of their use.
#[derive(Debug, Clone, Default)]
struct IdRanges(Vec<Range<u64>>);

impl IdRanges {
    fn add(&mut self, ids: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end == ids.start => last.end = ids.end,
            _ => self.0.push(ids),
        }
    }

    fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }
}

impl TracedSnapshots {
    pub(super) fn begin(&mut self, begin: &SnapshotBegin) {
        self.end();
        let image = (begin.source == SourceKind::Image).then_some(begin.series);
        self.current = Some(CurrentSnapshot { image, others: IdRanges::default(), is_forgotten: false });
    }

    /// Ends the snapshot that has begun, if there is one.
    pub(super) fn end(&mut self) {
        if let Some(current) = self.current.take() {
            let is_kept = !current.is_forgotten;
            self.ended.push(is_kept.then(|| self.blocks_of(current)));
        }
    }

    pub(super) fn put(&mut self, run: &TraceRun) {
        let Some(current) = &mut self.current else { return self.loose.add(run.first_id..run.end_id()) };
        match current.image {
            Some(series) if run.block_type.kind() == BlockKind::Data => {
                let image = self.images.entry(series).or_default();
                let places = (0..run.block_count).map(|block| run.place + block * u64::from(run.block_bytes));
                image.extend(places.zip(run.first_id..run.end_id()));
            }
            _ => current.others.add(run.first_id..run.end_id()),
        }
    }

    pub(super) fn forget(&mut self, snapshot: u64) -> Result<()> {
        let number = to_usize(snapshot);
        let ended_count = self.ended.len();
        match (self.ended.get_mut(number), &mut self.current) {
            (Some(ended), _) => *ended = None,
            (None, Some(current)) if number == ended_count => current.is_forgotten = true,
            (None, _) => bail!("the trace forgets its snapshot {snapshot} before it has begun"),
        }
        Ok(())
    }

    /// Forgets all snapshots that have ended but the newest `count`.
    pub(super) fn forget_all_but(&mut self, count: usize) {
        let old = self.ended.len().saturating_sub(count);
        self.ended[..old].fill(None);
    }

    /// Returns the blocks of the newest snapshot that has ended and is not forgotten: those of an
    /// image in the order of their places, others in the order in which they were put.
    pub(super) fn newest(&self) -> Option<Vec<u64>> {
        self.ended.iter().rev().flatten().next().map(|blocks| blocks.ids().collect())
    }

    /// Returns the ids of the blocks that some snapshot has.
    pub(super) fn live(&self) -> BTreeSet<u64> {
        let mut live: BTreeSet<u64> = self.loose.ids().collect();
        self.ended.iter().flatten().for_each(|blocks| live.extend(blocks.ids()));
        if let Some(current) = &self.current {
            live.extend(current.others.ids());
            // Those of a forgotten one as well: it is still being taken.
            live.extend(
                current
                    .image
                    .and_then(|series| self.images.get(&series))
                    .into_iter()
                    .flat_map(BTreeMap::values),
            );
        }
        live
    }

    fn blocks_of(&self, snapshot: CurrentSnapshot) -> IdRanges {
        let mut blocks = snapshot.others;
        let image = snapshot.image.and_then(|series| self.images.get(&series));
        image.into_iter().flat_map(BTreeMap::values).for_each(|id| blocks.add(*id..*id + 1));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use varve_block::BlockType;
    use varve_trace::SizeClass;

    use super::*;

    fn run(place: u64, first_id: u64, block_count: u64) -> TraceRun {
        TraceRun {
            place,
            first_id,
            block_count,
            block_type: BlockType::DATA,
            block_bytes: 4096,
            size_class: SizeClass::UNKNOWN,
        }
    }

    fn live_after(source: SourceKind, forgotten: &[u64]) -> Vec<u64> {
        let mut snapshots = TracedSnapshots::default();
        let begin = || SnapshotBegin { time: 0, series: 0, source };
        snapshots.put(&run(0, 0, 1));
        snapshots.begin(&begin());
        snapshots.put(&run(0, 1, 3));
        snapshots.begin(&begin());
        snapshots.put(&run(4096, 4, 1));
        snapshots.put(&TraceRun { block_type: BlockType::DIRECTORY, ..run(0, 5, 1) });
        snapshots.end();
        forgotten.iter().for_each(|snapshot| snapshots.forget(*snapshot).unwrap());
        assert!(snapshots.forget(2).unwrap_err().to_string().contains("snapshot 2"));
        snapshots.live().into_iter().collect()
    }

    #[test]
    fn blocks_of_forgotten_snapshots_are_dead_unless_another_has_them() {
        assert_eq!(live_after(SourceKind::Folder, &[]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(live_after(SourceKind::Folder, &[0]), [0, 4, 5]);
        // The second image has all places of the first one but the changed one.
        assert_eq!(live_after(SourceKind::Image, &[0]), [0, 1, 3, 4, 5]);
        assert_eq!(live_after(SourceKind::Image, &[1]), [0, 1, 2, 3]);
        assert_eq!(live_after(SourceKind::Image, &[0, 1]), [0]);
    }
}

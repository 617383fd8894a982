//! The profile of a workload: histograms of its snapshots, and nothing else. It has no order of
//! blocks, no numbers and no names, so it may be shown to anybody. Generators make traces like the
//! original from it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use varve_block::BlockType;

use crate::record::{SnapshotBegin, TraceRecord, TraceRun};

/// The series whose times and numbers of snapshots are remembered. Later ones count as new series
/// in each snapshot.
const SERIES_MAX: usize = 1 << 16;

/// Counts numbers in classes: 0, then from each power of two to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassHistogram {
    /// In ascending order, without empty classes.
    buckets: Vec<HistogramBucket>,
}

/// A class of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistogramBucket {
    /// The smallest number that belongs here: 0 or a power of two.
    pub at_least: u64,
    pub count: u64,
    /// The sum of all numbers in the class.
    pub sum: u64,
}

impl ClassHistogram {
    /// Counts a number.
    pub fn add(&mut self, number: u64) {
        self.add_many(number, 1);
    }

    /// Counts a number several times.
    pub fn add_many(&mut self, number: u64, count: u64) {
        let at_least = number.checked_ilog2().map_or(0, |bits| 1_u64 << bits);
        let place = match self.buckets.binary_search_by_key(&at_least, |bucket| bucket.at_least) {
            Ok(place) => place,
            Err(place) => {
                self.buckets.insert(place, HistogramBucket { at_least, count: 0, sum: 0 });
                place
            }
        };
        if let Some(bucket) = self.buckets.get_mut(place) {
            bucket.count = bucket.count.saturating_add(count);
            bucket.sum = bucket.sum.saturating_add(number.saturating_mul(count));
        }
    }

    /// The classes, in ascending order.
    #[must_use]
    pub fn buckets(&self) -> &[HistogramBucket] {
        &self.buckets
    }

    /// How many numbers were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// The sum of all numbers.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.sum))
    }

    /// The mean; 0 of none.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum().checked_div(self.count()).unwrap_or(0)
    }

    /// Checks that the classes are in order, and that each sum fits its class.
    fn is_sound(&self) -> bool {
        let is_class = |bucket: &HistogramBucket| {
            let HistogramBucket { at_least, count, sum } = *bucket;
            let end = at_least.saturating_mul(2).saturating_sub(u64::from(at_least > 0));
            (at_least == 0 || at_least.is_power_of_two())
                && count > 0
                && sum >= at_least.saturating_mul(count)
                && sum <= end.saturating_mul(count)
        };
        self.buckets.iter().all(is_class)
            && self.buckets.is_sorted_by(|one, next| one.at_least < next.at_least)
    }
}

/// Histograms of several snapshots. All lengths are in bytes. Pointer blocks, directories and other
/// structure are not in them, but for `structure_bytes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotShape {
    /// The data put by each snapshot.
    pub put_bytes: ClassHistogram,
    /// The data of each snapshot that was used for the first time.
    pub new_bytes: ClassHistogram,
    /// The new structure of each snapshot.
    pub structure_bytes: ClassHistogram,
    /// Lengths of stretches of new blocks.
    pub new_runs: ClassHistogram,
    /// Distances from the end of a stretch of new blocks to the next one in the same snapshot.
    pub gaps: ClassHistogram,
    /// Lengths of stretches of blocks that earlier snapshots have in the same order.
    pub known_runs: ClassHistogram,
    /// Lengths of stretches of blocks that the same snapshot had before.
    pub repeated_runs: ClassHistogram,
    /// Sizes of the new blocks.
    pub block_bytes: ClassHistogram,
    /// The new bytes of each class of compressed sizes: unknown, then up to an eighth, two eighths,
    /// and so on.
    pub size_classes: [u64; 9],
}

impl SnapshotShape {
    /// All histograms, with the names of their fields.
    #[must_use]
    pub fn histograms(&self) -> [(&'static str, &ClassHistogram); 8] {
        [
            ("put_bytes", &self.put_bytes),
            ("new_bytes", &self.new_bytes),
            ("structure_bytes", &self.structure_bytes),
            ("new_runs", &self.new_runs),
            ("gaps", &self.gaps),
            ("known_runs", &self.known_runs),
            ("repeated_runs", &self.repeated_runs),
            ("block_bytes", &self.block_bytes),
        ]
    }
}

/// The profile of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceProfile {
    /// The number of series.
    pub series_count: u64,
    /// Seconds from one snapshot of a series to its next.
    pub intervals: ClassHistogram,
    /// The first snapshot of each series.
    pub first: SnapshotShape,
    /// All later snapshots.
    pub later: SnapshotShape,
    /// Lengths of reads of consecutive blocks, in bytes.
    pub read_runs: ClassHistogram,
}

impl TraceProfile {
    /// Reports whether the histograms contradict themselves. A profile that was read from a file is
    /// checked before it is used.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let shapes = [&self.first, &self.later].into_iter().flat_map(SnapshotShape::histograms);
        let others = [&self.intervals, &self.read_runs].into_iter();
        shapes.map(|(_, histogram)| histogram).chain(others).all(ClassHistogram::is_sound)
    }
}

/// Makes a profile of the records of a trace.
#[derive(Debug, Default)]
pub struct TraceProfiler {
    profile: TraceProfile,
    /// The time of the newest snapshot of each series.
    series: BTreeMap<u64, i64>,
    next_new_id: u64,
    snapshot: Option<SnapshotInProgress>,
    /// The length of the stretch that is being read, and the id that continues it.
    read: Option<(u64, u64)>,
}

/// The snapshot that is being read.
#[derive(Debug, Default)]
struct SnapshotInProgress {
    is_first: bool,
    /// Blocks from this id on are new in this snapshot.
    first_new_id: u64,
    put_bytes: u64,
    new_bytes: u64,
    structure_bytes: u64,
    stretch: Option<Stretch>,
    /// The end of the last stretch of new blocks.
    new_end: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StretchKind {
    New,
    Known,
    Repeated,
}

/// Consecutive blocks of one kind, of any sizes and classes.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    kind: StretchKind,
    bytes: u64,
    place_end: u64,
    id_end: u64,
}

impl TraceProfiler {
    /// Begins a profile.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next record.
    pub fn add(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Snapshot(begin) => {
                self.end_snapshot();
                self.begin_snapshot(begin);
            }
            TraceRecord::Close => self.end_snapshot(),
            TraceRecord::Put(run) => {
                // Blocks that are put outside of a snapshot, as through a proxy, are one snapshot.
                if self.snapshot.is_none() {
                    self.begin_snapshot(&SnapshotBegin {
                        time: 0,
                        series: u64::MAX,
                        source: crate::record::SourceKind::Unknown,
                    });
                }
                self.put(run);
                self.next_new_id = self.next_new_id.max(run.end_id());
            }
            TraceRecord::Get(run) => {
                self.get(run);
                self.next_new_id = self.next_new_id.max(run.end_id());
            }
            _ => {}
        }
    }

    /// Returns the profile.
    #[must_use]
    pub fn finish(mut self) -> TraceProfile {
        self.end_snapshot();
        if let Some((bytes, _)) = self.read.take() {
            self.profile.read_runs.add(bytes);
        }
        self.profile
    }

    fn begin_snapshot(&mut self, begin: &SnapshotBegin) {
        let before = self.series.get(&begin.series).copied();
        if let Some(time) = before {
            self.profile.intervals.add(u64::try_from(begin.time.saturating_sub(time)).unwrap_or(0));
        } else {
            self.profile.series_count = self.profile.series_count.saturating_add(1);
        }
        if before.is_some() || self.series.len() < SERIES_MAX {
            self.series.insert(begin.series, begin.time);
        }
        self.snapshot = Some(SnapshotInProgress {
            is_first: before.is_none(),
            first_new_id: self.next_new_id,
            ..SnapshotInProgress::default()
        });
    }

    fn put(&mut self, run: &TraceRun) {
        let is_new = run.first_id >= self.next_new_id;
        let Some(open) = &mut self.snapshot else { return };
        let shape = if open.is_first { &mut self.profile.first } else { &mut self.profile.later };
        let bytes = run.bytes();
        if run.block_type != BlockType::DATA {
            open.structure_bytes = open.structure_bytes.saturating_add(if is_new { bytes } else { 0 });
            return;
        }
        open.put_bytes = open.put_bytes.saturating_add(bytes);
        let kind = match is_new {
            true => StretchKind::New,
            false if run.first_id >= open.first_new_id => StretchKind::Repeated,
            false => StretchKind::Known,
        };
        if is_new {
            open.new_bytes = open.new_bytes.saturating_add(bytes);
            shape.block_bytes.add_many(u64::from(run.block_bytes), run.block_count);
            if let Some(class) = shape.size_classes.get_mut(usize::from(run.size_class.eighths())) {
                *class = class.saturating_add(bytes);
            }
        }
        let place_end = run.place.saturating_add(bytes);
        // Structure between two new blocks takes ids, but does not end the stretch.
        let continues = open.stretch.filter(|stretch| {
            let follows = kind == StretchKind::New || stretch.id_end == run.first_id;
            stretch.kind == kind && stretch.place_end == run.place && follows
        });
        let is_next_new = continues.is_none() && is_new;
        let length = continues.map_or(0, |stretch| stretch.bytes).saturating_add(bytes);
        let ended = if continues.is_some() { None } else { open.stretch };
        open.stretch = Some(Stretch { kind, bytes: length, place_end, id_end: run.end_id() });
        if let Some(ended) = ended {
            shape.add_stretch(&ended);
        }
        if is_next_new && let Some(end) = open.new_end {
            shape.gaps.add(run.place.abs_diff(end));
        }
        if is_new {
            open.new_end = Some(place_end);
        }
    }

    fn get(&mut self, run: &TraceRun) {
        let continued = self.read.filter(|(_, id)| *id == run.first_id);
        if continued.is_none()
            && let Some((bytes, _)) = self.read
        {
            self.profile.read_runs.add(bytes);
        }
        let length = continued.map_or(0, |(bytes, _)| bytes).saturating_add(run.bytes());
        self.read = Some((length, run.end_id()));
    }

    fn end_snapshot(&mut self) {
        let Some(open) = self.snapshot.take() else { return };
        let shape = if open.is_first { &mut self.profile.first } else { &mut self.profile.later };
        if let Some(stretch) = open.stretch {
            shape.add_stretch(&stretch);
        }
        shape.put_bytes.add(open.put_bytes);
        shape.new_bytes.add(open.new_bytes);
        shape.structure_bytes.add(open.structure_bytes);
    }
}

impl SnapshotShape {
    fn add_stretch(&mut self, stretch: &Stretch) {
        let histogram = match stretch.kind {
            StretchKind::New => &mut self.new_runs,
            StretchKind::Known => &mut self.known_runs,
            StretchKind::Repeated => &mut self.repeated_runs,
        };
        histogram.add(stretch.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{SizeClass, SourceKind};

    fn begin(time: i64) -> TraceRecord {
        TraceRecord::Snapshot(SnapshotBegin { time, series: 0, source: SourceKind::Image })
    }

    fn put(place: u64, first_id: u64, block_count: u64) -> TraceRecord {
        TraceRecord::Put(TraceRun {
            place: place.saturating_mul(4096),
            first_id,
            block_count,
            block_type: BlockType::DATA,
            block_bytes: 4096,
            size_class: SizeClass::new(4).unwrap(),
        })
    }

    #[test]
    fn stretches_and_gaps_are_those_of_the_snapshots() {
        let mut profiler = TraceProfiler::new();
        // 100 new blocks, of which 10 are repeated at the end.
        for record in [begin(0), put(0, 0, 60), put(60, 60, 40), put(100, 5, 10)] {
            profiler.add(&record);
        }
        // The next day, blocks 20 to 29 and 50 are new.
        for record in [
            begin(86_400),
            put(0, 0, 20),
            put(20, 100, 10),
            put(30, 30, 20),
            put(50, 110, 1),
            put(51, 51, 49),
        ] {
            profiler.add(&record);
        }
        let profile = profiler.finish();
        assert!(profile.is_sound());
        assert_eq!((profile.series_count, profile.intervals.sum()), (1, 86_400));
        let blocks = |histogram: &ClassHistogram| (histogram.count(), histogram.sum() / 4096);
        let TraceProfile { first, later, .. } = &profile;
        assert_eq!(blocks(&first.put_bytes), (1, 110));
        assert_eq!(blocks(&first.new_runs), (1, 100));
        assert_eq!(blocks(&first.repeated_runs), (1, 10));
        assert_eq!(first.gaps.count(), 0);
        assert_eq!((blocks(&later.put_bytes), blocks(&later.new_bytes)), ((1, 100), (1, 11)));
        assert_eq!((blocks(&later.new_runs), blocks(&later.gaps)), ((2, 11), (1, 20)));
        assert_eq!(blocks(&later.known_runs), (3, 89));
        assert_eq!(later.size_classes[4], 11 * 4096);
        assert_eq!(later.block_bytes.count(), 11);
    }

    #[test]
    fn classes_are_powers_of_two() {
        let mut histogram = ClassHistogram::default();
        for number in [0, 1, 2, 3, 4, u64::MAX] {
            histogram.add(number);
        }
        let classes: Vec<_> =
            histogram.buckets().iter().map(|bucket| (bucket.at_least, bucket.count)).collect();
        assert_eq!(classes, [(0, 1), (1, 1), (2, 2), (4, 1), (1 << 63, 1)]);
        assert_eq!((histogram.count(), histogram.sum()), (6, u64::MAX));
    }

    #[test]
    fn a_profile_that_contradicts_itself_is_found() {
        let bucket = |at_least, count, sum| HistogramBucket { at_least, count, sum };
        let of = |buckets: &[HistogramBucket]| ClassHistogram { buckets: buckets.to_vec() }.is_sound();
        assert!(of(&[bucket(0, 3, 0), bucket(4, 2, 9)]));
        for wrong in [bucket(3, 1, 3), bucket(4, 1, 8), bucket(4, 1, 3), bucket(4, 0, 0), bucket(0, 1, 1)] {
            assert!(!of(&[wrong]), "{wrong:?}");
        }
        assert!(!of(&[bucket(4, 1, 4), bucket(2, 1, 2)]));
    }
}

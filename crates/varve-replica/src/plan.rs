//! What is to be uploaded: a pure function of what the log has and what the target lists.

use std::collections::BTreeSet;
use std::ops::Range;

use varve_world::FileName;

use crate::listing::Segment;
use crate::name::{SegmentEnd, SegmentName};
use crate::records::ArenaRecords;

/// A segment that is to be uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSegment {
    /// What it will be called.
    pub name: SegmentName,
    /// Which part of the arena's file it is, in bytes.
    pub range: Range<u64>,
    /// Whether it takes the place of an object that is damaged.
    pub replaces: bool,
}

impl PlannedSegment {
    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// An object that is not as long as the part of the log that its name tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongLength {
    /// Which object.
    pub object: FileName,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// How long it should be.
    pub expected: u64,
}

/// What is to be done about one arena.
#[derive(Debug, Default)]
pub(crate) struct ArenaPlan {
    pub(crate) puts: Vec<PlannedSegment>,
    pub(crate) wrong: Vec<WrongLength>,
    /// Segments that end with something the log does not have.
    pub(crate) unknown: Vec<Segment>,
    /// How much of the arena is there already, in bytes.
    pub(crate) present_bytes: u64,
}

/// Compares an arena's records with the segments of its generation. Objects named in `replace` count as damaged.
pub(crate) fn plan_arena(
    records: &ArenaRecords,
    segments: &[Segment],
    segment_bytes: u64,
    replace: &BTreeSet<FileName>,
) -> ArenaPlan {
    let mut plan = ArenaPlan::default();
    let mut covered: Vec<Range<u64>> = Vec::new();
    let mut taken = BTreeSet::new();
    for segment in segments {
        let begins_here = records.start_at(segment.name.offset) == Some(segment.name.start);
        let Some(end) = expected_end(records, segment).filter(|_| begins_here) else {
            plan.unknown.push(segment.clone());
            continue;
        };
        taken.insert(segment.name.clone());
        let range = segment.name.offset..end.max(segment.name.offset);
        let file = segment.name.file_name();
        let is_right = segment.range() == range;
        if replace.contains(&file) {
            plan.puts.push(PlannedSegment {
                name: segment.name.clone(),
                range: range.clone(),
                replaces: true,
            });
            covered.push(range);
        } else if is_right {
            plan.present_bytes += segment.bytes;
            covered.push(range);
        } else {
            let expected = range.end - range.start;
            plan.wrong.push(WrongLength { object: file, bytes: segment.bytes, expected });
        }
    }
    for gap in uncovered(covered, records.end()) {
        cut(records, gap, segment_bytes, &taken, &mut plan.puts);
    }
    plan.puts.sort_by_key(|put| put.range.start);
    plan
}

/// Where a segment with this name ends in this log; `None` if the log has no such end.
fn expected_end(records: &ArenaRecords, segment: &Segment) -> Option<u64> {
    match segment.name.end {
        SegmentEnd::Record(code) => records.end_of(&code),
        SegmentEnd::Seal(code) => records.seal.filter(|seal| seal.code == code).map(|seal| seal.file_bytes),
    }
}

/// What of `0..end` none of the ranges covers.
fn uncovered(mut covered: Vec<Range<u64>>, end: u64) -> Vec<Range<u64>> {
    covered.sort_by_key(|range| (range.start, range.end));
    let (mut gaps, mut place) = (Vec::new(), 0);
    for range in covered {
        if range.start > place {
            gaps.push(place..range.start.min(end));
        }
        place = place.max(range.end);
    }
    if place < end {
        gaps.push(place..end);
    }
    gaps
}

/// Cuts a gap into segments of `segment_bytes` at most, unless one record is longer. No segment gets a name in `taken`: what has
/// that name is damaged, and a replica replaces nothing; so the cut is made elsewhere, if there is more than one record.
fn cut(
    records: &ArenaRecords,
    gap: Range<u64>,
    segment_bytes: u64,
    taken: &BTreeSet<SegmentName>,
    puts: &mut Vec<PlannedSegment>,
) {
    let seal = records.seal.filter(|seal| seal.file_bytes == gap.end && records.damage.is_none());
    let mut start = gap.start;
    while start < gap.end {
        let Some(before) = records.start_at(start) else { return };
        let inside = records.within(&(start..gap.end));
        let fitting = inside.partition_point(|record| record.end - start <= segment_bytes);
        let fits_seal = seal.filter(|_| fitting == inside.len() && gap.end - start <= segment_bytes);
        let mut ends: Vec<(u64, SegmentEnd)> = Vec::new();
        if let Some(seal) = fits_seal.or(seal.filter(|_| inside.is_empty())) {
            ends.push((gap.end, SegmentEnd::Seal(seal.code)));
        }
        let records_first = inside.iter().take(fitting.max(1)).rev();
        ends.extend(records_first.map(|record| (record.end, SegmentEnd::Record(record.code))));
        let named = |(end, how): (u64, SegmentEnd)| PlannedSegment {
            name: SegmentName {
                arena: records.id,
                generation: records.generation,
                offset: start,
                start: before,
                end: how,
            },
            range: start..end,
            replaces: false,
        };
        let Some(put) = ends.into_iter().map(named).find(|put| !taken.contains(&put.name)) else { return };
        start = put.range.end;
        puts.push(put);
    }
}

/// In the order of upload: arena by arena, and in each the segment at offset 0 last if others are new too, since it makes the arena
/// visible.
pub(crate) fn order_of_upload(puts: &mut [PlannedSegment]) {
    puts.sort_by_key(|put| (put.name.arena, put.range.start == 0, put.range.start));
}

/// Whether a segment makes its arena visible: everything before it must be there first.
pub(crate) fn is_gate(put: &PlannedSegment) -> bool {
    put.range.start == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of ranges is meant")]
    fn gaps_are_what_is_left() {
        assert_eq!(uncovered(Vec::new(), 10), [0..10]);
        assert_eq!(uncovered(vec![3..5, 0..2, 4..6], 10), [2..3, 6..10]);
        assert_eq!(uncovered(vec![0..10], 10), []);
        assert_eq!(uncovered(Vec::new(), 0), []);
    }
}

//! Plans the upload: a pure function of the log's records and the target's listing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use varve_log::{ArenaId, Seals};
use varve_world::FileName;

use crate::objects::listing::ListedSegment;
use crate::objects::object_name::{SegmentEnd, SegmentName};
use crate::objects::record_ends::ArenaRecords;

/// A segment to be uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSegment {
    pub name: SegmentName,
    /// The range of the arena's file, in bytes.
    pub range: Range<u64>,
    /// True if it replaces a damaged object.
    pub replaces: bool,
}

impl PlannedSegment {
    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns true if the segment has the arena's header. Without it the arena is invisible.
    fn is_gate(&self) -> bool {
        self.range.start == 0
    }
}

/// An object with a length that differs from the one that its name implies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongLength {
    pub object: FileName,
    /// The actual length in bytes.
    pub bytes: u64,
    /// The expected length in bytes.
    pub expected: u64,
}

/// The plan for one arena.
#[derive(Debug, Default)]
pub(crate) struct ArenaPlan {
    pub(crate) puts: Vec<PlannedSegment>,
    pub(crate) wrong: Vec<WrongLength>,
    /// Segments whose start or end is not in the log.
    pub(crate) unknown: Vec<ListedSegment>,
    /// The bytes of the arena that are already at the target.
    pub(crate) present_bytes: u64,
}

/// Compares an arena's records with the segments of its generation. Objects in `replace` count as
/// damaged.
pub(crate) fn plan_arena(
    records: &ArenaRecords,
    segments: &[ListedSegment],
    segment_bytes: u64,
    replace: &BTreeSet<FileName>,
) -> ArenaPlan {
    let mut plan = ArenaPlan::default();
    let mut present: Vec<Range<u64>> = Vec::new();
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
            present.push(range);
        } else if is_right {
            plan.present_bytes += segment.bytes;
            present.push(range);
        } else {
            let expected = range.end - range.start;
            plan.wrong.push(WrongLength { object: file, bytes: segment.bytes, expected });
        }
    }
    for gap in missing(&present, records.end()) {
        cut(records, gap, segment_bytes, &taken, &mut plan.puts);
    }
    plan.puts.sort_by_key(|put| put.range.start);
    plan
}

/// Returns the end of the segment with this name in this log; `None` if the log has no such end.
fn expected_end(records: &ArenaRecords, segment: &ListedSegment) -> Option<u64> {
    match segment.name.end {
        SegmentEnd::Record(code) => records.end_of(&code),
        SegmentEnd::Seal(code) => records.seal.filter(|seal| seal.code == code).map(|seal| seal.file_bytes),
    }
}

/// Finds the ranges to upload so that a chain of segments leads from 0 to `end`. Of all chains
/// through the existing segments, chooses the one with the fewest bytes to upload. It is not enough
/// that segments cover every byte: a reader continues at the end of a segment, where another one
/// must begin.
fn missing(present: &[Range<u64>], end: u64) -> Vec<Range<u64>> {
    let mut ending_at: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut places = BTreeSet::from([0, end]);
    for range in present.iter().filter(|range| !range.is_empty() && range.start < end) {
        let range = range.start..range.end.min(end);
        places.extend([range.start, range.end]);
        ending_at.entry(range.end).or_default().push(range.start);
    }
    // For each place: the fewest bytes to upload to reach it, the previous place, and whether the
    // step is an upload or a segment.
    let mut ways: BTreeMap<u64, (u64, u64, bool)> = BTreeMap::new();
    let mut before = None;
    for place in places {
        let uploaded = before.map(|(from, bytes)| (bytes + (place - from), from, true));
        let there = ending_at.remove(&place).unwrap_or_default().into_iter();
        let there = there.filter_map(|from| ways.get(&from).map(|(bytes, ..)| (*bytes, from, false)));
        let best = there.chain(uploaded).min_by_key(|(bytes, ..)| *bytes).unwrap_or_default();
        ways.insert(place, best);
        before = Some((place, best.0));
    }
    let mut gaps: Vec<Range<u64>> = Vec::new();
    let mut place = end;
    while place > 0 {
        let Some((_, from, is_upload)) = ways.get(&place) else { break };
        match gaps.last_mut() {
            Some(gap) if *is_upload && gap.start == place => gap.start = *from,
            _ if *is_upload => gaps.push(*from..place),
            _ => {}
        }
        place = *from;
    }
    gaps.reverse();
    gaps
}

/// Cuts a gap into segments of at most `segment_bytes`, unless one record is longer. No segment
/// gets a name in `taken`. The object with that name is damaged, and a replica replaces nothing, so
/// the cut is made elsewhere if there is more than one record.
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

/// The state of an arena's earlier generation at a target, if readers use it until the present one
/// is whole there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EarlierGeneration {
    /// Its end was never uploaded, or an object is missing.
    Cut,
    Whole,
}

/// The arenas whose present generation takes the place of an earlier one.
pub(crate) type Succeeding = BTreeMap<ArenaId, EarlierGeneration>;

/// Returns the state of the generation whose place a segment takes; `None` if it takes none.
fn replaced_by(put: &PlannedSegment, succeeding: &Succeeding) -> Option<EarlierGeneration> {
    succeeding.get(&put.name.arena).copied().filter(|_| put.is_gate())
}

/// Sorts into the order of upload. The sealed arenas come in the order of their seals, followed by
/// the others. So no page comes before a seal that it counts. Within an arena, the segment at
/// offset 0 is last, because it makes the arena visible. If it takes the place of an earlier
/// generation, it comes after everything else, as the renames of a collector come after its note:
/// see [`there_before`].
pub(crate) fn order_of_upload(puts: &mut [PlannedSegment], seals: &Seals, succeeding: &Succeeding) {
    let place = |arena| seals.get(arena).map_or(u64::MAX, |seal| seal.ordinal);
    puts.sort_by_key(|put| {
        let (arena, start) = (put.name.arena, put.range.start);
        (replaced_by(put, succeeding), place(arena), arena, put.is_gate(), start)
    });
}

/// For each segment, computes how many of the first segments must be complete before it. A segment
/// at offset 0, which makes its arena visible, needs all earlier ones. The other segments of such
/// an arena need none. A segment of an arena that is already visible needs all segments of earlier
/// arenas, and the seal also needs all segments of its arena. So the visible part is a good log
/// wherever an upload stops: it counts no missing seal, and no seal lacks a part of its arena.
///
/// A rewritten arena is visible in its earlier generation, which has every block of the later one
/// up to the place where it was cut. The later generation takes its place when the rest of the log
/// is there, with the note about the arena. That log no longer lists the snapshots that need the
/// removed blocks. Cut generations go first, since the log has blocks that they lack.
pub(crate) fn there_before(puts: &[PlannedSegment], succeeding: &Succeeding) -> Vec<usize> {
    let is_gate = PlannedSegment::is_gate;
    let replaced = |put: &PlannedSegment| replaced_by(put, succeeding);
    let hidden: BTreeSet<_> = puts.iter().filter(|put| is_gate(put)).map(|put| put.name.arena).collect();
    let (mut arena, mut first) = (None, 0);
    let before = puts.iter().enumerate().map(|(number, put)| {
        if arena.replace(put.name.arena) != Some(put.name.arena) {
            first = number;
        }
        if let Some(earlier) = replaced(put) {
            puts.partition_point(|other| replaced(other) < Some(earlier))
        } else if is_gate(put) {
            number
        } else if hidden.contains(&put.name.arena) {
            0
        } else if matches!(put.name.end, SegmentEnd::Seal(_)) {
            number
        } else {
            first
        }
    });
    before.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;
    use varve_block::to_usize;
    use varve_log::Seal;

    use super::*;
    use crate::objects::listing::ArenaAssembly;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of ranges is meant")]
    fn what_is_missing_is_what_leads_on() {
        assert_eq!(missing(&[], 10), [0..10]);
        assert_eq!(missing(&[3..5, 0..2], 10), [2..3, 5..10]);
        assert_eq!(missing(&[0..10], 10), []);
        assert_eq!(missing(&[], 0), []);
        // The segments cover all bytes, but no chain leads from one to the other.
        assert_eq!(missing(&[0..6, 5..10], 10), [6..10]);
        assert_eq!(missing(&[0..6, 3..10], 10), [0..3]);
        // The detour is shorter.
        assert_eq!(missing(&[0..6, 0..2, 2..5, 5..10], 10), []);
        assert_eq!(missing(&[0..4, 4..4, 3..8, 4..7, 12..20], 8), [7..8]);
    }

    fn put(arena: u64, range: Range<u64>) -> PlannedSegment {
        let end = SegmentEnd::Record([u8::try_from(range.end).unwrap(); 16]);
        let name =
            SegmentName { arena: ArenaId(arena), generation: 0, offset: range.start, start: [0; 16], end };
        PlannedSegment { name, range, replaces: false }
    }

    /// Arena 4 grows. So did arena 1, which was sealed after arena 2. Arenas 2 and 3 are new.
    #[test]
    fn nothing_is_seen_before_the_seals_that_it_counts() {
        let seals = [(2, 6), (1, 7), (3, 8)].map(|(arena, ordinal)| {
            (ArenaId(arena), Seal { ordinal, generation: 0, code: [u8::try_from(arena).unwrap(); 32] })
        });
        let ranges =
            [(4, 5..9), (4, 9..12), (3, 0..3), (3, 3..7), (2, 4..9), (2, 0..4), (1, 50..60), (1, 30..50)];
        let mut puts = ranges.map(|(arena, range)| put(arena, range));
        puts[6].name.end = SegmentEnd::Seal([1; 32]);
        let seals = seals.into_iter().collect();
        order_of_upload(&mut puts, &seals, &Succeeding::new());
        let order = puts.iter().map(|put| (put.name.arena.0, put.range.start)).collect::<Vec<_>>();
        assert_eq!(order, [(2, 4), (2, 0), (1, 30), (1, 50), (3, 3), (3, 0), (4, 5), (4, 9)]);
        assert_eq!(there_before(&puts, &Succeeding::new()), [0, 1, 2, 3, 0, 5, 6, 6]);
    }

    /// Arenas 1 to 3 were rewritten, and arena 4 grows. Its new pages count the new seals. The end
    /// of arena 3 was never uploaded.
    #[test]
    fn a_later_generation_takes_its_place_last() {
        let seals = [(1, 5), (2, 6), (3, 7)].map(|(arena, ordinal)| {
            (ArenaId(arena), Seal { ordinal, generation: 1, code: [u8::try_from(arena).unwrap(); 32] })
        });
        let mut puts = [(4, 5..9), (4, 9..12), (3, 0..3), (3, 3..7), (2, 4..9), (2, 0..4), (1, 0..9)]
            .map(|(arena, range)| put(arena, range));
        let (whole, cut) = (EarlierGeneration::Whole, EarlierGeneration::Cut);
        let succeeding = [(1, whole), (2, whole), (3, cut)].map(|(arena, state)| (ArenaId(arena), state));
        let succeeding = succeeding.into_iter().collect();
        order_of_upload(&mut puts, &seals.into_iter().collect(), &succeeding);
        let order = puts.iter().map(|put| (put.name.arena.0, put.range.start)).collect::<Vec<_>>();
        assert_eq!(order, [(2, 4), (3, 3), (4, 5), (4, 9), (3, 0), (1, 0), (2, 0)]);
        assert_eq!(there_before(&puts, &succeeding), [0, 0, 2, 2, 4, 5, 5]);
    }

    /// An object that a target may have: from the end of one record to the end of a later one, by
    /// number, and how much of it exists.
    #[derive(Debug, Clone)]
    struct Has {
        from: Index,
        records: Index,
        bytes: Option<Index>,
        is_replaced: bool,
    }

    fn has() -> impl Strategy<Value = Has> {
        let bytes = prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)];
        (any::<Index>(), any::<Index>(), bytes, any::<bool>())
            .prop_map(|(from, records, bytes, is_replaced)| Has { from, records, bytes, is_replaced })
    }

    proptest! {
        /// With any existing objects, torn or overlapping, the applied plan gives a chain from the
        /// header to the end.
        #[test]
        fn what_is_planned_makes_the_arena_whole(
            lengths in prop::collection::vec(1_u64..9, 2..14),
            is_sealed: bool,
            there in prop::collection::vec(has(), 0..12),
            segment_granules in 1_u64..60,
        ) {
            let records = ArenaRecords::of_lengths(&lengths, is_sealed);
            let places: Vec<u64> = records.cuts();
            let (mut segments, mut replace) = (Vec::new(), BTreeSet::new());
            for has in there {
                // A torn object with a single record can only be replaced.
                let from = has.from.index(places.len() - 1);
                let least = if has.bytes.is_some() && !has.is_replaced { 2 } else { 1 };
                let Some(span) = (places.len() - from).checked_sub(least).filter(|span| *span > 0) else { continue };
                let to = from + least + has.records.index(span);
                let name = records.name_of(places[from], places[to]);
                let whole = places[to] - places[from];
                let bytes = has.bytes.map_or(whole, |bytes| bytes.index(to_usize(whole)) as u64);
                if segments.iter().any(|segment: &ListedSegment| segment.name == name) {
                    continue;
                }
                if has.is_replaced {
                    replace.insert(name.file_name());
                }
                segments.push(ListedSegment { name, bytes });
            }
            let segment_bytes = segment_granules * varve_log::GRANULE_BYTES;
            let plan = plan_arena(&records, &segments, segment_bytes, &replace);
            prop_assert!(plan.unknown.is_empty());
            let mut after = segments.clone();
            for put in &plan.puts {
                let segment = ListedSegment { name: put.name.clone(), bytes: put.bytes() };
                let taken = after.iter_mut().find(|other| other.name == segment.name);
                prop_assert_eq!(taken.is_some(), put.replaces, "nothing is replaced unless somebody said so");
                match taken {
                    Some(other) => *other = segment,
                    None => after.push(segment),
                }
            }
            let assembly = ArenaAssembly::of(&after);
            prop_assert_eq!((assembly.bytes(), assembly.holes()), (records.end(), Vec::new()));
            prop_assert_eq!(assembly.is_whole(), is_sealed);
            let again = plan_arena(&records, &after, segment_bytes, &BTreeSet::new());
            prop_assert!(again.puts.is_empty(), "and then there is nothing left to do: {:?}", again.puts);
        }
    }
}

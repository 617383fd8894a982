//! Assembles arenas from a target's list of objects: the segments of each arena, and the unused
//! ones.
//!
//! Lengths and names are not trusted. An arena is assembled from the segments that fit. The others
//! are reported and not used.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::ops::Range;

use varve_block::has_kind;
use varve_log::{ArenaId, ArenaMap, Granule};
use varve_remote::{NonObjectKind, Object, Survey, Target, TargetError};
use varve_world::FileName;

use crate::objects::object_name::{KEYS, SegmentEnd, SegmentName, is_folder};

/// A segment in the listing of a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedSegment {
    pub name: SegmentName,
    /// The length of the object in bytes.
    pub bytes: u64,
}

impl ListedSegment {
    /// Returns the range of the segment in its arena, in bytes.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.name.offset..self.name.offset.saturating_add(self.bytes)
    }

    pub(crate) fn is_seal(&self) -> bool {
        matches!(self.name.end, SegmentEnd::Seal(_))
    }
}

/// Everything at a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaListing {
    /// The small files that are copied unchanged, with their lengths.
    pub settings: BTreeMap<FileName, u64>,
    /// The segments, by arena and generation.
    pub arenas: BTreeMap<ArenaId, BTreeMap<u32, Vec<ListedSegment>>>,
    /// Objects that belong to no replica.
    pub strangers: Vec<Object>,
    /// Entries that have the name of an object or folder of a replica, but are none.
    pub in_the_way: Vec<ObstructingEntry>,
}

/// An entry that is not an object but has the name of one, or is not a folder but has the name of
/// one with objects. The expected object can neither be read nor put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {kind} is in place of {}, and must be removed or renamed there by hand", self.place())]
pub struct ObstructingEntry {
    /// The name of the expected object or folder.
    pub object: FileName,
    pub kind: NonObjectKind,
}

has_kind!(ObstructingEntry: _ => Damage);

impl ObstructingEntry {
    /// Describes the expected entry.
    pub(crate) fn place(&self) -> &'static str {
        if is_folder(&self.object) { "this folder of objects" } else { "this object" }
    }
}

impl ReplicaListing {
    /// Lists the target.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn read(target: &dyn Target) -> Result<Self, TargetError> {
        Ok(Self::of(target.survey()?))
    }

    /// Classifies the entries of a survey.
    #[must_use]
    pub fn of(survey: Survey) -> Self {
        let mut listing = Self::default();
        for other in survey.others {
            let is_object = is_setting(&other.name) || SegmentName::of_file(&other.name).is_some();
            if is_object || (is_folder(&other.name) && other.kind != NonObjectKind::Folder) {
                listing.in_the_way.push(ObstructingEntry { object: other.name, kind: other.kind });
            }
        }
        for object in survey.objects {
            if let Some(name) = SegmentName::of_file(&object.name) {
                let generations = listing.arenas.entry(name.arena).or_default();
                generations
                    .entry(name.generation)
                    .or_default()
                    .push(ListedSegment { name, bytes: object.bytes });
            } else if is_setting(&object.name) {
                listing.settings.insert(object.name, object.bytes);
            } else {
                listing.strangers.push(object);
            }
        }
        listing
    }

    /// Moves impossible segments to the strangers: a segment that ends beyond the longest arena of
    /// this map, and a segment of an arena beyond the end of every log. A forged name may claim a
    /// terabyte, or the last of ten thousand million arenas, at no cost. Otherwise the gap before
    /// it would be read and written byte by byte, or reported arena by arena.
    #[must_use]
    pub fn within(mut self, map: ArenaMap) -> Self {
        let end_max = map.file_bytes_max();
        let is_in_a_log = |arena| map.address(arena, Granule::default()).is_some();
        self.set_apart(|segment| segment.range().end > end_max || !is_in_a_log(segment.name.arena));
        self
    }

    /// Moves segments to the strangers.
    pub(crate) fn set_apart(&mut self, is_stranger: impl Fn(&ListedSegment) -> bool) {
        for generations in self.arenas.values_mut() {
            for segments in generations.values_mut() {
                let apart = segments.extract_if(.., |segment| is_stranger(segment));
                let objects =
                    apart.map(|ListedSegment { name, bytes }| Object { name: name.file_name(), bytes });
                self.strangers.extend(objects);
            }
            generations.retain(|_, segments| !segments.is_empty());
        }
        self.arenas.retain(|_, generations| !generations.is_empty());
    }

    /// Iterates over the files of `keys/`.
    pub fn keys(&self) -> impl Iterator<Item = &FileName> {
        self.settings.keys().filter(|file| is_key(file))
    }

    /// Returns true if there is nothing of a replica.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.arenas.is_empty()
    }

    /// Fails if an object could not be put because something else has its name.
    ///
    /// # Errors
    /// The first such entry.
    pub(crate) fn require_clear(&self) -> Result<(), ObstructingEntry> {
        self.in_the_way.first().cloned().map_or(Ok(()), Err)
    }

    /// Assembles all arenas.
    pub(crate) fn assemble(&self) -> BTreeMap<ArenaId, ArenaAssembly> {
        self.arenas.iter().map(|(id, generations)| (*id, ArenaAssembly::newest(generations))).collect()
    }
}

/// Marks the replica and the version of its layout. The first object that is put.
pub(crate) const MARK: &str = "replica.toml";
pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const FORMAT_PAGE: &str = "FORMAT.md";

/// Makes a file name from one of these constants, or from parts that are valid.
pub(crate) fn plain(name: &str) -> FileName {
    FileName::new(name).expect("a plain name")
}

fn is_setting(file: &FileName) -> bool {
    [MARK, CONFIG, FORMAT_PAGE].contains(&file.as_str()) || is_key(file)
}

fn is_key(file: &FileName) -> bool {
    file.folder() == KEYS && file.as_str().ends_with(".toml")
}

/// An arena, assembled from its segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArenaAssembly {
    pub generation: u32,
    /// The used segments in order, without overlaps.
    pub parts: Vec<ListedSegment>,
    /// Unused segments of the same generation: they overlap others, or the part before them is
    /// missing.
    pub spare: Vec<ListedSegment>,
}

impl ArenaAssembly {
    /// Selects the newest generation that is whole; if none is, the newest visible one.
    ///
    /// A generation is rewritten as a whole. During its upload it is not whole, and the previous
    /// one remains valid, even if its end was never uploaded.
    #[must_use]
    pub fn newest(generations: &BTreeMap<u32, Vec<ListedSegment>>) -> Self {
        let mut all: Vec<_> = generations.values().map(|segments| Self::of(segments)).collect();
        let whole = all.iter().rposition(Self::is_whole);
        let used = whole.or_else(|| all.iter().rposition(Self::is_visible));
        match used.or(all.len().checked_sub(1)) {
            Some(place) => all.swap_remove(place),
            None => Self::default(),
        }
    }

    /// Assembles the segments of one generation. Each segment begins at the end of the previous
    /// one, and names its last record. If there are several chains, prefers one that ends with a
    /// seal, and otherwise the longest.
    #[must_use]
    pub fn of(segments: &[ListedSegment]) -> Self {
        let generation = segments.first().map_or(0, |segment| segment.name.generation);
        let mut sorted: Vec<_> = segments.to_vec();
        sorted.sort_by_key(|segment| (segment.name.offset, segment.bytes));
        let ways = ways(&sorted);
        let (mut parts, mut used) = (Vec::new(), vec![false; sorted.len()]);
        // Without a segment at offset 0 there is no header and so no arena. That segment is
        // uploaded last.
        let mut next = ways.range(..(1, [0; 16])).map(|(_, way)| way).max_by_key(|way| way.worth());
        while let Some(way) = next {
            let Some((segment, used)) = sorted.get(way.segment).zip(used.get_mut(way.segment)) else { break };
            *used = true;
            parts.push(segment.clone());
            let SegmentEnd::Record(code) = segment.name.end else { break };
            let place = segment.range().end;
            next = ways.get(&(place, code)).or_else(|| {
                // The end of a sealed arena is known, so a hole does not hide the segments after
                // it.
                let behind = ways.range((place.saturating_add(1), [0; 16])..).map(|(_, way)| way);
                behind.into_iter().find(|way| way.leads_to_seal)
            });
        }
        let spare =
            sorted.into_iter().zip(used).filter(|(_, used)| !used).map(|(segment, _)| segment).collect();
        Self { generation, parts, spare }
    }

    /// Returns the length of the available part of the arena in bytes; 0 if there is no arena.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.range().end)
    }

    /// Returns true if a reader sees the arena.
    pub(crate) fn is_visible(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns true if the name of the last segment claims a seal.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.parts.last().is_some_and(ListedSegment::is_seal)
    }

    /// Returns true if the arena ends with a seal and has no holes.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_sealed() && self.holes().is_empty()
    }

    /// Returns the ranges between the segments.
    pub(crate) fn holes(&self) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut end = 0;
        for part in &self.parts {
            if part.name.offset > end {
                holes.push(end..part.name.offset);
            }
            end = part.range().end;
        }
        holes
    }

    /// Returns the segment with the byte at `offset`.
    pub(crate) fn part_at(&self, offset: u64) -> Option<&ListedSegment> {
        let place = self.parts.partition_point(|part| part.name.offset <= offset).checked_sub(1)?;
        self.parts.get(place).filter(|part| part.range().contains(&offset))
    }
}

/// The best chain of segments from one place: whether it ends with a seal, and its end.
struct SegmentChain {
    segment: usize,
    leads_to_seal: bool,
    end: u64,
}

impl SegmentChain {
    fn worth(&self) -> (bool, u64) {
        (self.leads_to_seal, self.end)
    }
}

/// Computes the best segment at each offset and code, from the end backwards.
fn ways(sorted: &[ListedSegment]) -> BTreeMap<(u64, [u8; 16]), SegmentChain> {
    let mut ways: BTreeMap<_, SegmentChain> = BTreeMap::new();
    for (number, segment) in sorted.iter().enumerate().rev() {
        if segment.bytes == 0 {
            continue;
        }
        let end = segment.range().end;
        let next = match segment.name.end {
            SegmentEnd::Seal(_) => None,
            SegmentEnd::Record(code) => ways.get(&(end, code)),
        };
        let way = match next {
            Some(next) => SegmentChain { segment: number, leads_to_seal: next.leads_to_seal, end: next.end },
            None => SegmentChain { segment: number, leads_to_seal: segment.is_seal(), end },
        };
        let place = (segment.name.offset, segment.name.start);
        if ways.get(&place).is_none_or(|other| way.worth() > other.worth()) {
            ways.insert(place, way);
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_remote::NonObject;

    use super::*;

    fn any_segment() -> impl Strategy<Value = ListedSegment> {
        let ends = prop_oneof![(0_u8..4).prop_map(Some), Just(None)];
        let bytes = prop_oneof![0_u64..5, Just(u64::MAX)];
        (0_u64..12, bytes, 0_u8..4, ends).prop_map(|(offset, bytes, start, code)| match code {
            Some(code) => segment(offset, bytes, start, code),
            None => seal(offset, bytes, start),
        })
    }

    proptest! {
        #[test]
        fn whatever_is_listed_makes_at_most_one_arena(segments in prop::collection::vec(any_segment(), 0..14)) {
            let assembly = ArenaAssembly::of(&segments);
            let mut place = 0;
            for (number, part) in assembly.parts.iter().enumerate() {
                prop_assert!(part.bytes > 0 && part.name.offset >= place, "parts do not overlap");
                if let Some(before) = number.checked_sub(1).and_then(|number| assembly.parts.get(number)) {
                    let fits = before.name.end == SegmentEnd::Record(part.name.start);
                    prop_assert!(part.name.offset > place || fits, "neighbours say that they are");
                    prop_assert!(!before.is_seal(), "nothing follows a seal");
                }
                place = part.range().end;
                prop_assert_eq!(assembly.part_at(part.name.offset), Some(part));
            }
            prop_assert_eq!(assembly.bytes(), place);
            prop_assert_eq!(assembly.parts.first().map_or(0, |first| first.name.offset), 0);
            prop_assert!(assembly.is_sealed() || assembly.holes().is_empty(), "an open arena ends at its first hole");
            let mut all: Vec<_> = assembly.parts.iter().chain(&assembly.spare).cloned().collect();
            let mut wanted = segments;
            all.sort();
            wanted.sort();
            prop_assert_eq!(all, wanted, "nothing is forgotten");
        }
    }

    /// Makes a segment after the record with the code `start`.
    fn segment(offset: u64, bytes: u64, start: u8, code: u8) -> ListedSegment {
        let (start, end) = ([start; 16], SegmentEnd::Record([code; 16]));
        ListedSegment { name: SegmentName { arena: ArenaId(0), generation: 0, offset, start, end }, bytes }
    }

    fn seal(offset: u64, bytes: u64, start: u8) -> ListedSegment {
        let mut seal = segment(offset, bytes, start, 0);
        seal.name.end = SegmentEnd::Seal([9; 32]);
        seal
    }

    #[test]
    fn segments_make_an_arena() {
        let segments = [segment(0, 10, 0, 1), segment(10, 5, 1, 2), seal(15, 3, 2)];
        let whole = ArenaAssembly::of(&segments);
        assert!(whole.is_whole() && whole.spare.is_empty());
        assert_eq!((whole.bytes(), whole.parts.as_slice()), (18, &segments[..]));
        assert_eq!(whole.part_at(9), Some(&segments[0]));
        assert_eq!(whole.part_at(15), Some(&segments[2]));
        assert_eq!(whole.part_at(18), None);
    }

    #[test]
    fn an_open_arena_ends_before_what_is_missing() {
        let open = ArenaAssembly::of(&[segment(0, 10, 0, 1), segment(15, 5, 2, 3)]);
        assert_eq!((open.bytes(), open.spare.len(), open.is_visible()), (10, 1, true));
        let headless = ArenaAssembly::of(&[segment(10, 5, 1, 2), seal(15, 3, 2)]);
        assert_eq!((headless.bytes(), headless.spare.len(), headless.is_visible()), (0, 2, false));
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of ranges is meant")]
    fn a_sealed_arena_keeps_what_is_there() {
        let sealed = ArenaAssembly::of(&[segment(0, 10, 0, 1), segment(20, 5, 2, 3), seal(25, 3, 3)]);
        assert_eq!((sealed.bytes(), sealed.holes(), sealed.is_whole()), (28, vec![10..20], false));
        assert_eq!(sealed.part_at(12), None);
    }

    #[test]
    fn of_two_ways_the_one_that_leads_on_is_taken() {
        let cut = segment(0, 7, 0, 1);
        let segments = [cut.clone(), segment(0, 4, 0, 2), segment(4, 6, 2, 3), seal(10, 1, 3)];
        let assembly = ArenaAssembly::of(&segments);
        assert!(assembly.is_whole());
        assert_eq!(assembly.spare, [cut]);
        let nothing = ArenaAssembly::of(&[segment(0, 0, 0, 1)]);
        assert_eq!((nothing.is_visible(), nothing.spare.len()), (false, 1));
        let endless = ArenaAssembly::of(&[
            ListedSegment { bytes: u64::MAX, ..segment(5, 0, 2, 1) },
            segment(0, 5, 0, 2),
        ]);
        assert_eq!(endless.bytes(), u64::MAX);
    }

    #[test]
    fn two_histories_never_mix() {
        // Cut at the same offsets with other codes. One chain is longer.
        let one = [segment(0, 10, 0, 1), segment(10, 5, 1, 2)];
        let other = [segment(0, 10, 0, 5), segment(10, 5, 5, 6), segment(15, 5, 6, 7)];
        let both = ArenaAssembly::of(&[&one[..], &other].concat());
        assert_eq!((both.parts.as_slice(), both.spare.as_slice()), (&other[..], &one[..]));
        let torn = ArenaAssembly::of(&[one[0].clone(), other[1].clone()]);
        assert_eq!((torn.bytes(), torn.spare.len()), (10, 1));
    }

    #[test]
    fn a_generation_counts_once_it_is_whole() {
        let with = |generation, mut segment: ListedSegment| {
            segment.name.generation = generation;
            segment
        };
        let mut generations =
            BTreeMap::from([(0, vec![seal(0, 10, 0)]), (1, vec![with(1, segment(0, 5, 0, 1))])]);
        assert_eq!(ArenaAssembly::newest(&generations).generation, 0);
        generations.entry(1).or_default().push(with(1, seal(5, 1, 1)));
        assert_eq!(ArenaAssembly::newest(&generations).generation, 1);
        // The first one was never whole, and the second one has no header yet.
        let mut generations =
            BTreeMap::from([(0, vec![segment(0, 10, 0, 1)]), (1, vec![with(1, seal(5, 1, 1))])]);
        assert_eq!(ArenaAssembly::newest(&generations).generation, 0);
        generations.entry(1).or_default().push(with(1, segment(0, 4, 0, 1)));
        assert_eq!(ArenaAssembly::newest(&generations).generation, 1);
    }

    #[test]
    fn what_reaches_beyond_any_arena_is_a_stranger() {
        let map = ArenaMap::new(1 << 20).unwrap();
        let end_max = map.file_bytes_max();
        let last = ListedSegment { bytes: 10, ..segment(end_max - 10, 0, 2, 3) };
        let beyond = [
            ListedSegment { bytes: 11, ..last.clone() },
            seal(SegmentName::OFFSET_MAX, 700, 2),
            ListedSegment { bytes: u64::MAX, ..segment(0, 0, 0, 1) },
        ];
        let good = [segment(0, 10, 0, 1), segment(10, 5, 1, 2), last];
        let object =
            |segment: &ListedSegment| Object { name: segment.name.file_name(), bytes: segment.bytes };
        for far in &beyond {
            let objects = good.iter().chain([far]).map(object).collect();
            let listing = ReplicaListing::of(Survey { objects, others: Vec::new() }).within(map);
            assert_eq!(listing.strangers, [object(far)]);
            let assembly = &listing.assemble()[&ArenaId(0)];
            assert_eq!((assembly.bytes(), assembly.spare.len()), (15, 1));
        }
        let objects = vec![object(&beyond[1])];
        let listing = ReplicaListing::of(Survey { objects, others: Vec::new() }).within(map);
        assert!(listing.arenas.is_empty(), "there is no arena where only a stranger is");
        // Every arena that the format allows can be named.
        let most = ArenaMap::new(ArenaMap::ARENA_BYTES_MAX).unwrap().file_bytes_max();
        assert!(most < SegmentName::OFFSET_MAX && most > ArenaMap::ARENA_BYTES_MAX);
    }

    #[test]
    fn strangers_are_kept_apart() {
        let object = |name: &str| Object { name: FileName::new(name).unwrap(), bytes: 1 };
        let names =
            ["config.toml", "keys/a.toml", "keys/a", "arenas/0000000000.arena", "index/newest", "lock"];
        let folder =
            |name: &str| NonObject { name: FileName::new(name).unwrap(), kind: NonObjectKind::Folder };
        let others = ["arenas", "keys", "keys/b.toml", "letters"].map(folder).to_vec();
        let listing = ReplicaListing::of(Survey { objects: names.map(object).to_vec(), others });
        assert_eq!(listing.settings.len(), 2);
        assert_eq!(listing.strangers.len(), 4);
        assert_eq!(listing.keys().count(), 1);
        let in_the_way = listing.require_clear().unwrap_err();
        assert_eq!((in_the_way.object.as_str(), listing.in_the_way.len()), ("keys/b.toml", 1));
        for name in ["arenas", "arenas/0000000003.0", "keys"].map(|name| FileName::new(name).unwrap()) {
            for kind in [NonObjectKind::Link, NonObjectKind::Special] {
                let others = vec![NonObject { name: name.clone(), kind }];
                let listing = ReplicaListing::of(Survey { objects: Vec::new(), others });
                let said = listing.require_clear().unwrap_err().to_string();
                assert!(said.starts_with(&format!("{name}: {kind} is in place of this folder")), "{said}");
            }
        }
    }
}

//! From a target's list of objects to arenas: which segments make each one, and which are left over.
//!
//! Lengths and names come from outside. An arena is put together from what fits; what does not is named, and not used.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::ops::Range;

use varve_log::{ArenaId, ArenaMap, Granule};
use varve_remote::{Object, OtherKind, Survey, Target, TargetError};
use varve_world::FileName;

use crate::objects::object_name::{KEYS, SegmentEnd, SegmentName, is_folder};

/// A segment as the target lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Which part of which arena it is.
    pub name: SegmentName,
    /// How long the object is, in bytes.
    pub bytes: u64,
}

impl Segment {
    /// The part of its arena that it is, in bytes.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.name.offset..self.name.offset.saturating_add(self.bytes)
    }

    pub(crate) fn is_seal(&self) -> bool {
        matches!(self.name.end, SegmentEnd::Seal(_))
    }
}

/// Everything that a target holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The small files that are objects as they are, with their lengths.
    pub settings: BTreeMap<FileName, u64>,
    /// The segments of each generation of each arena.
    pub arenas: BTreeMap<ArenaId, BTreeMap<u32, Vec<Segment>>>,
    /// What belongs to no replica.
    pub strangers: Vec<Object>,
    /// What lies where an object of a replica should, and is none.
    pub in_the_way: Vec<InTheWay>,
}

/// Something that is no object, under the name of one, or no folder, under the name of one that holds objects: what should be there is
/// neither found nor put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {kind} lies there in place of {}, and must be removed or renamed there, by hand", self.place())]
pub struct InTheWay {
    /// The name of the object, or of the folder.
    pub object: FileName,
    /// What lies there.
    pub kind: OtherKind,
}

impl InTheWay {
    /// What should be there.
    pub(crate) fn place(&self) -> &'static str {
        if is_folder(&self.object) { "this folder of objects" } else { "this object" }
    }
}

impl Listing {
    /// Asks the target.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn read(target: &dyn Target) -> Result<Self, TargetError> {
        Ok(Self::of(target.survey()?))
    }

    /// Sorts out what lies there.
    #[must_use]
    pub fn of(survey: Survey) -> Self {
        let mut listing = Self::default();
        for other in survey.others {
            let is_object = is_setting(&other.name) || SegmentName::of_file(&other.name).is_some();
            if is_object || (is_folder(&other.name) && other.kind != OtherKind::Folder) {
                listing.in_the_way.push(InTheWay { object: other.name, kind: other.kind });
            }
        }
        for object in survey.objects {
            if let Some(name) = SegmentName::of_file(&object.name) {
                let generations = listing.arenas.entry(name.arena).or_default();
                generations.entry(name.generation).or_default().push(Segment { name, bytes: object.bytes });
            } else if is_setting(&object.name) {
                listing.settings.insert(object.name, object.bytes);
            } else {
                listing.strangers.push(object);
            }
        }
        listing
    }

    /// The same for a store with this map: a segment that reaches where none of its arenas can is a stranger, and so is one of an arena behind
    /// the end of any log. A name may tell of a terabyte, or of the last of ten thousand million arenas, and costs whoever makes it up nothing:
    /// what lies between would be looked through, and written, byte by byte, or named arena by arena.
    #[must_use]
    pub fn within(mut self, map: ArenaMap) -> Self {
        let end_max = map.file_bytes_max();
        let is_in_a_log = |arena| map.address(arena, Granule::default()).is_some();
        self.set_apart(|segment| segment.range().end > end_max || !is_in_a_log(segment.name.arena));
        self
    }

    /// Makes strangers of segments.
    pub(crate) fn set_apart(&mut self, is_stranger: impl Fn(&Segment) -> bool) {
        for generations in self.arenas.values_mut() {
            for segments in generations.values_mut() {
                let apart = segments.extract_if(.., |segment| is_stranger(segment));
                let objects = apart.map(|Segment { name, bytes }| Object { name: name.file_name(), bytes });
                self.strangers.extend(objects);
            }
            generations.retain(|_, segments| !segments.is_empty());
        }
        self.arenas.retain(|_, generations| !generations.is_empty());
    }

    /// The files of `keys/`.
    pub fn keys(&self) -> impl Iterator<Item = &FileName> {
        self.settings.keys().filter(|file| is_key(file))
    }

    /// Whether there is nothing of a replica.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.arenas.is_empty()
    }

    /// Refuses a place where nothing can be put under the name of an object.
    ///
    /// # Errors
    /// The first that is in the way.
    pub fn require_clear(&self) -> Result<(), InTheWay> {
        self.in_the_way.first().cloned().map_or(Ok(()), Err)
    }

    /// What the objects of each arena make.
    #[must_use]
    pub fn assemble(&self) -> BTreeMap<ArenaId, Assembly> {
        self.arenas.iter().map(|(id, generations)| (*id, Assembly::newest(generations))).collect()
    }
}

/// Names the replica itself, and the version of its layout. The first object that is put.
pub(crate) const MARK: &str = "replica.toml";
pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const FORMAT_PAGE: &str = "FORMAT.md";

/// One of these, or a name made of good ones.
pub(crate) fn plain(name: &str) -> FileName {
    FileName::new(name).expect("a plain name")
}

fn is_setting(file: &FileName) -> bool {
    [MARK, CONFIG, FORMAT_PAGE].contains(&file.as_str()) || is_key(file)
}

fn is_key(file: &FileName) -> bool {
    file.folder() == KEYS && file.as_str().ends_with(".toml")
}

/// An arena as its segments make it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Which generation of the arena.
    pub generation: u32,
    /// The segments that it is read from, in order, none overlapping the next.
    pub parts: Vec<Segment>,
    /// Segments of the same generation that are not used: they overlap others, or what comes before them is missing.
    pub spare: Vec<Segment>,
}

impl Assembly {
    /// The newest generation that is sealed; if none is, the newest. A generation is rewritten as a whole: while it is being
    /// uploaded it has no seal, and the one before it still holds.
    #[must_use]
    pub fn newest(generations: &BTreeMap<u32, Vec<Segment>>) -> Self {
        let mut all: Vec<_> = generations.values().map(|segments| Self::of(segments)).collect();
        let sealed = all.iter().rposition(Self::is_whole);
        match sealed.or(all.len().checked_sub(1)) {
            Some(place) => all.swap_remove(place),
            None => Self::default(),
        }
    }

    /// Puts segments of one generation together: each next one begins where the one before ends, and says that it comes after it. Where
    /// there are several ways, the one that leads to a seal is taken, else the one that leads furthest.
    #[must_use]
    pub fn of(segments: &[Segment]) -> Self {
        let generation = segments.first().map_or(0, |segment| segment.name.generation);
        let mut sorted: Vec<_> = segments.to_vec();
        sorted.sort_by_key(|segment| (segment.name.offset, segment.bytes));
        let ways = ways(&sorted);
        let (mut parts, mut used) = (Vec::new(), vec![false; sorted.len()]);
        // Without a segment at 0 there is no header, and so no arena: the first segment is put last.
        let mut next = ways.range(..(1, [0; 16])).map(|(_, way)| way).max_by_key(|way| way.worth());
        while let Some(way) = next {
            let Some((segment, used)) = sorted.get(way.segment).zip(used.get_mut(way.segment)) else { break };
            *used = true;
            parts.push(segment.clone());
            let SegmentEnd::Record(code) = segment.name.end else { break };
            let place = segment.range().end;
            next = ways.get(&(place, code)).or_else(|| {
                // A sealed arena is told by its end: what is missing in it hides nothing that is there.
                let behind = ways.range((place.saturating_add(1), [0; 16])..).map(|(_, way)| way);
                behind.into_iter().find(|way| way.leads_to_seal)
            });
        }
        let spare =
            sorted.into_iter().zip(used).filter(|(_, used)| !used).map(|(segment, _)| segment).collect();
        Self { generation, parts, spare }
    }

    /// The arena's length in bytes, as far as it is here; 0 if there is no arena.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.range().end)
    }

    /// Whether a reader sees an arena here at all.
    #[must_use]
    pub fn is_visible(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Whether the last segment says that it ends with a seal.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.parts.last().is_some_and(Segment::is_seal)
    }

    /// Whether it ends with a seal and nothing before that is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_sealed() && self.holes().is_empty()
    }

    /// What no segment holds, between those that are there.
    #[must_use]
    pub fn holes(&self) -> Vec<Range<u64>> {
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

    /// The segment that holds the byte at `offset`.
    #[must_use]
    pub fn part_at(&self, offset: u64) -> Option<&Segment> {
        let place = self.parts.partition_point(|part| part.name.offset <= offset).checked_sub(1)?;
        self.parts.get(place).filter(|part| part.range().contains(&offset))
    }
}

/// Where the best way on leads from one place: to a seal or not, and how far.
struct Way {
    segment: usize,
    leads_to_seal: bool,
    end: u64,
}

impl Way {
    fn worth(&self) -> (bool, u64) {
        (self.leads_to_seal, self.end)
    }
}

/// The best segment at each offset behind each record, found from the end backwards.
fn ways(sorted: &[Segment]) -> BTreeMap<(u64, [u8; 16]), Way> {
    let mut ways: BTreeMap<_, Way> = BTreeMap::new();
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
            Some(next) => Way { segment: number, leads_to_seal: next.leads_to_seal, end: next.end },
            None => Way { segment: number, leads_to_seal: segment.is_seal(), end },
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
    use varve_remote::Other;

    use super::*;

    fn any_segment() -> impl Strategy<Value = Segment> {
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
            let assembly = Assembly::of(&segments);
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

    /// A segment that comes after the record with the code `start`.
    fn segment(offset: u64, bytes: u64, start: u8, code: u8) -> Segment {
        let (start, end) = ([start; 16], SegmentEnd::Record([code; 16]));
        Segment { name: SegmentName { arena: ArenaId(0), generation: 0, offset, start, end }, bytes }
    }

    fn seal(offset: u64, bytes: u64, start: u8) -> Segment {
        let mut seal = segment(offset, bytes, start, 0);
        seal.name.end = SegmentEnd::Seal([9; 32]);
        seal
    }

    #[test]
    fn segments_make_an_arena() {
        let segments = [segment(0, 10, 0, 1), segment(10, 5, 1, 2), seal(15, 3, 2)];
        let whole = Assembly::of(&segments);
        assert!(whole.is_whole() && whole.spare.is_empty());
        assert_eq!((whole.bytes(), whole.parts.as_slice()), (18, &segments[..]));
        assert_eq!(whole.part_at(9), Some(&segments[0]));
        assert_eq!(whole.part_at(15), Some(&segments[2]));
        assert_eq!(whole.part_at(18), None);
    }

    #[test]
    fn an_open_arena_ends_before_what_is_missing() {
        let open = Assembly::of(&[segment(0, 10, 0, 1), segment(15, 5, 2, 3)]);
        assert_eq!((open.bytes(), open.spare.len(), open.is_visible()), (10, 1, true));
        let headless = Assembly::of(&[segment(10, 5, 1, 2), seal(15, 3, 2)]);
        assert_eq!((headless.bytes(), headless.spare.len(), headless.is_visible()), (0, 2, false));
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of ranges is meant")]
    fn a_sealed_arena_keeps_what_is_there() {
        let sealed = Assembly::of(&[segment(0, 10, 0, 1), segment(20, 5, 2, 3), seal(25, 3, 3)]);
        assert_eq!((sealed.bytes(), sealed.holes(), sealed.is_whole()), (28, vec![10..20], false));
        assert_eq!(sealed.part_at(12), None);
    }

    #[test]
    fn of_two_ways_the_one_that_leads_on_is_taken() {
        let cut = segment(0, 7, 0, 1);
        let segments = [cut.clone(), segment(0, 4, 0, 2), segment(4, 6, 2, 3), seal(10, 1, 3)];
        let assembly = Assembly::of(&segments);
        assert!(assembly.is_whole());
        assert_eq!(assembly.spare, [cut]);
        let nothing = Assembly::of(&[segment(0, 0, 0, 1)]);
        assert_eq!((nothing.is_visible(), nothing.spare.len()), (false, 1));
        let endless =
            Assembly::of(&[Segment { bytes: u64::MAX, ..segment(5, 0, 2, 1) }, segment(0, 5, 0, 2)]);
        assert_eq!(endless.bytes(), u64::MAX);
    }

    #[test]
    fn two_histories_never_mix() {
        // Cut at the same places, with other codes; one of them goes on further.
        let one = [segment(0, 10, 0, 1), segment(10, 5, 1, 2)];
        let other = [segment(0, 10, 0, 5), segment(10, 5, 5, 6), segment(15, 5, 6, 7)];
        let both = Assembly::of(&[&one[..], &other].concat());
        assert_eq!((both.parts.as_slice(), both.spare.as_slice()), (&other[..], &one[..]));
        let torn = Assembly::of(&[one[0].clone(), other[1].clone()]);
        assert_eq!((torn.bytes(), torn.spare.len()), (10, 1));
    }

    #[test]
    fn a_generation_counts_once_it_is_whole() {
        let with = |generation, mut segment: Segment| {
            segment.name.generation = generation;
            segment
        };
        let mut generations =
            BTreeMap::from([(0, vec![seal(0, 10, 0)]), (1, vec![with(1, segment(0, 5, 0, 1))])]);
        assert_eq!(Assembly::newest(&generations).generation, 0);
        generations.entry(1).or_default().push(with(1, seal(5, 1, 1)));
        assert_eq!(Assembly::newest(&generations).generation, 1);
    }

    #[test]
    fn what_reaches_beyond_any_arena_is_a_stranger() {
        let map = ArenaMap::new(1 << 20).unwrap();
        let end_max = map.file_bytes_max();
        let last = Segment { bytes: 10, ..segment(end_max - 10, 0, 2, 3) };
        let beyond = [
            Segment { bytes: 11, ..last.clone() },
            seal(SegmentName::OFFSET_MAX, 700, 2),
            Segment { bytes: u64::MAX, ..segment(0, 0, 0, 1) },
        ];
        let good = [segment(0, 10, 0, 1), segment(10, 5, 1, 2), last];
        let object = |segment: &Segment| Object { name: segment.name.file_name(), bytes: segment.bytes };
        for far in &beyond {
            let objects = good.iter().chain([far]).map(object).collect();
            let listing = Listing::of(Survey { objects, others: Vec::new() }).within(map);
            assert_eq!(listing.strangers, [object(far)]);
            let assembly = &listing.assemble()[&ArenaId(0)];
            assert_eq!((assembly.bytes(), assembly.spare.len()), (15, 1));
        }
        let objects = vec![object(&beyond[1])];
        let listing = Listing::of(Survey { objects, others: Vec::new() }).within(map);
        assert!(listing.arenas.is_empty(), "there is no arena where only a stranger is");
        // No arena that the format allows is left out.
        let most = ArenaMap::new(ArenaMap::ARENA_BYTES_MAX).unwrap().file_bytes_max();
        assert!(most < SegmentName::OFFSET_MAX && most > ArenaMap::ARENA_BYTES_MAX);
    }

    #[test]
    fn strangers_are_kept_apart() {
        let object = |name: &str| Object { name: FileName::new(name).unwrap(), bytes: 1 };
        let names =
            ["config.toml", "keys/a.toml", "keys/a", "arenas/0000000000.arena", "index/newest", "lock"];
        let folder = |name: &str| Other { name: FileName::new(name).unwrap(), kind: OtherKind::Folder };
        let others = ["arenas", "keys", "keys/b.toml", "letters"].map(folder).to_vec();
        let listing = Listing::of(Survey { objects: names.map(object).to_vec(), others });
        assert_eq!(listing.settings.len(), 2);
        assert_eq!(listing.strangers.len(), 4);
        assert_eq!(listing.keys().count(), 1);
        let in_the_way = listing.require_clear().unwrap_err();
        assert_eq!((in_the_way.object.as_str(), listing.in_the_way.len()), ("keys/b.toml", 1));
        for name in ["arenas", "arenas/0000000003.0", "keys"].map(|name| FileName::new(name).unwrap()) {
            for kind in [OtherKind::Link, OtherKind::Special] {
                let others = vec![Other { name: name.clone(), kind }];
                let listing = Listing::of(Survey { objects: Vec::new(), others });
                let said = listing.require_clear().unwrap_err().to_string();
                assert!(
                    said.starts_with(&format!("{name}: {kind} lies there in place of this folder")),
                    "{said}"
                );
            }
        }
    }
}

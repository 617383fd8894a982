//! The names of one folder in all snapshots of a series.

use super::packed_names::{NameCursor, NamePacker, NameSpan, OPEN};

/// The names that a folder has or had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct IndexedFolder {
    packed: Box<[u8]>,
}

impl IndexedFolder {
    /// Makes them from their packed form; `None` if that is damaged, or has other snapshots than
    /// the first `snapshot_count`.
    pub(super) fn from_packed(packed: Box<[u8]>, snapshot_count: u32) -> Option<Self> {
        NameCursor::new(&packed).are_names_of(snapshot_count).then_some(Self { packed })
    }

    pub(super) fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The names in order, each with its spans.
    pub(super) fn cursor(&self) -> NameCursor<'_> {
        NameCursor::new(&self.packed)
    }

    /// The names that the newest snapshot has, if `is_wanted` holds for them.
    pub(super) fn newest(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let (mut newest, mut known) = (Vec::new(), self.cursor());
        while known.advance() {
            if is_open(known.spans()) && is_wanted(known.name()) {
                newest.push(known.name().to_vec());
            }
        }
        newest
    }

    /// Notes the names that the folder has in the next snapshot, whose number this is. They are
    /// sorted. If they are not all, the other names are taken to be there still.
    pub(super) fn apply<'n>(&mut self, now: impl IntoIterator<Item = &'n [u8]>, number: u32, is_whole: bool) {
        let mut new = NamePacker::with_capacity(self.packed.len());
        let begun = NameSpan { first: number, last: OPEN };
        let mut now = now.into_iter().peekable();
        let (mut known, mut spans) = (self.cursor(), Vec::new());
        while known.advance() {
            let name = known.name();
            while let Some(added) = now.next_if(|added| *added < name) {
                new.push(added, &[begun]);
            }
            let is_there = now.next_if(|added| *added == name).is_some();
            spans.clear();
            spans.extend_from_slice(known.spans());
            match (is_open(&spans), is_there) {
                (true, false) if is_whole => end_before(&mut spans, number),
                (false, true) => spans.push(begun),
                _ => {}
            }
            new.push(name, &spans);
        }
        now.for_each(|added| new.push(added, &[begun]));
        self.packed = new.finish();
    }
}

fn is_open(spans: &[NameSpan]) -> bool {
    spans.last().is_some_and(|span| span.last == OPEN)
}

/// Ends the last span before the snapshot `number`.
fn end_before(spans: &mut [NameSpan], number: u32) {
    if let Some(span) = spans.last_mut() {
        span.last = number.saturating_sub(1);
    }
}

/// The number of the newest listed snapshot in these spans.
pub(super) fn newest_listed(spans: &[NameSpan], is_listed: &[bool]) -> Option<usize> {
    spans.iter().rev().find_map(|span| {
        let first = span.first as usize;
        let end =
            if span.last == OPEN { is_listed.len() } else { (span.last as usize + 1).min(is_listed.len()) };
        is_listed.get(first..end)?.iter().rposition(|is_listed| *is_listed).map(|at| first + at)
    })
}

/// The names of a folder in one snapshot, in one piece of memory.
#[derive(Default)]
pub(super) struct NameList {
    text: Vec<u8>,
    /// The begin and the end of each name in the text.
    places: Vec<(usize, usize)>,
}

impl NameList {
    pub(super) fn push(&mut self, name: &[u8]) {
        let begin = self.text.len();
        self.text.extend_from_slice(name);
        self.places.push((begin, self.text.len()));
    }

    /// Sorts the names. A damaged folder of a disk may have a name twice, which is then left once.
    pub(super) fn sort(&mut self) {
        let text = &self.text;
        self.places.sort_unstable_by_key(|(begin, end)| &text[*begin..*end]);
        self.places.dedup_by_key(|(begin, end)| &text[*begin..*end]);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|(begin, end)| &self.text[*begin..*end])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    type Days = Vec<(BTreeMap<Vec<u8>, ()>, bool)>;

    fn days() -> impl Strategy<Value = Days> {
        let name = prop_oneof![
            prop::collection::vec(b'a'..b'd', 0..4),
            (0_u8..20).prop_map(|number| format!("report-{number:04}.text").into_bytes()),
        ];
        let names = prop::collection::btree_map(name, Just(()), 0..12);
        prop::collection::vec((names, prop::bool::weighted(0.9)), 1..12)
    }

    proptest! {
        /// The plain form is, for each name, a list of the snapshots that have it.
        #[test]
        fn a_folder_knows_what_the_plain_form_knows(days in days()) {
            let (mut folder, mut plain) = (IndexedFolder::default(), BTreeMap::<Vec<u8>, Vec<bool>>::new());
            for (number, (now, is_whole)) in days.iter().enumerate() {
                folder.apply(now.keys().map(Vec::as_slice), u32::try_from(number).unwrap(), *is_whole);
                now.keys().for_each(|name| _ = plain.entry(name.clone()).or_default());
                for (name, has) in &mut plain {
                    has.resize(number, false);
                    let was_there = has.last().copied().unwrap_or_default();
                    has.push(now.contains_key(name) || was_there && !is_whole);
                }
            }
            let mut known = folder.cursor();
            for (name, has) in &plain {
                prop_assert!(known.advance());
                prop_assert_eq!(known.name(), name);
                for number in 0..days.len() {
                    let mut is_listed = vec![false; days.len()];
                    is_listed[number] = true;
                    let expected = has[number].then_some(number);
                    prop_assert_eq!(newest_listed(known.spans(), &is_listed), expected);
                }
                let all = vec![true; days.len()];
                prop_assert_eq!(newest_listed(known.spans(), &all), has.iter().rposition(|has| *has));
            }
            prop_assert!(!known.advance());
            let newest = plain.iter().filter(|(_, has)| has.last() == Some(&true));
            let newest: Vec<_> = newest.map(|(name, _)| name.clone()).collect();
            prop_assert_eq!(folder.newest(|_| true), newest);
            let count = u32::try_from(days.len()).unwrap();
            let again = IndexedFolder::from_packed(folder.packed().into(), count);
            prop_assert_eq!(again, Some(folder));
        }
    }

    #[test]
    fn names_that_may_still_be_there_are_not_ended() {
        let mut names = IndexedFolder::default();
        names.apply([&b"a"[..], b"b"], 0, true);
        names.apply([&b"a"[..]], 1, false);
        assert_eq!(names.newest(|_| true), [b"a", b"b"]);
        names.apply([&b"a"[..]], 2, true);
        assert_eq!(names.newest(|_| true), [b"a"]);
    }

    #[test]
    fn a_name_that_comes_twice_is_listed_once() {
        let mut list = NameList::default();
        for name in ["b", "a", "", "b", "a"] {
            list.push(name.as_bytes());
        }
        list.sort();
        assert_eq!(list.iter().collect::<Vec<_>>(), [&b""[..], b"a", b"b"]);
    }
}

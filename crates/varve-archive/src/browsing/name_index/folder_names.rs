//! The names of one folder in all snapshots of a series.

/// The end of a span of a name that the newest snapshot has.
pub(super) const OPEN: u32 = u32::MAX;

/// Snapshots in a row that have a name, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameSpan {
    pub(super) first: u32,
    /// [`OPEN`] as long as the newest snapshot has the name.
    pub(super) last: u32,
}

/// The names that a folder has or had.
///
/// Invariant: the names are sorted, and the spans of each are in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct IndexedFolder {
    /// Each name, with a zero byte behind it. No name has one.
    text: Vec<u8>,
    /// The number of spans of each name, in the order of the names. Empty if each has one.
    counts: Vec<u32>,
    spans: Vec<NameSpan>,
}

impl IndexedFolder {
    /// Makes them from saved parts; `None` if the parts do not fit together.
    pub(super) fn from_parts(text: Vec<u8>, counts: Vec<u32>, spans: Vec<NameSpan>) -> Option<Self> {
        let names = Self { text, counts, spans };
        if !(names.text.is_empty() || names.text.last() == Some(&0)) {
            return None;
        }
        let name_count = names.names().count();
        let span_count = match names.counts.as_slice() {
            [] => Some(name_count),
            counts if counts.len() != name_count || counts.contains(&0) => None,
            counts => counts.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count as usize)),
        };
        let is_sorted = names.names().zip(names.names().skip(1)).all(|(name, next)| name < next);
        let is_in_order = |(_, spans): (&[u8], &[NameSpan])| {
            spans.iter().all(|span| span.first <= span.last)
                && spans.iter().zip(spans.iter().skip(1)).all(|(span, next)| span.last < next.first)
        };
        let fits = span_count == Some(names.spans.len()) && is_sorted;
        (fits && names.iter().all(is_in_order)).then_some(names)
    }

    pub(super) fn parts(&self) -> (&[u8], &[u32], &[NameSpan]) {
        (&self.text, &self.counts, &self.spans)
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.counts.len() * size_of::<u32>() + self.spans.len() * size_of::<NameSpan>()
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let text = self.text.strip_suffix(&[0]);
        text.into_iter().flat_map(|text| text.split(|byte| *byte == 0))
    }

    /// The names in order, each with its spans.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[NameSpan])> {
        let mut left = self.spans.as_slice();
        let mut counts = self.counts.iter();
        self.names().map(move |name| {
            let count = counts.next().map_or(1, |count| *count as usize).min(left.len());
            let (spans, rest) = left.split_at(count);
            left = rest;
            (name, spans)
        })
    }

    /// The names that the newest snapshot has.
    pub(super) fn newest(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().filter(|(_, spans)| is_open(spans)).map(|(name, _)| name)
    }

    /// Notes the names that the folder has in the next snapshot, whose number this is. They are
    /// sorted. If they are not all, the other names are taken to be there still.
    pub(super) fn apply(&mut self, now: &[Vec<u8>], number: u32, is_whole: bool) {
        let mut new = NamesBuilder::default();
        let mut now = now.iter().map(Vec::as_slice).peekable();
        for (name, spans) in self.iter() {
            while let Some(added) = now.next_if(|added| *added < name) {
                new.push(added, &[], Some(number));
            }
            let is_there = now.next_if(|added| *added == name).is_some();
            match (is_open(spans), is_there) {
                (true, false) if is_whole => new.push_ended(name, spans, number),
                (false, true) => new.push(name, spans, Some(number)),
                _ => new.push(name, spans, None),
            }
        }
        for added in now {
            new.push(added, &[], Some(number));
        }
        *self = new.finish();
    }
}

fn is_open(spans: &[NameSpan]) -> bool {
    spans.last().is_some_and(|span| span.last == OPEN)
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

#[derive(Default)]
struct NamesBuilder {
    names: IndexedFolder,
    has_more_spans: bool,
}

impl NamesBuilder {
    fn push(&mut self, name: &[u8], spans: &[NameSpan], begun: Option<u32>) {
        self.names.text.extend_from_slice(name);
        self.names.text.push(0);
        self.names.spans.extend_from_slice(spans);
        self.names.spans.extend(begun.map(|first| NameSpan { first, last: OPEN }));
        let count = spans.len() + usize::from(begun.is_some());
        self.has_more_spans |= count != 1;
        self.names.counts.push(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Adds a name whose last span ends before the snapshot `number`.
    fn push_ended(&mut self, name: &[u8], spans: &[NameSpan], number: u32) {
        self.push(name, spans, None);
        if let Some(span) = self.names.spans.last_mut() {
            span.last = number.saturating_sub(1);
        }
    }

    fn finish(mut self) -> IndexedFolder {
        if !self.has_more_spans {
            self.names.counts = Vec::new();
        }
        self.names.text.shrink_to_fit();
        self.names.counts.shrink_to_fit();
        self.names.spans.shrink_to_fit();
        self.names
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    proptest! {
        /// Each name has exactly the snapshots in which it was noted.
        #[test]
        fn spans_are_the_snapshots_that_have_a_name(days in prop::collection::vec(prop::collection::btree_set(0_u8..12, 0..8), 1..12)) {
            let mut names = IndexedFolder::default();
            for (number, day) in days.iter().enumerate() {
                let now: Vec<Vec<u8>> = day.iter().map(|name| vec![b'a' + name]).collect();
                names.apply(&now, u32::try_from(number).unwrap(), true);
            }
            let ever: BTreeSet<u8> = days.iter().flatten().copied().collect();
            let known: Vec<Vec<u8>> = names.iter().map(|(name, _)| name.to_vec()).collect();
            prop_assert_eq!(known, ever.iter().map(|name| vec![b'a' + name]).collect::<Vec<_>>());
            for ((_, spans), name) in names.iter().zip(&ever) {
                for (number, day) in days.iter().enumerate() {
                    let mut is_listed = vec![false; days.len()];
                    is_listed[number] = true;
                    let expected = day.contains(name).then_some(number);
                    prop_assert_eq!(newest_listed(spans, &is_listed), expected);
                }
            }
            let (text, counts, spans) = names.parts();
            let again = IndexedFolder::from_parts(text.to_vec(), counts.to_vec(), spans.to_vec());
            prop_assert_eq!(again, Some(names));
        }
    }

    #[test]
    fn names_that_may_still_be_there_are_not_ended() {
        let mut names = IndexedFolder::default();
        names.apply(&[b"a".to_vec(), b"b".to_vec()], 0, true);
        names.apply(&[b"a".to_vec()], 1, false);
        let spans: Vec<_> = names.iter().map(|(_, spans)| spans.to_vec()).collect();
        assert_eq!(spans, [[NameSpan { first: 0, last: OPEN }], [NameSpan { first: 0, last: OPEN }]]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let span = NameSpan { first: 0, last: OPEN };
        for (text, counts, spans) in [
            (&b"a"[..], vec![], vec![span]),
            (b"b\0a\0", vec![], vec![span, span]),
            (b"a\0", vec![], vec![]),
            (b"a\0", vec![2], vec![span]),
            (b"a\0", vec![0], vec![]),
            (b"a\0", vec![2], vec![span, span]),
            (b"a\0", vec![], vec![NameSpan { first: 2, last: 1 }]),
            (b"", vec![], vec![span]),
        ] {
            assert_eq!(IndexedFolder::from_parts(text.to_vec(), counts, spans), None, "{text:?}");
        }
    }
}

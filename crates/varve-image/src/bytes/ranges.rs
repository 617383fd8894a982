//! Sets of numbers, stored as ranges: in ascending order, apart from each other, and none of them
//! empty.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

/// A set of offsets, such as the bytes of a disk that need not be stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    sorted: Vec<Range<u64>>,
}

impl Ranges {
    /// Adds a range. This is cheap if it begins at or after the last range of the set.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.sorted.last_mut() {
            Some(last) if range.start >= last.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            Some(last) if range.start < last.start => self.insert(range),
            _ => self.sorted.push(range),
        }
    }

    fn insert(&mut self, range: Range<u64>) {
        // All ranges that touch the new one are merged with it.
        let from = self.sorted.partition_point(|known| known.end < range.start);
        let to = self.sorted.partition_point(|known| known.start <= range.end);
        let touched = self.sorted.get(from..to).unwrap_or_default();
        let start = touched.first().map_or(range.start, |first| first.start.min(range.start));
        let end = touched.last().map_or(range.end, |last| last.end.max(range.end));
        self.sorted.splice(from..to, std::iter::once(start..end));
    }

    /// Returns the members of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Self::default();
        for range in &self.sorted {
            let mut start = range.start;
            let from = other.sorted.partition_point(|known| known.end <= range.start);
            for taken in other.sorted.iter().skip(from).take_while(|taken| taken.start < range.end) {
                left.add(start..taken.start.max(start));
                start = taken.end;
            }
            left.add(start.min(range.end)..range.end);
        }
        left
    }

    /// Returns the count of numbers in the set.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sorted.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add)
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the first range that ends after `place`.
    #[must_use]
    pub fn next_after(&self, place: u64) -> Option<Range<u64>> {
        let at = self.sorted.partition_point(|known| known.end <= place);
        self.sorted.get(at).cloned()
    }

    /// Iterates over the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.sorted.iter().cloned()
    }
}

impl IntoIterator for Ranges {
    type Item = Range<u64>;
    type IntoIter = std::vec::IntoIter<Range<u64>>;

    fn into_iter(self) -> Self::IntoIter {
        self.sorted.into_iter()
    }
}

impl Extend<Range<u64>> for Ranges {
    fn extend<T: IntoIterator<Item = Range<u64>>>(&mut self, ranges: T) {
        ranges.into_iter().for_each(|range| self.add(range));
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut set = Self::default();
        set.extend(ranges);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn model(ranges: &[(u64, u64)]) -> BTreeSet<u64> {
        ranges.iter().flat_map(|(start, length)| *start..start.saturating_add(*length)).collect()
    }

    fn set(ranges: &[(u64, u64)]) -> Ranges {
        ranges.iter().map(|(start, length)| *start..start.saturating_add(*length)).collect()
    }

    proptest! {
        #[test]
        fn sets_agree_with_a_model(
            one in prop::collection::vec((0..60_u64, 0..12_u64), 0..12),
            two in prop::collection::vec((0..60_u64, 0..12_u64), 0..12),
        ) {
            let (one, two, left, right) = (set(&one), set(&two), model(&one), model(&two));
            for (set, model) in [(&one, &left), (&two, &right)] {
                prop_assert!(set.iter().flatten().eq(model.iter().copied()));
                prop_assert!(set.sorted.is_sorted_by(|one, two| one.end < two.start));
                prop_assert!(set.iter().all(|range| !range.is_empty()));
                prop_assert_eq!(set.total(), model.len() as u64);
            }
            prop_assert!(one.without(&two).iter().flatten().eq(left.difference(&right).copied()));
            for place in 0..80 {
                let expected = left.range(place..).next();
                let found = one.next_after(place).map(|range| range.start.max(place));
                prop_assert_eq!(found.as_ref(), expected);
            }
        }
    }
}

//! The places whose entries in the run are outdated: a collector has replaced what was there.

use std::ops::Range;

use varve_block::LogAddress;

/// A set of addresses, as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OutdatedPlaces {
    /// Granules; in ascending order, neither overlapping nor adjacent.
    ranges: Vec<Range<u64>>,
}

impl OutdatedPlaces {
    pub(super) fn of(places: &[Range<u64>]) -> Self {
        let mut set = Self::default();
        set.add(places);
        set
    }

    pub(super) fn add(&mut self, places: &[Range<u64>]) {
        let mut all = std::mem::take(&mut self.ranges);
        all.extend(places.iter().filter(|range| !range.is_empty()).cloned());
        all.sort_by_key(|range| range.start);
        for range in all {
            match self.ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => self.ranges.push(range),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn contains(&self, address: LogAddress) -> bool {
        let granule = address.granule();
        let next = self.ranges.partition_point(|range| range.start <= granule);
        next.checked_sub(1).is_some_and(|before| granule < self.ranges[before].end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_set(
            added in prop::collection::vec(prop::collection::vec((0..60u64, 0..9u64), 0..5), 0..5)
        ) {
            let (mut places, mut model) = (OutdatedPlaces::default(), BTreeSet::new());
            for ranges in added {
                let ranges: Vec<_> = ranges.into_iter().map(|(first, len)| first..first + len).collect();
                places.add(&ranges);
                model.extend(ranges.into_iter().flatten());
                let is_parted = |pair: &[Range<u64>]| pair[0].end < pair[1].start;
                prop_assert!(places.ranges.windows(2).all(is_parted), "{places:?}");
            }
            prop_assert_eq!(places.is_empty(), model.is_empty());
            for granule in 0..70 {
                let is_there = places.contains(LogAddress::new(granule).unwrap());
                prop_assert_eq!(is_there, model.contains(&granule));
            }
        }
    }
}

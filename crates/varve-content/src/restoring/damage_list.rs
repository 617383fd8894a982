//! The list of bytes that a restore could not read, and left as holes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// Upper bound on separate ranges. Beyond it, a new range is joined with the range before it in its
/// file.
const RANGE_COUNT_MAX: usize = 1 << 20;

/// The unreadable byte ranges of files. Many threads may add to it. Adjacent ranges of a file are
/// joined.
#[derive(Debug, Default)]
pub struct DamageList {
    ranges: Mutex<FileRanges>,
}

#[derive(Debug, Default)]
struct FileRanges {
    /// For each file, a map from the start of each range to its end.
    files: BTreeMap<PathBuf, BTreeMap<u64, u64>>,
    count: usize,
}

impl DamageList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range of a file. The path is empty for an image, and for a file that is restored by
    /// itself.
    pub fn add(&self, path: &Path, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock();
        let FileRanges { files, count } = &mut *ranges;
        let file = files.entry(path.to_path_buf()).or_default();
        *count -= file.len();
        insert(file, range, *count < RANGE_COUNT_MAX);
        *count += file.len();
    }

    /// Returns whether there is no damage.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.lock().files.is_empty()
    }

    /// The number of damaged bytes in all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ranges = self.ranges.lock();
        ranges.files.values().flatten().map(|(start, end)| end - start).sum()
    }

    /// The number of ranges, and the number of files that have them.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let ranges = self.ranges.lock();
        (ranges.count, ranges.files.len())
    }

    /// Returns whether a range of a file overlaps a damaged one.
    pub(crate) fn touches(&self, path: &Path, range: &Range<u64>) -> bool {
        let ranges = self.ranges.lock();
        let before = |file: &BTreeMap<u64, u64>| file.range(..range.end).next_back().map(|(_, end)| *end);
        ranges.files.get(path).and_then(before).is_some_and(|end| end > range.start)
    }

    /// Passes all ranges to `show`, file by file, in order.
    pub fn for_each(&self, mut show: impl FnMut(&Path, Range<u64>)) {
        for (path, file) in &self.ranges.lock().files {
            file.iter().for_each(|(start, end)| show(path, *start..*end));
        }
    }
}

/// Adds a range to those of one file. If the list is full, the range is joined with the one before
/// it.
fn insert(file: &mut BTreeMap<u64, u64>, range: Range<u64>, has_room: bool) {
    let Range { mut start, mut end } = range;
    if let Some((before, before_end)) = file.range(..=start).next_back().map(|(start, end)| (*start, *end))
        && (before_end >= start || !has_room)
    {
        (start, end) = (before, end.max(before_end));
        file.remove(&before);
    }
    while let Some((next, next_end)) = file.range(start..).next().map(|(start, end)| (*start, *end))
        && next <= end
    {
        file.remove(&next);
        end = end.max(next_end);
    }
    file.insert(start, end);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_block::to_usize;

    use super::*;

    proptest! {
        #[test]
        fn the_list_agrees_with_a_set_of_bytes(added in prop::collection::vec((0..60_u64, 0..9_u64), 0..20)) {
            let (list, path) = (DamageList::new(), Path::new("a"));
            let mut bytes = [false; 80];
            for (start, length) in &added {
                list.add(path, *start..start + length);
                (*start..start + length).for_each(|byte| bytes[to_usize(byte)] = true);
            }
            let mut listed = [false; 80];
            let mut last_end = None;
            list.for_each(|_, range| {
                assert!(range.start < range.end && last_end.is_none_or(|end| end < range.start), "{range:?}");
                last_end = Some(range.end);
                range.for_each(|byte| listed[to_usize(byte)] = true);
            });
            prop_assert_eq!(bytes, listed);
            prop_assert_eq!(list.bytes(), bytes.iter().filter(|lost| **lost).count() as u64);
            for byte in 0..80 {
                prop_assert_eq!(list.touches(path, &(byte..byte + 1)), bytes[to_usize(byte)]);
            }
        }
    }

    #[test]
    fn without_room_ranges_grow_and_none_is_forgotten() {
        let mut file = BTreeMap::from([(0, 2)]);
        insert(&mut file, 10..12, false);
        assert_eq!(file, BTreeMap::from([(0, 12)]));
        let mut other = BTreeMap::new();
        insert(&mut other, 10..12, false);
        assert_eq!(other, BTreeMap::from([(10, 12)]));
    }
}

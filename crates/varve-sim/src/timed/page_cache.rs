//! The operating system's page cache: data that waits to be written, and data that was read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use varve_block::to_usize;
use varve_world::FileName;

/// The unit of cached data.
const PAGE_BYTES: u64 = 4096;

/// The memory of a page cache. With zeros there is none: every write and read waits for the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCacheLimits {
    /// Bytes that may wait to be written.
    pub dirty_bytes: u64,
    /// Bytes that are kept after they were read or written.
    pub clean_bytes: u64,
}

/// A part of a file that waits to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirtyPart {
    pub(super) file: FileName,
    pub(super) range: Range<u64>,
}

/// The parts of files that wait to be written, oldest first.
#[derive(Debug, Default)]
pub(super) struct DirtyParts {
    parts: VecDeque<DirtyPart>,
    bytes: u64,
}

impl DirtyParts {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn add(&mut self, file: &FileName, range: Range<u64>) {
        self.bytes += range.end - range.start;
        match self.parts.iter_mut().rev().find(|part| part.file == *file) {
            Some(part) if part.range.end == range.start => part.range.end = range.end,
            _ => self.parts.push_back(DirtyPart { file: file.clone(), range }),
        }
    }

    /// Reports whether a part of a file waits as a whole.
    pub(super) fn contains(&self, file: &FileName, range: &Range<u64>) -> bool {
        let holds = |part: &&DirtyPart| part.range.start <= range.start && range.end <= part.range.end;
        self.parts.iter().filter(|part| part.file == *file).any(|part| holds(&part))
    }

    pub(super) fn take_oldest(&mut self) -> Option<DirtyPart> {
        let part = self.parts.pop_front()?;
        self.bytes -= part.range.end - part.range.start;
        Some(part)
    }

    pub(super) fn take_of(&mut self, file: &FileName) -> Vec<DirtyPart> {
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.parts).into_iter().partition(|part| part.file == *file);
        self.parts = left;
        self.bytes -= taken.iter().map(|part| part.range.end - part.range.start).sum::<u64>();
        taken.into()
    }

    pub(super) fn rename(&mut self, from: &FileName, to: &FileName) {
        self.take_of(to);
        for part in self.parts.iter_mut().filter(|part| part.file == *from) {
            part.file = to.clone();
        }
    }
}

/// The pages of the device that are in memory, by their last use.
#[derive(Debug)]
pub(super) struct CleanPages {
    pages_max: usize,
    used_at: BTreeMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl CleanPages {
    pub(super) fn new(bytes_max: u64) -> Self {
        let pages_max = to_usize(bytes_max / PAGE_BYTES);
        Self { pages_max, used_at: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Returns the whole pages of a range of the device that have to be read; `None` if all of it
    /// is in memory. Pages that are in memory count as used, and are left out at both ends. Without
    /// memory for pages the range is returned as it is.
    pub(super) fn missing(&mut self, range: &Range<u64>) -> Option<Range<u64>> {
        if self.pages_max == 0 {
            return (!range.is_empty()).then(|| range.clone());
        }
        let mut all = pages(range);
        let first = all.find(|page| !self.used_at.contains_key(page));
        let last = all.rfind(|page| !self.used_at.contains_key(page)).or(first);
        let missing = first.zip(last).map(|(first, last)| first * PAGE_BYTES..(last + 1) * PAGE_BYTES);
        for page in pages(range) {
            if self.used_at.contains_key(&page) {
                self.use_page(page);
            }
        }
        missing
    }

    /// Takes a range of the device into memory.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        if self.pages_max == 0 {
            return;
        }
        pages(range).for_each(|page| self.use_page(page));
        while self.used_at.len() > self.pages_max {
            if let Some((_, page)) = self.by_use.pop_first() {
                self.used_at.remove(&page);
            }
        }
    }

    fn use_page(&mut self, page: u64) {
        self.uses += 1;
        if let Some(before) = self.used_at.insert(page, self.uses) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, page);
    }

    pub(super) fn clear(&mut self) {
        self.used_at.clear();
        self.by_use.clear();
    }
}

fn pages(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        FileName::new(text).unwrap()
    }

    #[test]
    fn parts_that_follow_each_other_are_one() {
        let mut dirty = DirtyParts::default();
        dirty.add(&name("a"), 0..10);
        dirty.add(&name("b"), 0..5);
        dirty.add(&name("a"), 10..30);
        assert_eq!(dirty.bytes(), 35);
        assert!(dirty.contains(&name("a"), &(5..25)) && !dirty.contains(&name("a"), &(5..31)));
        assert_eq!(dirty.take_of(&name("a")), [DirtyPart { file: name("a"), range: 0..30 }]);
        dirty.rename(&name("b"), &name("c"));
        assert_eq!(dirty.take_oldest(), Some(DirtyPart { file: name("c"), range: 0..5 }));
        assert_eq!((dirty.take_oldest(), dirty.bytes()), (None, 0));
    }

    #[test]
    fn the_page_that_was_unused_longest_goes_first() {
        let mut clean = CleanPages::new(2 * PAGE_BYTES);
        clean.add(&(0..1));
        clean.add(&(PAGE_BYTES..PAGE_BYTES + 1));
        assert_eq!(clean.missing(&(0..10)), None);
        clean.add(&(2 * PAGE_BYTES..2 * PAGE_BYTES + 1));
        assert_eq!(clean.missing(&(PAGE_BYTES..PAGE_BYTES + 1)), Some(PAGE_BYTES..2 * PAGE_BYTES));
        assert_eq!(clean.missing(&(0..10)), None);
    }

    #[test]
    fn whole_pages_are_read_from_the_first_missing_to_the_last() {
        let mut clean = CleanPages::new(10 * PAGE_BYTES);
        for page in [0, 2, 5] {
            clean.add(&(page * PAGE_BYTES..page * PAGE_BYTES + 7));
        }
        assert_eq!(clean.missing(&(100..6 * PAGE_BYTES)), Some(PAGE_BYTES..5 * PAGE_BYTES));
        assert_eq!(clean.missing(&(100..PAGE_BYTES + 1)), Some(PAGE_BYTES..2 * PAGE_BYTES));
        assert_eq!(CleanPages::new(0).missing(&(3..9)), Some(3..9));
    }
}

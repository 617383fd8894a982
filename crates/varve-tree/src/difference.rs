//! Finds the differences between two files without reading the subtrees that they share.

use std::ops::Range;

use varve_block::BlockStore;

use crate::cursor::{ReadPointerError, TreeCursor};
use crate::entry::Entry;
use crate::pointers::{Subtree, SubtreeKind};

/// The byte ranges in which two files differ, in order. There are equal bytes between any two
/// ranges.
///
/// An unreadable pointer block is returned as an error; the bytes below it count as different.
pub struct Differences<'a> {
    a: ComparedFile<'a>,
    b: ComparedFile<'a>,
    /// True if equal scores above the leaves mean equal subtrees.
    points_alike: bool,
    position: u64,
    run: Option<Range<u64>>,
}

/// Compares two trees by their scores.
///
/// Leaves are not read. A pointer block at the same place of both trees is not read either, if the
/// trees have the same layout and, when fixed, the same sizes. So two leaves with any difference
/// count as entirely different, and so do leaves that begin at different offsets. The tail of the
/// longer file is different. Holds one pointer block a level of each tree.
#[must_use]
pub fn difference<'a>(store: &'a dyn BlockStore, a: &Entry, b: &Entry) -> Differences<'a> {
    Differences {
        a: ComparedFile::new(store, a),
        b: ComparedFile::new(store, b),
        points_alike: a.points_like(b),
        position: 0,
        run: None,
    }
}

struct ComparedFile<'a> {
    cursor: TreeCursor<'a>,
    size: u64,
    /// True if the current subtree cannot be read. It equals no other.
    opaque: bool,
}

enum CompareStep {
    /// Both files are equal up to this offset.
    Same(u64),
    /// The files may differ up to this offset.
    Differ(u64),
    /// A pointer block was read, and the comparison continues below it.
    Descended,
}

impl<'a> ComparedFile<'a> {
    fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        Self { cursor: TreeCursor::new(store, entry), size: entry.size(), opaque: false }
    }

    fn can_descend(&self, subtree: &Subtree) -> bool {
        subtree.root == SubtreeKind::Pointer && !self.opaque
    }

    fn descend(&mut self) -> Result<CompareStep, ReadPointerError> {
        let descended = self.cursor.descend();
        self.opaque = descended.is_err();
        descended.map(|()| CompareStep::Descended)
    }

    fn move_to(&mut self, position: u64) {
        while self.cursor.current().is_some_and(|subtree| subtree.end() <= position) {
            self.cursor.skip();
            self.opaque = false;
        }
    }
}

impl Differences<'_> {
    fn step(&mut self) -> Result<CompareStep, ReadPointerError> {
        let (Some(a), Some(b)) = (self.a.cursor.current(), self.b.cursor.current()) else {
            return Ok(CompareStep::Differ(self.a.size.max(self.b.size)));
        };
        let end = a.end().min(b.end());
        if self.is_same(&a, &b) {
            return Ok(CompareStep::Same(end));
        }
        let (open_a, open_b) = (self.a.can_descend(&a), self.b.can_descend(&b));
        match (open_a, open_b) {
            (false, false) => Ok(CompareStep::Differ(end)),
            (true, true) if b.length > a.length => self.b.descend(),
            (true, _) => self.a.descend(),
            (false, true) => self.b.descend(),
        }
    }

    fn is_same(&self, a: &Subtree, b: &Subtree) -> bool {
        if a.root == SubtreeKind::Zeros || b.root == SubtreeKind::Zeros {
            return a.root == b.root;
        }
        let alike = match a.level {
            // The block is at most as long as the shorter of the two, so the rest of the longer one
            // is zeros.
            0 => a.offset == b.offset,
            _ => self.points_alike && a.range() == b.range(),
        };
        alike && a.level == b.level && a.score == b.score
    }
}

impl Iterator for Differences<'_> {
    type Item = Result<Range<u64>, ReadPointerError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.position < self.a.size.max(self.b.size) {
            let (step_end, is_same) = match self.step() {
                Ok(CompareStep::Descended) => continue,
                Ok(CompareStep::Same(end)) => (end, true),
                Ok(CompareStep::Differ(end)) => (end, false),
                Err(damage) => return Some(Err(damage)),
            };
            let from = std::mem::replace(&mut self.position, step_end);
            self.a.move_to(step_end);
            self.b.move_to(step_end);
            if !is_same {
                self.run = Some(self.run.take().map_or(from, |run| run.start)..step_end);
            } else if let Some(run) = self.run.take() {
                return Some(Ok(run));
            }
        }
        self.run.take().map(Ok)
    }
}

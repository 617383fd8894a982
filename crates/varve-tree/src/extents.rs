//! A file as a sequence of leaves and holes.

use std::ops::Range;

use varve_block::Score;

use crate::cursor::{ReadPointerError, TreeCursor};
use crate::pointers::SubtreeKind;

/// A range of a file that is stored in one leaf, or that is zeros without a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The offset in the file.
    pub offset: u64,
    /// The number of bytes; not 0.
    pub length: u64,
    /// The leaf. If its block is shorter than the extent, the rest is zeros. `None` for a hole.
    pub leaf: Option<Score>,
}

impl Extent {
    /// Returns the range of the file.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// The extents of a range of a file, in order: see
/// [`TreeReader::extents`](crate::TreeReader::extents).
///
/// An unreadable pointer block is returned as an error in place of the extents below it, and the
/// iterator continues after it.
pub struct Extents<'a> {
    cursor: TreeCursor<'a>,
    range: Range<u64>,
    /// The damage that follows the hole that was returned.
    damage: Option<ReadPointerError>,
}

impl<'a> Extents<'a> {
    pub(crate) fn new(cursor: TreeCursor<'a>, range: Range<u64>) -> Self {
        // Nothing begins before 0. An empty range further on could lie inside an extent.
        let range = if range.is_empty() { 0..0 } else { range };
        Self { cursor, range, damage: None }
    }

    /// Returns extents until the sum of their leaves reaches `leaf_bytes_max` (and may exceed it by
    /// one leaf), and the damage that ended them.
    pub(crate) fn batch(&mut self, leaf_bytes_max: u64) -> (Vec<Extent>, Result<(), ReadPointerError>) {
        let (mut extents, mut leaf_bytes) = (Vec::new(), 0);
        while leaf_bytes < leaf_bytes_max && extents.len() < EXTENT_COUNT_MAX {
            match self.next() {
                None => break,
                Some(Err(damage)) => return (extents, Err(damage)),
                Some(Ok(extent)) => {
                    leaf_bytes += extent.leaf.map_or(0, |_| extent.length);
                    extents.push(extent);
                }
            }
        }
        (extents, Ok(()))
    }
}

/// The largest number of extents in a batch, even if they are small.
const EXTENT_COUNT_MAX: usize = 4096;

impl Iterator for Extents<'_> {
    type Item = Result<Extent, ReadPointerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(damage) = self.damage.take() {
            return Some(Err(damage));
        }
        let mut hole: Option<Range<u64>> = None;
        while let Some(subtree) = self.cursor.current().filter(|subtree| subtree.offset < self.range.end) {
            if subtree.end() <= self.range.start {
                self.cursor.skip();
                continue;
            }
            match subtree.root {
                SubtreeKind::Pointer => {
                    if let Err(damage) = self.cursor.descend() {
                        self.cursor.skip();
                        self.damage = Some(damage);
                        break;
                    }
                }
                SubtreeKind::Zeros => {
                    let begun = hole.map_or(subtree.offset.max(self.range.start), |hole| hole.start);
                    hole = Some(begun..subtree.end().min(self.range.end));
                    self.cursor.skip();
                }
                SubtreeKind::Leaf if hole.is_some() => break,
                SubtreeKind::Leaf => {
                    self.cursor.skip();
                    let (offset, length) = (subtree.offset, subtree.length);
                    return Some(Ok(Extent { offset, length, leaf: Some(subtree.score) }));
                }
            }
        }
        match hole {
            Some(hole) => Some(Ok(Extent { offset: hole.start, length: hole.end - hole.start, leaf: None })),
            None => self.damage.take().map(Err),
        }
    }
}

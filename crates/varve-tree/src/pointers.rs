//! Pointer blocks and their children. Little-endian. The depth in a block's type is its level.
//!
//! Fixed: scores, one for each child, in the children's order. Trailing scores of the empty block
//! are not stored.
//!
//! | offset | bytes | field  | meaning                                                                  |
//! |-------:|------:|--------|--------------------------------------------------------------------------|
//! |      0 |       | scores | at most `pointer_bytes / score width`                                    |
//!
//! Cut by content: rows, one for each child, in the children's order.
//!
//! | offset | bytes | field  | meaning                                                                  |
//! |-------:|------:|--------|--------------------------------------------------------------------------|
//! |      0 |     8 | length | the bytes of the file below this row; not 0                              |
//! |      8 |       | score  | of the child; of the empty block for zeros                               |
//!
//! A block is checked against its parent before any of its pointers is followed.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use bytes::{Buf, Bytes};
use varve_block::{BlockKind, Score, to_usize};

use crate::entry::{Entry, Layout, ROW_LENGTH_BYTES, fixed_fanout, fixed_span};

/// The reason why a pointer block that was read is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedPointer {
    /// The length is not a multiple of the pointer size, or exceeds the tree's largest pointer
    /// block.
    #[error("it has {actual} bytes, but should have a multiple of {pointer} bytes, {most} at most")]
    Length {
        actual: usize,
        /// The size of one pointer.
        pointer: usize,
        /// The largest allowed size.
        most: usize,
    },
    /// There are more scores than the bytes below need.
    #[error("it has {actual} pointers, but only {needed} are needed for its bytes")]
    TooMany {
        actual: u64,
        /// The number that the length below its parent's pointer needs.
        needed: u64,
    },
    #[error("row {row} has length 0")]
    EmptyRow {
        /// The row, counted from 0.
        row: usize,
    },
    /// A leaf stands for more bytes than the entry allows.
    #[error("row {row} has a leaf of {length} bytes, but leaves have at most {most}")]
    LongLeaf {
        /// The row, counted from 0.
        row: usize,
        /// The length in the row.
        length: u64,
        /// The tree's largest leaf.
        most: u32,
    },
    /// The sum of the rows differs from the length in the parent.
    #[error("its rows sum to {actual} bytes, but its parent records {expected}")]
    Sum {
        /// The length in the parent.
        expected: u64,
        actual: u128,
    },
}

/// The properties that all blocks of one tree share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    layout: Layout,
    leaf_bytes: u32,
    pointer_bytes: usize,
    score_bytes: usize,
    fanout: u64,
    empty: Score,
}

/// The part of a file below one score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subtree {
    /// The offset in the file.
    pub(crate) offset: u64,
    /// The number of bytes; not 0, and not beyond the file's end.
    pub(crate) length: u64,
    /// The level of its root above the leaves.
    pub(crate) level: u8,
    pub(crate) score: Score,
    pub(crate) root: SubtreeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubtreeKind {
    Zeros,
    Leaf,
    Pointer,
}

/// The children of a checked pointer block, in order. Together they cover exactly the parent's
/// bytes. Zeros at the end of a fixed block are returned as one child.
#[derive(Debug, Clone)]
pub(crate) struct Children {
    geometry: Geometry,
    rest: Bytes,
    offset: u64,
    end: u64,
    level: u8,
}

impl Geometry {
    pub(crate) fn new(entry: &Entry, empty: Score) -> Self {
        let score_bytes = entry.root().as_bytes().len();
        Self {
            layout: entry.layout(),
            leaf_bytes: entry.leaf_bytes(),
            pointer_bytes: to_usize(entry.pointer_bytes()),
            score_bytes,
            fanout: fixed_fanout(entry.pointer_bytes(), score_bytes),
            empty,
        }
    }

    /// Returns the kind of a tree's pointer blocks, given the kind of its leaves.
    pub(crate) fn pointer_kind(&self, leaf_kind: BlockKind) -> BlockKind {
        if self.layout == Layout::Venti { BlockKind::Data } else { leaf_kind }
    }

    pub(crate) fn subtree(&self, offset: u64, length: u64, level: u8, score: Score) -> Subtree {
        let root = match level {
            _ if score == self.empty => SubtreeKind::Zeros,
            0 => SubtreeKind::Leaf,
            _ => SubtreeKind::Pointer,
        };
        Subtree { offset, length, level, score, root }
    }

    /// Returns the largest size of a pointer block.
    pub(crate) fn pointer_bytes(&self) -> usize {
        self.pointer_bytes
    }

    fn pointer_width(&self) -> usize {
        match self.layout {
            Layout::Fixed | Layout::Venti => self.score_bytes,
            Layout::ContentCut => self.score_bytes.saturating_add(ROW_LENGTH_BYTES),
        }
    }

    /// Returns the bytes below one pointer of a block at `level` of a fixed tree.
    fn child_span(&self, level: u8) -> u64 {
        fixed_span(self.leaf_bytes, self.fanout, level.saturating_sub(1))
    }

    fn check(&self, parent: &Subtree, bytes: &[u8]) -> Result<(), MalformedPointer> {
        let width = self.pointer_width();
        if self.layout == Layout::Venti {
            // Pointers beyond the end of the file, and a rest that is too short for a pointer, are
            // ignored.
            return Ok(());
        }
        if bytes.len() > self.pointer_bytes || !bytes.len().is_multiple_of(width) {
            return Err(MalformedPointer::Length {
                actual: bytes.len(),
                pointer: width,
                most: self.pointer_bytes,
            });
        }
        match self.layout {
            Layout::Fixed | Layout::Venti => {
                let actual = bytes.chunks_exact(width).len() as u64;
                let needed = parent.length.div_ceil(self.child_span(parent.level));
                if actual > needed { Err(MalformedPointer::TooMany { actual, needed }) } else { Ok(()) }
            }
            Layout::ContentCut => self.check_rows(parent, bytes.chunks_exact(width)),
        }
    }

    fn check_rows<'a>(
        &self,
        parent: &Subtree,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), MalformedPointer> {
        let mut actual = 0u128;
        for (row, mut bytes) in rows.enumerate() {
            let length = bytes.try_get_u64_le().unwrap_or(0);
            if length == 0 {
                return Err(MalformedPointer::EmptyRow { row });
            }
            let is_leaf = parent.level == 1 && bytes != self.empty.as_bytes();
            if is_leaf && length > u64::from(self.leaf_bytes) {
                return Err(MalformedPointer::LongLeaf { row, length, most: self.leaf_bytes });
            }
            actual = actual.saturating_add(u128::from(length));
        }
        let expected = parent.length;
        if actual == u128::from(expected) { Ok(()) } else { Err(MalformedPointer::Sum { expected, actual }) }
    }
}

impl Subtree {
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }
}

impl Children {
    /// Checks and decodes the root block of `parent`.
    pub(crate) fn decode(
        geometry: Geometry,
        parent: &Subtree,
        bytes: Bytes,
    ) -> Result<Self, MalformedPointer> {
        geometry.check(parent, &bytes)?;
        let level = parent.level.saturating_sub(1);
        Ok(Self { geometry, rest: bytes, offset: parent.offset, end: parent.end(), level })
    }

    /// Returns the next pointer: its score, and its length unless the layout implies it.
    fn pointer(&mut self) -> Option<(Option<u64>, Score)> {
        let length = match self.geometry.layout {
            Layout::Fixed | Layout::Venti => None,
            Layout::ContentCut => Some(self.rest.try_get_u64_le().ok()?),
        };
        let score = Score::try_from(self.rest.get(..self.geometry.score_bytes)?).ok()?;
        self.rest.advance(self.geometry.score_bytes);
        Some((length, score))
    }
}

impl Iterator for Children {
    type Item = Subtree;

    fn next(&mut self) -> Option<Subtree> {
        let left = self.end.checked_sub(self.offset).filter(|left| *left > 0)?;
        let span = self.geometry.child_span(self.level.saturating_add(1));
        let (length, score) = match self.pointer() {
            Some((length, score)) => (length.unwrap_or(span).min(left), score),
            None => (left, self.geometry.empty),
        };
        let child = self.geometry.subtree(self.offset, length, self.level, score);
        self.offset = child.end();
        Some(child)
    }
}

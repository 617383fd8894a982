//! An entry: the root of a tree and its sizes. Little-endian.
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     1 | type          | the type of its leaves                                                         |
//! |      1 |     1 | layout        | 0 fixed, 1 cut by content                                                      |
//! |      2 |     1 | depth         | levels of pointer blocks above the leaves                                      |
//! |      3 |     1 | zero          |                                                                                |
//! |      4 |     4 | leaf_bytes    | the size (fixed), or largest size (cut by content), of a leaf                  |
//! |      8 |     4 | pointer_bytes | the largest size of a pointer block                                            |
//! |     12 |     8 | size          | of the file in bytes                                                           |
//! |     20 |       | root          | the root's score: 32 bytes, 20, or 24 in a by-value store                      |
//!
//! Invariant: the depth of a fixed tree is the smallest that its size needs, so that one content
//! has one entry.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BLOCK_BYTES_MAX, BlockKind, BlockType, Score, to_usize};

use crate::shape::Shape;

/// The size of an encoded entry without the root's score, which follows it.
pub(crate) const ENTRY_HEADER_BYTES: usize = 20;

/// The bytes of the length in a row of a content-cut tree's pointer block.
pub(crate) const ROW_LENGTH_BYTES: usize = 8;

/// The way in which a file is cut into leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Layout {
    /// Cut at multiples of the leaf size. A pointer block consists of scores.
    Fixed = 0,
    /// Cut by content, so that an insertion moves few cuts. A pointer block consists of rows of
    /// length and score.
    ContentCut = 1,
    /// The layout of Venti clients: cut at multiples of the leaf size and of any depth. Pointer
    /// blocks have one type for leaves of every kind, and blocks may extend past the bytes that
    /// they stand for. Only trees of other programs have it, and no stored entry.
    Venti = 2,
}

/// The root of a tree with its sizes: 20 bytes and a score that lead to a file of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    leaf_kind: BlockKind,
    layout: Layout,
    depth: u8,
    leaf_bytes: u32,
    pointer_bytes: u32,
    size: u64,
    root: Score,
}

/// The reason why bytes are not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeEntryError {
    #[error("an entry of {actual} bytes is invalid: in this store an entry has {expected} bytes")]
    Length {
        /// The length for the score width of the store.
        expected: usize,
        actual: usize,
    },
    #[error("the type {byte} is not a leaf type")]
    Type { byte: u8 },
    #[error("the layout {byte} is unknown to this version")]
    Layout { byte: u8 },
    /// The reserved byte is not zero.
    #[error("the entry's fourth byte is {byte}, but must be 0")]
    Reserved { byte: u8 },
    /// The leaf size is 0 or larger than any block.
    #[error("a leaf size of {leaf_bytes} bytes is invalid: it must be 1 to {BLOCK_BYTES_MAX}")]
    LeafBytes { leaf_bytes: u32 },
    /// Pointer blocks have no room for two pointers, or are larger than any block.
    #[error(
        "a pointer block size of {pointer_bytes} bytes is invalid: it must be {least} to {BLOCK_BYTES_MAX}"
    )]
    PointerBytes {
        pointer_bytes: u32,
        /// The size of two pointers.
        least: usize,
    },
    /// The depth does not fit the size.
    #[error("a depth of {depth} does not fit a file of {size} bytes")]
    Depth { depth: u8, size: u64 },
}

impl Entry {
    /// Makes the entry of a fixed tree with the depth that its size needs. Returns `None` if that
    /// exceeds the largest depth.
    pub(crate) fn fixed(shape: &Shape, score_bytes: usize, size: u64, root: Score) -> Option<Self> {
        let Shape { leaf_kind, leaf_bytes, pointer_bytes } = *shape;
        let depth = fixed_depth(leaf_bytes, fixed_fanout(pointer_bytes, score_bytes), size)?;
        Some(Self { leaf_kind, layout: Layout::Fixed, depth, leaf_bytes, pointer_bytes, size, root })
    }

    /// Makes the entry of a tree that a Venti client wrote. Returns `None` if its depth is too
    /// small for the size, or if a block size is out of range.
    pub(crate) fn venti(shape: &Shape, depth: u8, size: u64, root: Score) -> Option<Self> {
        let Shape { leaf_kind, leaf_bytes, pointer_bytes } = *shape;
        let score_bytes = root.as_bytes().len();
        let fanout = fixed_fanout(pointer_bytes, score_bytes);
        let is_good = is_block_size(leaf_bytes, 1)
            && is_block_size(pointer_bytes, score_bytes.saturating_mul(2))
            && depth <= BlockType::DEPTH_MAX
            && fixed_span(leaf_bytes, fanout, depth) >= size;
        let layout = Layout::Venti;
        is_good.then_some(Self { leaf_kind, layout, depth, leaf_bytes, pointer_bytes, size, root })
    }

    /// Returns the same entry with leaves of another kind: Venti's pointer blocks have one type for
    /// all kinds.
    pub(crate) fn of_kind(self, leaf_kind: BlockKind) -> Self {
        Self { leaf_kind, layout: Layout::Venti, ..self }
    }

    /// Returns the same entry with another root.
    pub(crate) fn with_root(self, root: Score) -> Self {
        Self { root, ..self }
    }

    /// Makes the entry of a content-cut tree.
    pub(crate) fn content_cut(
        leaf_kind: BlockKind,
        leaf_bytes: u32,
        pointer_bytes: u32,
        depth: u8,
        size: u64,
        root: Score,
    ) -> Self {
        Self { leaf_kind, layout: Layout::ContentCut, depth, leaf_bytes, pointer_bytes, size, root }
    }

    /// Returns the kind of the leaves and of the pointer blocks above them.
    #[must_use]
    pub fn leaf_kind(&self) -> BlockKind {
        self.leaf_kind
    }

    /// Returns the way in which the file is cut.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the number of levels of pointer blocks above the leaves, at most
    /// [`BlockType::DEPTH_MAX`]. It is 0 if the root is the only leaf.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// Returns the bytes of the file in a leaf: the exact number in a fixed tree, except for the
    /// last leaf; otherwise the largest number.
    #[must_use]
    pub fn leaf_bytes(&self) -> u32 {
        self.leaf_bytes
    }

    /// Returns the size of the largest pointer block.
    #[must_use]
    pub fn pointer_bytes(&self) -> u32 {
        self.pointer_bytes
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the score of the root, which is a leaf if the depth is 0. The score of the empty
    /// block stands for a file of zeros.
    #[must_use]
    pub fn root(&self) -> Score {
        self.root
    }

    /// Returns true if pointer blocks with the same score in both trees are the same subtree.
    pub(crate) fn points_like(&self, other: &Self) -> bool {
        let shape = |entry: &Self| (entry.leaf_bytes, entry.pointer_bytes);
        self.layout == other.layout && (self.layout == Layout::ContentCut || shape(self) == shape(other))
    }

    /// Encodes the entry as it is stored: its header and the root's score.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![BlockType::leaf(self.leaf_kind).to_byte(), self.layout as u8, self.depth, 0];
        bytes.extend_from_slice(&self.leaf_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.pointer_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.extend_from_slice(self.root.as_bytes());
        bytes
    }

    /// Decodes an entry of a store whose scores have `score_bytes` bytes. Reads no blocks.
    ///
    /// # Errors
    /// [`DecodeEntryError`] names the field that no writer would have written.
    pub fn decode(bytes: &[u8], score_bytes: usize) -> Result<Self, DecodeEntryError> {
        let wrong_length = DecodeEntryError::Length {
            expected: ENTRY_HEADER_BYTES.saturating_add(score_bytes),
            actual: bytes.len(),
        };
        let Some((header, root)) = bytes.split_first_chunk::<ENTRY_HEADER_BYTES>() else {
            return Err(wrong_length);
        };
        if root.len() != score_bytes {
            return Err(wrong_length);
        }
        let root = Score::try_from(root).map_err(|_| wrong_length)?;
        let &[leaf_type, layout, depth, zero, l0, l1, l2, l3, p0, p1, p2, p3, ref size @ ..] = header;
        let leaf_kind = match BlockType::from_byte(leaf_type) {
            // Notes are single blocks, and no tree is made of them.
            Some(leaf_type) if leaf_type.depth() == 0 && leaf_type != BlockType::NOTE => leaf_type.kind(),
            _ => return Err(DecodeEntryError::Type { byte: leaf_type }),
        };
        let layout = match layout {
            0 => Layout::Fixed,
            1 => Layout::ContentCut,
            byte => return Err(DecodeEntryError::Layout { byte }),
        };
        if zero != 0 {
            return Err(DecodeEntryError::Reserved { byte: zero });
        }
        let leaf_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        let pointer_bytes = u32::from_le_bytes([p0, p1, p2, p3]);
        let entry = Self {
            leaf_kind,
            layout,
            depth,
            leaf_bytes,
            pointer_bytes,
            size: u64::from_le_bytes(*size),
            root,
        };
        entry.check_sizes(score_bytes)?;
        Ok(entry)
    }

    fn check_sizes(&self, score_bytes: usize) -> Result<(), DecodeEntryError> {
        let Self { leaf_bytes, pointer_bytes, depth, size, .. } = *self;
        if !is_block_size(leaf_bytes, 1) {
            return Err(DecodeEntryError::LeafBytes { leaf_bytes });
        }
        let least = match self.layout {
            Layout::Fixed | Layout::Venti => score_bytes.saturating_mul(2),
            Layout::ContentCut => score_bytes.saturating_add(ROW_LENGTH_BYTES).saturating_mul(2),
        };
        if !is_block_size(pointer_bytes, least) {
            return Err(DecodeEntryError::PointerBytes { pointer_bytes, least });
        }
        let depth_fits = match self.layout {
            Layout::Fixed | Layout::Venti => {
                fixed_depth(leaf_bytes, fixed_fanout(pointer_bytes, score_bytes), size) == Some(depth)
            }
            Layout::ContentCut => depth <= BlockType::DEPTH_MAX && (size > 0 || depth == 0),
        };
        if depth_fits { Ok(()) } else { Err(DecodeEntryError::Depth { depth, size }) }
    }
}

/// Returns true if a block may have this size, and it is at least `least`.
pub(crate) fn is_block_size(bytes: u32, least: usize) -> bool {
    (least..=BLOCK_BYTES_MAX).contains(&to_usize(bytes))
}

/// Returns the number of scores in a pointer block of a fixed tree.
pub(crate) fn fixed_fanout(pointer_bytes: u32, score_bytes: usize) -> u64 {
    u64::from(pointer_bytes).checked_div(score_bytes as u64).unwrap_or(0)
}

/// Returns the bytes of a file below a block of a fixed tree at a level above the leaves, clamped
/// to `u64::MAX`.
pub(crate) fn fixed_span(leaf_bytes: u32, fanout: u64, level: u8) -> u64 {
    u64::from(leaf_bytes).saturating_mul(fanout.saturating_pow(u32::from(level)))
}

/// Returns the depth of the smallest fixed tree for a file of `size` bytes; `None` if that exceeds
/// the largest depth.
pub(crate) fn fixed_depth(leaf_bytes: u32, fanout: u64, size: u64) -> Option<u8> {
    (0..=BlockType::DEPTH_MAX).find(|depth| fixed_span(leaf_bytes, fanout, *depth) >= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(size: u64) -> Entry {
        let shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 8192, pointer_bytes: 8192 };
        Entry::fixed(&shape, 20, size, Score::try_from([7; 20].as_slice()).unwrap()).unwrap()
    }

    #[test]
    fn an_entry_survives_the_round_trip() {
        for size in [0, 1, 8192, 8193, 1 << 40, u64::MAX] {
            let entry = image(size);
            assert_eq!(Entry::decode(&entry.encode(), 20), Ok(entry));
        }
        let file =
            Entry::content_cut(BlockKind::Directory, 1 << 20, 80, 31, u64::MAX, Score::from([0xff; 32]));
        assert_eq!(Entry::decode(&file.encode(), 32), Ok(file));
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let expected =
            [&[0, 0, 3, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], [7; 20].as_slice()].concat();
        assert_eq!(image(1 << 32).encode(), expected);
    }

    #[test]
    fn depth_is_the_smallest_that_the_size_needs() {
        let depths = [0, 8192, 8193, 409 * 8192, 409 * 8192 + 1].map(|size| image(size).depth());
        assert_eq!(depths, [0, 0, 1, 1, 2]);
        assert_eq!(fixed_depth(1, 2, 1 << 31), Some(31));
        assert_eq!(fixed_depth(1, 2, (1 << 31) + 1), None);
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        let good = image(1 << 32).encode();
        assert_eq!(
            Entry::decode(&good, 32).unwrap_err(),
            DecodeEntryError::Length { expected: 52, actual: 40 }
        );
        assert_eq!(
            Entry::decode(&good[..7], 20).unwrap_err(),
            DecodeEntryError::Length { expected: 40, actual: 7 }
        );
        let with = |place: usize, bytes: &[u8]| {
            let mut entry = good.clone();
            entry[place..place + bytes.len()].copy_from_slice(bytes);
            Entry::decode(&entry, 20).unwrap_err()
        };
        let (size, depth) = (1 << 32, 3);
        assert_eq!(with(0, &[1]), DecodeEntryError::Type { byte: 1 });
        assert_eq!(with(0, &[128]), DecodeEntryError::Type { byte: 128 });
        assert_eq!(with(1, &[2]), DecodeEntryError::Layout { byte: 2 });
        assert_eq!(with(3, &[1]), DecodeEntryError::Reserved { byte: 1 });
        assert_eq!(with(4, &[0, 0, 0, 0]), DecodeEntryError::LeafBytes { leaf_bytes: 0 });
        assert_eq!(with(4, &[1, 0, 16, 0]), DecodeEntryError::LeafBytes { leaf_bytes: 1_048_577 });
        assert_eq!(with(8, &[39, 0, 0, 0]), DecodeEntryError::PointerBytes { pointer_bytes: 39, least: 40 });
        assert_eq!(with(2, &[2]), DecodeEntryError::Depth { depth: 2, size });
        assert_eq!(with(2, &[4]), DecodeEntryError::Depth { depth: 4, size });
        assert_eq!(with(12, &[0; 8]), DecodeEntryError::Depth { depth, size: 0 });
        assert_eq!(with(1, &[1, 32]), DecodeEntryError::Depth { depth: 32, size });
    }
}

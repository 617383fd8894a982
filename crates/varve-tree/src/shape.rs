//! The sizes that define a fixed tree.

use varve_block::BlockKind;

/// The sizes of a fixed tree. Two trees share subtrees only if they have the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub leaf_kind: BlockKind,
    /// The bytes of the file in a leaf: 1 to [`BLOCK_BYTES_MAX`](varve_block::BLOCK_BYTES_MAX).
    pub leaf_bytes: u32,
    /// The size of a full pointer block: at least two scores, and at most `BLOCK_BYTES_MAX`. The
    /// rest after a multiple of the score's width is unused.
    pub pointer_bytes: u32,
}

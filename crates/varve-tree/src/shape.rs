//! How a file becomes a fixed tree.

use varve_block::BlockKind;

/// The sizes of a fixed tree. Two trees share subtrees only if they have the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// What the leaves hold.
    pub leaf_kind: BlockKind,
    /// How many bytes of the file a leaf stands for: 1 to [`BLOCK_BYTES_MAX`](varve_block::BLOCK_BYTES_MAX).
    pub leaf_bytes: u32,
    /// The size of a full pointer block: room for two scores at least, and again at most `BLOCK_BYTES_MAX`. What is
    /// left beyond a multiple of the score's width stays unused.
    pub pointer_bytes: u32,
}

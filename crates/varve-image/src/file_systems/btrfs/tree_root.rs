//! The root of a tree, as the superblock and the items of roots have it.

/// The place of a tree's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreeRoot {
    pub(super) logical: u64,
    pub(super) level: u8,
    pub(super) generation: u64,
}

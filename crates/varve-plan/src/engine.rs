//! The kinds of store that are measured and planned for.

use varve_store::IndexKind;

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine {
    /// The kind of index.
    pub index: IndexKind,
    /// True if duplicates are compared with the stored bytes, and blocks are named by their places.
    pub by_value: bool,
}

impl Engine {
    /// The engines from which a store can be made, in the order of output.
    pub const CHOICES: [Self; 4] = [
        Self::of(IndexKind::Memory, false),
        Self::of(IndexKind::Disk, false),
        Self::of(IndexKind::Memory, true),
        Self::of(IndexKind::Disk, true),
    ];

    const fn of(index: IndexKind, by_value: bool) -> Self {
        Self { index, by_value }
    }

    /// Returns the name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.by_value, self.index) {
            (false, IndexKind::Memory) => "by hash, index in memory",
            (false, IndexKind::Disk) => "by hash, index on disk",
            (true, IndexKind::Memory) => "by value, index in memory",
            (true, IndexKind::Disk) => "by value, index on disk",
        }
    }
}

//! The ledger of a directory page.

/// Ties the arenas to each other: covers the seals of all arenas that were sealed when a page was
/// written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The number of seals that had been made. The ledger covers all of them except those that were
    /// lost by then.
    pub arena_count: u64,
    pub(crate) code: [u8; 32],
}

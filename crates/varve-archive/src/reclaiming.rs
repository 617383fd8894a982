//! Finds the blocks that the snapshots of a store need, and frees the space of all others.

pub mod block_walk;
pub mod collect;
pub mod live_marker;
pub mod mark;
pub mod mark_error;
pub mod price_file;
pub mod roots;
pub mod snapshot_walk;

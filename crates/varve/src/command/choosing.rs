//! Finds what a command line names: snapshots, and paths in them.

pub mod chosen_snapshots;
pub mod place_in_snapshot;

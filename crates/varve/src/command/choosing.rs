//! Finds what a command line names: snapshots, and paths in them.

pub mod chosen_snapshots;
mod meant_path;
pub mod place_in_snapshot;

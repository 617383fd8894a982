//! Finds the parts of a disk that need not be archived, and proves that they are not needed.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod left_out;
pub mod open_ext;
pub mod proof;
pub mod search;
pub mod swap;

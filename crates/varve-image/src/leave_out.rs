//! Finds the parts of a disk that need not be archived, and proves that they are not needed.

pub mod left_out;
pub mod proof;
pub mod search;
pub mod swap;

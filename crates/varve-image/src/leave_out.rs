//! Parts of a disk that need not be archived, and the proof that it is so.

pub mod left_out;
pub mod proof;
pub mod search;
pub mod swap;

//! Seeing what is archived.

pub mod arena_space;
pub mod diff;
pub mod find;
pub mod left_out;
mod listed_copies;
pub mod ls;
pub mod snapshot_list;
pub mod space_needs;
pub mod stats;
pub mod text_lines;
pub mod versions;

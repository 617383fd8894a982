//! The objects of a replica: their names, and the arenas that a target's list of names stands for.

pub mod listing;
pub mod object_name;
pub mod record_ends;

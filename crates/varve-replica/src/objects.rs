//! The objects of a replica: their names, and the arenas that a listing of names implies.

pub mod listing;
pub mod object_name;
pub mod record_ends;

//! Names: the locations of targets, and the valid names of objects.

pub mod leftovers;
pub mod location;
pub mod object_names;
pub mod password;
pub mod target_listing;

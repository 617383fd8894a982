//! Names: where a target is, and how its objects may be called.

pub mod leftovers;
pub mod listing;
pub mod location;
pub mod object_names;
pub mod secret;

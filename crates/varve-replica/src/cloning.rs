//! Cloning: makes a whole store from a replica. Each record is checked when it arrives.

pub mod arena_arrival;
pub mod clone_replica;

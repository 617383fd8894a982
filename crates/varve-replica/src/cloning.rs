//! Cloning: a whole store is brought back from a replica, each record checked as it arrives.

pub mod arena_arrival;
pub mod clone_replica;

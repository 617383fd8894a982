//! Finds out where the space of a store is: who needs which bytes, and where they lie.

pub mod need_rules;
pub mod need_walk;
pub mod needer_sets;
pub mod places;
pub mod space_needs;

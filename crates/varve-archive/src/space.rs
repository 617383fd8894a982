//! Finds out where the space of a store is: who needs which bytes.

pub mod need_rules;
pub mod need_table;
pub mod need_walk;
pub mod space_needs;

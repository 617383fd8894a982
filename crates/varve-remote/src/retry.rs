//! Trying again: when, how often, and after which failures.

pub mod persistent;
pub mod trouble;

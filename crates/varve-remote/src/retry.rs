//! Retries: their times, their number, and the failures that lead to them.

pub mod persistent;
pub mod trouble;

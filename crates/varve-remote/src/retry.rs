//! Retries: their times, their number, and the failures that lead to them.

pub mod retrying_target;

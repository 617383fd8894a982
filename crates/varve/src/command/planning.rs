//! Sizing a machine for a store.

pub mod bench;
pub mod plan;

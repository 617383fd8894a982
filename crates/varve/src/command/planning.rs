//! Sizing a machine for a store.

pub mod bench;
mod design;
pub mod plan;

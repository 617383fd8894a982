//! Sizing a machine for a store.

pub mod bench;
mod design;
mod endowment;
mod input_file;
pub mod plan;
pub mod trace;

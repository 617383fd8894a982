//! Verifies an archive, reports which snapshots the damage harms, and repairs it.

pub mod repair;
pub mod verify;

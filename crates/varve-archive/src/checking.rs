//! Verifying what is stored and what damage harms; repairing it.

pub mod repair;
pub mod verify;

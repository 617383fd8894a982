//! Removes the earlier generations of rewritten arenas from a target: the plan, the proof that each
//! later generation is whole there, and the removal.

pub mod drop_error;
pub mod drop_plan;
pub mod proof;

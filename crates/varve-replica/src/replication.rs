//! Replicates a store: the plan, and its application.
//!
//! `planner` reads the target and decides, `replication_plan` can be printed, `upload` applies it.

pub mod error;
pub mod history;
pub mod planned_segments;
pub mod planner;
pub mod replaced_objects;
pub mod replica_end;
pub mod replication_plan;
pub mod replication_source;
pub mod segment_source;
pub mod superseded_since;
pub mod upload;

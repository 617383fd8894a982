//! The jobs of a configuration, their histories, and whether each runs now.
//!
//! Read first: `daily_job.rs` and `decision.rs`.

mod daily_job;
mod decision;
mod empty_folders;
mod histories;
mod known_time;
mod machine_state;
mod retention;

pub use daily_job::{DailyJob, JobKind, jobs};
pub use decision::{JobDecision, decide};
pub use empty_folders::empty_sources;
pub use histories::Histories;
pub use known_time::clock_obstacle;
pub use machine_state::machine_state;
pub use retention::{overdue, would_forget};

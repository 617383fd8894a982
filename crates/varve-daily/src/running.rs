//! A run: the jobs that are due, one after the other, and the notices after them.
//!
//! ```text
//! DailyJob ─▶ JobOrder ─▶ a process of its own ─▶ JobRecord ─▶ JobEnd ─▶ LoggedJob, Histories
//! ```
//!
//! Read first: `run.rs` (all jobs), then `order.rs` and `carry_out.rs` (one job).

mod beside_another_run;
mod care_jobs;
mod carry_out;
mod hooks;
mod job_end;
mod job_process;
mod notices_meanwhile;
mod observer;
mod order;
mod record;
mod request;
mod run;
mod run_notices;
mod snapshot_job;

pub use job_end::JobOutcome;
pub use job_process::{end_with_run, is_job_process};
pub use observer::RunObserver;
pub use order::{DrillOrder, ForgetOrder, JobOrder, OrderedWork, ReplicateOrder, SnapshotOrder};
pub use record::JobRecord;
pub use request::{RunEnd, RunRequest};
pub use run::{planned_jobs, run_due_jobs};
pub use run_notices::send_changes;

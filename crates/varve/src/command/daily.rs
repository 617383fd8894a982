//! Daily work by a configuration: what is due, what is done, and which promises hold.
//!
//! Read first: `jobs.rs` (the jobs of a configuration), `status.rs` (what the archive says) and
//! `run.rs`. The decisions are in the crate `varve-watch`.

mod beside_another_run;
mod config_file;
mod distrusted_files;
mod dry_run;
mod empty_folders;
mod freeze;
mod hooks;
mod job_history;
mod jobs;
mod known_time;
mod machine_state;
mod notice_state;
mod notices_meanwhile;
mod open_store;
mod program_run;
mod replica_views;
mod retention;
mod sentences;
mod server_clocks;
mod state_folder;
mod status_metrics;
mod status_plugin;
mod store_identity;
mod taken_over;
mod world_check;

pub mod config_check;
pub mod explain;
pub mod log;
pub mod named_store;
pub mod notify;
pub mod pause;
pub mod run;
pub mod setup;
pub mod status;

//! Daily work by a configuration. The crate `varve-daily` does it; these commands ask and print.

mod run_printer;
mod status_plugin;

pub mod config_check;
pub mod explain;
pub mod log;
pub mod named_store;
pub mod notify;
pub mod pause;
pub mod run;
pub mod setup;
pub mod status;

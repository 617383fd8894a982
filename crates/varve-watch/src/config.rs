//! The configuration: TOML files, merged, read into settings.

pub mod config_error;
pub mod daily_config;
pub mod freeze;
pub mod notify;
pub mod place;
pub mod secrets;
pub mod source_text;

mod entries;
mod merge;
mod reader;
mod reading;
mod tree;

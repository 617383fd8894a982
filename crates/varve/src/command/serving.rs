//! Reaching snapshots and blocks from other programs.

pub mod attach;
pub mod boot;
pub mod mount;
pub mod serve;
pub mod venti_sessions;
pub mod web_password;

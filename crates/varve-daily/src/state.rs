//! The state folder of a configuration, and what is in it.

mod logged_job;
mod notice_state;
mod state_folder;

pub use logged_job::{ForgottenSnapshot, LoggedJob};
pub use notice_state::NoticeState;
pub use state_folder::{RunLock, StateFolder, WorkingRun};

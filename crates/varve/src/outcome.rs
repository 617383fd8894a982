//! The outcome of a command that ran to its end.

use std::error::Error;

use crate::exit_status;

/// The variants are in order from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandOutcome {
    Done,
    /// Nothing was due, or nothing was allowed to run.
    NothingDone,
    /// The work is done, but something is missing, such as an unreadable file.
    Gaps,
    /// A promise of the configuration is broken.
    PromiseBroken,
    /// Another writer held a store for too long.
    Locked,
    /// A part of the work failed, and was reported.
    Failed,
    /// Damage was found: stored bytes are lost or changed.
    Damage,
}

impl CommandOutcome {
    /// Returns the outcome of a command that met this error and continued.
    pub fn of_problem(error: &(dyn Error + 'static)) -> Self {
        if exit_status::is_damage(error) { Self::Damage } else { Self::Gaps }
    }

    /// Returns the exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Done => exit_status::DONE,
            Self::NothingDone => exit_status::NOTHING_DONE,
            Self::Gaps => exit_status::GAPS,
            Self::PromiseBroken => exit_status::PROMISE_BROKEN,
            Self::Locked => exit_status::LOCKED,
            Self::Failed => exit_status::FAILED,
            Self::Damage => exit_status::DAMAGE,
        }
    }
}

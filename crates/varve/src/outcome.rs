//! The outcome of a command that ran to its end.

use std::error::Error;

use varve_daily::JobOutcome;

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
    /// The answer to a monitoring program, which has exit statuses of its own.
    PluginAnswer(PluginState),
}

/// The state of a plugin of a monitoring program, with the exit statuses of the Monitoring Plugins
/// Guidelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginState {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    Unknown = 3,
}

impl CommandOutcome {
    /// Returns the outcome of a command that met this error and continued.
    pub fn of_problem(error: &(dyn Error + 'static)) -> Self {
        if exit_status::is_damage(error) { Self::Damage } else { Self::Gaps }
    }

    /// Returns the outcome of a run whose worst job ended so.
    pub fn of_job(outcome: JobOutcome) -> Self {
        match outcome {
            JobOutcome::Done => Self::Done,
            JobOutcome::Gaps => Self::Gaps,
            JobOutcome::Locked => Self::Locked,
            JobOutcome::Failed => Self::Failed,
            JobOutcome::Damage => Self::Damage,
        }
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
            Self::PluginAnswer(state) => state as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_understands_the_status_of_each_of_its_jobs() {
        for (outcome, status) in JobOutcome::STATUSES {
            assert_eq!(CommandOutcome::of_job(outcome).status(), status);
        }
    }
}

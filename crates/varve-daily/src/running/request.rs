//! The request for a run, and its end.

use std::path::PathBuf;

use anyhow::{Result, bail};
use varve_session::UsageError;
use varve_world::{Clock, RealClock};

use super::job_end::JobOutcome;
use crate::jobs::{DailyJob, Histories, JobDecision, clock_obstacle, decide};
use crate::loaded_config::LoadedConfig;

/// The request for a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The sources that are archived now, whatever the conditions are; none for all jobs that are
    /// due.
    pub sources: Vec<String>,
    /// The folder with the state of the machine: `/`, but for tests.
    pub system_root: PathBuf,
}

impl RunRequest {
    /// Reports whether sources were named.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        !self.sources.is_empty()
    }

    pub(super) fn require_known_sources(&self, loaded: &LoadedConfig) -> Result<()> {
        for name in &self.sources {
            if !loaded.config.sources.contains_key(name) {
                let known: Vec<_> = loaded.config.sources.keys().map(String::as_str).collect();
                bail!(UsageError(format!("there is no source {name}: known are {}", known.join(", "))));
            }
        }
        Ok(())
    }

    /// Decides about a job now. A store that does not open is an error of the job itself.
    pub(super) fn decide(
        &self,
        job: &DailyJob<'_>,
        loaded: &LoadedConfig,
        histories: &Histories,
    ) -> JobDecision {
        let decision = match self.is_by_hand() {
            true => JobDecision::named_by_hand(),
            false => decide(job, histories, &self.system_root, RealClock.now()),
        };
        match decision.runs {
            true => decision.unless(clock_obstacle(loaded, job).ok().flatten()),
            false => decision,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd {
    /// The worst outcome of its jobs.
    pub outcome: JobOutcome,
    /// The number of jobs that ran.
    pub job_count: usize,
}

impl RunEnd {
    pub(super) const fn idle() -> Self {
        Self { outcome: JobOutcome::Done, job_count: 0 }
    }
}

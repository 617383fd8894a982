//! The request for a run, and its end.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use varve_session::UsageError;
use varve_world::{Clock, RealClock};

use super::job_end::JobOutcome;
use crate::jobs::{DailyJob, Histories, JobDecision, JobKind, clock_obstacle, decide, jobs};
use crate::loaded_config::LoadedConfig;

/// The request for a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The names of jobs that run now, due or not, and whatever the conditions are; none for all
    /// jobs that are due.
    pub names: Vec<String>,
    /// The folder with the state of the machine: `/`, but for tests.
    pub system_root: PathBuf,
}

impl RunRequest {
    /// Reports whether jobs were named.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns the named jobs, or all jobs.
    ///
    /// # Errors
    /// A usage error when a name means no job.
    pub(super) fn chosen<'a>(&self, loaded: &'a LoadedConfig) -> Result<Vec<DailyJob<'a>>> {
        let mut all = jobs(loaded);
        for name in &self.names {
            if !all.iter().any(|job| job.is_called(name, &loaded.config)) {
                let kinds = all.iter().filter(|job| job.kind > JobKind::Replicate);
                let kinds: BTreeSet<_> = kinds.map(|job| job.kind.verb()).collect();
                let subjects: BTreeSet<_> = all.iter().map(|job| job.subject).collect();
                let known: Vec<_> = subjects.into_iter().chain(kinds).collect();
                bail!(UsageError(format!("no job is called {name}: known are {}", known.join(", "))));
            }
        }
        let is_named = |job: &DailyJob<'_>| self.names.iter().any(|name| job.is_called(name, &loaded.config));
        all.retain(|job| !self.is_by_hand() || is_named(job));
        Ok(all)
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

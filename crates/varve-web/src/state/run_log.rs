//! The runs of daily work on this machine, as they are noted in its state folder.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use varve_daily::{LoadedConfig, LoggedJob, StateFolder, is_series_of, jobs};

use super::served_store::ServedStore;

/// The outcomes that need no attention.
const GOOD: [&str; 2] = ["done", "postponed"];
/// The newest lines in which the last run of each job is looked for.
const LINES_MAX: usize = 5_000;

/// The run log of a configuration.
pub(crate) struct RunLog {
    loaded: LoadedConfig,
    folder: StateFolder,
}

impl RunLog {
    /// Opens the run log; `None` if there is no configuration.
    pub(crate) fn of(store: &ServedStore) -> Result<Option<Self>> {
        let loaded = LoadedConfig::load_if_there(store.config.as_deref(), store.user.clone())?;
        let open = |loaded: LoadedConfig| Self { folder: StateFolder::to_read(&loaded.state), loaded };
        Ok(loaded.map(open))
    }

    /// The jobs of past runs, the newest first.
    pub(crate) fn newest(&self) -> Result<impl Iterator<Item = LoggedJob> + use<>> {
        let read = self.folder.newest_logged();
        read.with_context(|| format!("the run log in {} cannot be read", self.folder.path().display()))
    }

    /// The jobs that make and try the snapshots of a series, if this machine does it.
    pub(crate) fn jobs_of_series(&self, host: &str, name: &str) -> BTreeSet<String> {
        let config = &self.loaded.config;
        let own = config.sources.iter().filter(|_| host == self.loaded.host);
        let own = own.filter(|(source, what)| is_series_of(config, (source, what), name));
        own.flat_map(|(source, _)| ["snapshot", "drill"].map(|verb| format!("{verb} {source}"))).collect()
    }

    /// The last run of each job that the configuration still has, if it was not good. The newest
    /// comes first.
    pub(crate) fn failing(&self) -> Result<Vec<LoggedJob>> {
        let mut open: BTreeSet<String> = jobs(&self.loaded).iter().map(|job| job.id()).collect();
        let mut lines = self.newest()?.take(LINES_MAX);
        let mut failing = Vec::new();
        while !open.is_empty()
            && let Some(line) = lines.next()
        {
            if line.outcome != "postponed" && open.remove(&line.job) && is_bad(&line) {
                failing.push(line);
            }
        }
        Ok(failing)
    }
}

/// Reports whether a job needs attention.
pub(crate) fn is_bad(line: &LoggedJob) -> bool {
    !GOOD.contains(&line.outcome.as_str())
}

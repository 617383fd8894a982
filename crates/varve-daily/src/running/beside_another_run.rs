//! The end of a run that finds another one at work.

use anyhow::{Result, anyhow, bail};
use varve_session::{Hinted, moment};

use super::observer::RunObserver;
use super::request::{RunEnd, RunRequest};
use super::run_notices::{after_run, is_time_beside_a_job};
use crate::loaded_config::LoadedConfig;
use crate::state::{StateFolder, WorkingRun};

/// Ends a run that finds another one at work. The promises are judged all the same: the other run
/// may wait for a server that never answers.
///
/// # Errors
/// When jobs were named: they are not done.
pub(super) fn end_beside(
    loaded: &LoadedConfig,
    state: &StateFolder,
    request: &RunRequest,
    observer: &dyn RunObserver,
) -> Result<RunEnd> {
    let working = state.working_run();
    let mut text = "another run of this configuration is at work".to_owned();
    if let Some(WorkingRun { since, job }) = &working {
        text.push_str(&format!(" since {}", moment::show(*since)));
        text.extend(job.iter().map(|job| format!(", now with {job}")));
    }
    if request.is_by_hand() {
        bail!(Hinted::new(anyhow!(text), "run it again when that run has ended"));
    }
    observer.notice(&text);
    if working.is_none_or(|working| is_time_beside_a_job(state, working.since)) {
        after_run(loaded, state, &state.histories(), false, observer);
    }
    Ok(RunEnd::idle())
}

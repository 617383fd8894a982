//! The end of a run that finds another one at work.

use anyhow::{Result, anyhow, bail};
use varve_session::Hinted;

use super::config_file::LoadedConfig;
use super::notify;
use super::state_folder::{StateFolder, WorkingRun};
use crate::arguments::RunArgs;
use crate::invocation::Invocation;
use crate::moment;
use crate::outcome::CommandOutcome;

/// Ends a run that finds another one at work. The promises are judged all the same: the other run
/// may wait for a server that never answers.
pub fn end(
    invocation: &Invocation,
    loaded: &LoadedConfig,
    state: &StateFolder,
    args: &RunArgs,
) -> Result<CommandOutcome> {
    let working = state.working_run();
    let mut text = "another run of this configuration is at work".to_owned();
    if let Some(WorkingRun { since, job }) = &working {
        text.push_str(&format!(" since {}", moment::show(*since)));
        text.extend(job.iter().map(|job| format!(", now with {job}")));
    }
    if !args.sources.is_empty() {
        bail!(Hinted::new(anyhow!(text), "run it again when that run has ended"));
    }
    if !invocation.quiet {
        notice!("{text}");
    }
    if working.is_none_or(|working| notify::is_time_beside_a_job(state, working.since)) {
        notify::after_run(invocation, loaded, state, &state.histories(), false);
    }
    Ok(if args.or_fail { CommandOutcome::NothingDone } else { CommandOutcome::Done })
}

//! `varve run --dry-run`

use anyhow::Result;
use varve_world::{Clock, RealClock};

use super::config_file::LoadedConfig;
use super::jobs::jobs;
use super::known_time;
use super::sentences::{JobDecision, decide, title};
use super::state_folder::StateFolder;
use crate::arguments::RunArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say};

/// Lists all chosen jobs, with the decision about each and its reason.
pub(super) fn dry_run(
    invocation: &Invocation,
    loaded: &LoadedConfig,
    args: &RunArgs,
) -> Result<CommandOutcome> {
    let state = StateFolder::to_read(&loaded.state);
    let mut histories = state.histories();
    histories.refresh(invocation, loaded);
    let now = RealClock.now();
    let mut run_count = 0;
    for job in jobs(loaded).iter().filter(|job| job.is_chosen(args)) {
        let mut decision = match args.sources.is_empty() {
            true => decide(job, &histories, &args.system_root, now),
            false => JobDecision::named_by_hand(),
        };
        if let Some(until) = state.paused_until(now).filter(|_| decision.runs && args.sources.is_empty()) {
            decision.runs = false;
            decision.reason = format!("daily work is paused until {}", moment::show(until));
        }
        if decision.runs {
            decision = decision.unless(known_time::obstacle(invocation, loaded, job).ok().flatten());
        }
        run_count += usize::from(decision.runs);
        if invocation.json {
            say::record("planned_job", decision.as_json(job));
        } else {
            let next =
                decision.next.map(|next| format!("; next at {}", moment::show(next))).unwrap_or_default();
            let verb = if decision.runs { "would run" } else { "would not run" };
            say!("{}: {verb}: {}{next}", title(job), decision.reason);
        }
    }
    Ok(if args.or_fail && run_count == 0 { CommandOutcome::NothingDone } else { CommandOutcome::Done })
}

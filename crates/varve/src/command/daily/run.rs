//! `varve run`

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use varve_daily::{DailyJob, JobDecision, LoadedConfig, RunRequest, planned_jobs, run_due_jobs};
use varve_session::Interrupted;
use varve_world::{Clock, RealClock};

use super::run_printer::RunPrinter;
use crate::arguments::RunArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{complaint, moment, say, signals};

/// The time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(invocation: &Invocation, args: &RunArgs) -> Result<CommandOutcome> {
    let Some(pause) = args.watch else { return run_once(invocation, args) };
    signals::watch()?;
    loop {
        match run_once(invocation, args) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => complaint::print(&error),
            Ok(_) => {}
        }
        let begun = RealClock.now();
        while RealClock.now().since(begun) < pause {
            if signals::stop_signal().wait(LOOK) {
                bail!(Interrupted("interrupted: what is due is done by the next run"));
            }
        }
    }
}

fn run_once(invocation: &Invocation, args: &RunArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    let request = RunRequest { names: args.jobs.clone(), system_root: args.system_root.clone() };
    if args.dry_run {
        let planned = planned_jobs(&loaded, &request)?;
        planned.iter().for_each(|(job, decision)| print_planned(invocation, job, decision));
        let has_work = planned.iter().any(|(_, decision)| decision.runs);
        return Ok(if args.or_fail && !has_work {
            CommandOutcome::NothingDone
        } else {
            CommandOutcome::Done
        });
    }
    let end = run_due_jobs(&loaded, &request, &RunPrinter(invocation))?;
    let outcome = CommandOutcome::of_job(end.outcome);
    Ok(match end.job_count {
        0 if args.or_fail && outcome == CommandOutcome::Done => CommandOutcome::NothingDone,
        _ => outcome,
    })
}

fn print_planned(invocation: &Invocation, job: &DailyJob<'_>, decision: &JobDecision) {
    if invocation.json {
        return say::record("planned_job", decision_as_json(job, decision));
    }
    let next = decision.next.map(|next| format!("; next at {}", moment::show(next))).unwrap_or_default();
    let verb = if decision.runs { "would run" } else { "would not run" };
    say!("{}: {verb}: {}{next}", job.title(), decision.reason);
}

/// Returns a decision for programs.
pub(super) fn decision_as_json(job: &DailyJob<'_>, decision: &JobDecision) -> Value {
    json!({
        "job": job.id(),
        "runs": decision.runs,
        "postponed": decision.is_postponed,
        "reason": decision.reason,
        "next": decision.next.map(moment::rfc3339),
    })
}

//! `varve explain`

use anyhow::{Result, bail};
use varve_daily::{
    DailyJob, Histories, LoadedConfig, LoggedJob, ReplicaTrigger, StateFolder, decide, jobs, show_time_span,
};
use varve_session::UsageError;
use varve_world::{Clock, RealClock};

use super::run::decision_as_json;
use super::run_printer::as_json;
use crate::arguments::ExplainArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say};

pub fn run(invocation: &Invocation, args: &ExplainArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    let all = jobs(&loaded);
    let own: Vec<_> = all.iter().filter(|job| job.subject == args.subject).collect();
    if own.is_empty() {
        let known: Vec<_> = all.iter().map(|job| job.subject).collect();
        bail!(UsageError(format!("{} is none of {}", args.subject, known.join(", "))));
    }
    let state = StateFolder::to_read(&loaded.state);
    let mut histories = state.histories();
    histories.refresh(&loaded);
    for job in own {
        explain(invocation, job, &histories, &state);
    }
    Ok(CommandOutcome::Done)
}

fn explain(invocation: &Invocation, job: &DailyJob<'_>, histories: &Histories, state: &StateFolder) {
    let now = RealClock.now();
    let decision = decide(job, histories, std::path::Path::new("/"), now);
    let last = state.last_logged(&job.id());
    if invocation.json {
        let mut value = decision_as_json(job, &decision);
        value["last"] = last.map(|last| as_json(&last)).unwrap_or_default();
        return say::record("explained_job", value);
    }
    say!("{}", job.title());
    let rhythm = match (&job.timetable, job.replica.map(|replica| &replica.trigger)) {
        (None, Some(ReplicaTrigger::Present)) => "whenever its folder is there".to_owned(),
        (Some(timetable), _) => {
            let period = timetable.period(now);
            format!("{}; the last time was {}", timetable.every(), moment::show(period.start))
        }
        (None, _) => String::new(),
    };
    say!("  runs {rhythm}");
    let conditions = job.conditions.to_string();
    if !conditions.is_empty() {
        let late = job.conditions.at_the_latest.map(show_time_span);
        let late = late.map(|late| format!(", or once its last success is {late} old")).unwrap_or_default();
        say!("  {conditions}{late}");
    }
    let next = decision.next.map(|next| format!("; next at {}", moment::show(next))).unwrap_or_default();
    say!("  {}{next}", decision.reason);
    if let Some(last) = last {
        let time = last.began().map_or_else(|| last.time.clone(), moment::show);
        let LoggedJob { outcome, message, .. } = last;
        let message = message.map(|message| format!(": {message}")).unwrap_or_default();
        say!("  last logged: {time} {outcome}{message}");
    }
}

//! `varve log`: the jobs of past runs.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use varve_daily::{LoadedConfig, LoggedJob, StateFolder, jobs};
use varve_session::UsageError;

use super::run_printer::as_json;
use crate::arguments::LogArgs;
use crate::colour::{Tone, paint};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// The number of newest jobs that are listed without `--since`.
const JOBS_MAX: usize = 50;
const HEADINGS: [&str; 8] = ["when", "job", "outcome", "took", "size", "new", "stored", "snapshot"];

pub fn run(invocation: &Invocation, args: &LogArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    let state = StateFolder::to_read(&loaded.state);
    let mut logged = VecDeque::new();
    let mut is_named = args.subject.is_none();
    for line in state.logged() {
        let is_of_subject = args.subject.as_ref().is_none_or(|subject| line.subject() == subject);
        is_named |= is_of_subject;
        if is_of_subject && is_requested(args, &line) {
            logged.push_back(line);
            if args.since.is_none() && logged.len() > JOBS_MAX {
                logged.pop_front();
            }
        }
    }
    if let Some(subject) = args.subject.as_ref().filter(|_| !is_named) {
        let jobs = jobs(&loaded);
        if jobs.iter().all(|job| job.subject != subject) {
            let known: Vec<_> = jobs.iter().map(|job| job.subject).collect();
            bail!(UsageError(format!("{subject} is none of {}", known.join(", "))));
        }
    }
    if invocation.json {
        logged.into_iter().for_each(|line| say::record("job", as_json(&line)));
    } else if logged.is_empty() {
        notice!("no job of a run is noted in {}", state.path().display());
    } else {
        print(logged);
    }
    Ok(CommandOutcome::Done)
}

fn is_requested(args: &LogArgs, line: &LoggedJob) -> bool {
    let time = line.began();
    let is_late = args.since.is_none_or(|since| time.is_some_and(|time| time >= since));
    let is_early = args.until.is_none_or(|until| time.is_some_and(|time| time <= until));
    let is_bad = !matches!(line.outcome.as_str(), "done" | "postponed");
    is_late && is_early && (!args.failed || is_bad)
}

fn print(logged: impl IntoIterator<Item = LoggedJob>) {
    let mut table = show::table(&HEADINGS, &[3, 4, 5, 6]);
    let mut notes = Vec::new();
    for line in logged {
        let bytes = |figure: Option<u64>| figure.map(show::bytes).unwrap_or_default();
        table.add_row([
            line.began().map_or_else(|| line.time.clone(), moment::show),
            show::name(line.job.as_bytes()),
            line.outcome.clone(),
            line.seconds.map(show::seconds).unwrap_or_default(),
            bytes(line.size),
            bytes(line.new_bytes),
            bytes(line.stored_bytes),
            show::short_id(line.snapshot.as_deref().unwrap_or_default()).to_owned(),
        ]);
        let tone = match line.outcome.as_str() {
            "done" | "postponed" => None,
            "gaps" | "locked" => Some(Tone::Doubtful),
            _ => Some(Tone::Bad),
        };
        notes.push((tone, line.message.as_deref().map(show::plain)));
    }
    let (heading, rows) = show::heading_and_rows(&table);
    list!("{heading}");
    for (row, (tone, message)) in rows.into_iter().zip(notes) {
        list!("{}", tone.map_or_else(|| row.clone(), |tone| paint(&row, tone)));
        for part in message.iter().flat_map(|message| message.lines()) {
            list!("  {part}");
        }
    }
}

//! `varve log`: the jobs of past runs.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use varve_session::UsageError;
use varve_world::Timestamp;

use super::config_file::LoadedConfig;
use super::jobs::jobs;
use super::state_folder::StateFolder;
use crate::arguments::LogArgs;
use crate::colour::{Tone, paint};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// The number of newest jobs that are listed without `--since`.
const JOBS_MAX: usize = 50;
const HEADINGS: [&str; 8] = ["when", "job", "outcome", "took", "size", "new", "stored", "snapshot"];

pub fn run(invocation: &Invocation, args: &LogArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    let state = StateFolder::to_read(&loaded.state);
    let mut logged = VecDeque::new();
    let mut is_named = args.subject.is_none();
    for line in state.logged() {
        let is_of_subject = args.subject.as_ref().is_none_or(|subject| subject_of(&line) == subject);
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
        logged.into_iter().for_each(|line| say::record("job", whole(line)));
    } else if logged.is_empty() {
        notice!("no job of a run is noted in {}", state.path().display());
    } else {
        print(logged);
    }
    Ok(CommandOutcome::Done)
}

/// Returns the source, replica or store of a logged job.
fn subject_of(line: &Value) -> &str {
    let job = line["job"].as_str().unwrap_or_default();
    job.split_once(' ').map_or("", |(_, subject)| subject)
}

fn is_requested(args: &LogArgs, line: &Value) -> bool {
    let time = time_of(line);
    let is_late = args.since.is_none_or(|since| time.is_some_and(|time| time >= since));
    let is_early = args.until.is_none_or(|until| time.is_some_and(|time| time <= until));
    let is_bad = !matches!(line["outcome"].as_str(), Some("done" | "postponed"));
    is_late && is_early && (!args.failed || is_bad)
}

fn time_of(line: &Value) -> Option<Timestamp> {
    moment::parse_exact(line["time"].as_str()?)
}

/// Adds the fields that earlier versions, or jobs of other kinds, have not written.
fn whole(mut line: Value) -> Value {
    for field in ["seconds", "snapshot", "size", "new_bytes", "stored_bytes", "message"] {
        // An absent field reads as null.
        line[field] = line[field].take();
    }
    if !line["forgotten"].is_array() {
        line["forgotten"] = json!([]);
    }
    line
}

fn print(logged: impl IntoIterator<Item = Value>) {
    let mut table = show::table(&HEADINGS, &[3, 4, 5, 6]);
    let mut notes = Vec::new();
    for line in logged {
        let text = |field: &str| line[field].as_str().unwrap_or_default();
        let bytes = |field: &str| line[field].as_u64().map(show::bytes).unwrap_or_default();
        let took = line["seconds"].as_f64().map(show::seconds).unwrap_or_default();
        table.add_row([
            time_of(&line).map_or_else(|| text("time").to_owned(), moment::show),
            show::name(text("job").as_bytes()),
            text("outcome").to_owned(),
            took,
            bytes("size"),
            bytes("new_bytes"),
            bytes("stored_bytes"),
            show::short_id(text("snapshot")).to_owned(),
        ]);
        let tone = match line["outcome"].as_str() {
            Some("done" | "postponed") => None,
            Some("gaps" | "locked") => Some(Tone::Doubtful),
            _ => Some(Tone::Bad),
        };
        notes.push((tone, line["message"].as_str().map(show::plain)));
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

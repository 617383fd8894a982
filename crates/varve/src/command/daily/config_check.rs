//! `varve config check`: says in sentences what a configuration means.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::tz::TimeZone;
use serde_json::json;
use varve_daily::{
    ConfiguredSource, DailyJob, FreezeKind, JobKind, LoadedConfig, SourceWhat, StoreFacts, distrusted_files,
    jobs, look_around, unfulfillable, would_forget,
};
use varve_session::target;
use varve_world::{Clock, RealClock, Timestamp};

use crate::arguments::{ConfigCheckArgs, ConfigCommand};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, command: &ConfigCommand) -> Result<CommandOutcome> {
    let ConfigCommand::Check(args) = command;
    check(invocation, args)
}

fn check(invocation: &Invocation, args: &ConfigCheckArgs) -> Result<CommandOutcome> {
    let loaded =
        LoadedConfig::load(args.file.as_deref().or(args.named.config.as_deref()), invocation.frontend())?;
    let now = RealClock.now();
    let files: Vec<_> = loaded.files.iter().map(|file| file.display().to_string()).collect();
    let world = look_around(&loaded);
    let distrusted = distrusted_files(&loaded.config);
    let warnings = [unfulfillable(&loaded.config), distrusted, world.warnings].concat();
    let all = jobs(&loaded);
    let forgets = forgets_today(&loaded, &world.facts, now);
    let outcome = if world.faults.is_empty() { CommandOutcome::Done } else { CommandOutcome::Failed };
    if invocation.json {
        let jobs = all.iter().map(|job| {
            let next: Vec<_> = next_times(job, now).into_iter().map(moment::rfc3339).collect();
            json!({ "job": job.id(), "sentence": sentence(job), "next": next, "would_forget": forgets.get(&job.id()).map(|(count, _)| count) })
        });
        let value = json!({ "files": files, "state": loaded.state.display().to_string(), "zone": zone_name(&loaded.zone), "jobs": jobs.collect::<Vec<_>>(), "faults": world.faults, "warnings": warnings });
        say::record("config", value);
        return Ok(outcome);
    }
    match world.faults.is_empty() {
        true => say!("{} is good", files.join(" with ")),
        false => say!("{} is well-formed, but names things that are not there", files.join(" with ")),
    }
    for job in &all {
        say!("{}", sentence(job));
        let next: Vec<_> = next_times(job, now).into_iter().map(moment::show).collect();
        if !next.is_empty() {
            say!("  next: {}", next.join(", "));
        }
        if let Some((count, total)) = forgets.get(&job.id()) {
            say!("  today its rules would forget {count} of {}", show::count(*total, "snapshot"));
        }
    }
    let whose = if loaded.config.zone.is_some() { "time-zone" } else { "this machine" };
    say!("all days and times are those of {} ({whose})", zone_name(&loaded.zone));
    for text in world.faults.iter().chain(&warnings) {
        warning!("{text}");
    }
    Ok(outcome)
}

/// Returns the name of a zone; if it has none, its present distance from UTC.
fn zone_name(zone: &TimeZone) -> String {
    let offset = || format!("UTC{}", jiff::Timestamp::now().to_zoned(zone.clone()).offset());
    let name = zone.iana_name().filter(|_| !zone.is_unknown());
    name.map_or_else(offset, str::to_owned)
}

/// Returns for each snapshot job with rules how many snapshots they would forget, and of how many.
/// Sources whose store cannot be read are left out.
fn forgets_today(
    loaded: &LoadedConfig,
    facts: &BTreeMap<String, StoreFacts>,
    now: Timestamp,
) -> BTreeMap<String, (usize, usize)> {
    let counts = |job: &DailyJob<'_>| {
        let source = job.source.filter(|source| !source.keep.is_empty() && job.kind == JobKind::Snapshot)?;
        let counts = would_forget(loaded, job.subject, source, facts.get(job.store_name)?, now);
        Some((job.id(), counts))
    };
    jobs(loaded).iter().filter_map(counts).collect()
}

fn next_times(job: &DailyJob<'_>, now: Timestamp) -> Vec<Timestamp> {
    job.timetable.as_ref().map(|timetable| timetable.next_boundaries(now, 3)).unwrap_or_default()
}

/// Says what a job does, and when.
fn sentence(job: &DailyJob<'_>) -> String {
    let rhythm = match &job.timetable {
        Some(timetable) => timetable.every().to_string(),
        None => "whenever its folder is there and the store has something new".to_owned(),
    };
    let what = match (job.kind, job.source, job.replica) {
        (JobKind::Snapshot, Some(source), _) => {
            format!(
                "{} goes into the store {} ({}) as {}",
                what(source),
                job.store_name,
                target::shown(&job.store.at),
                job.subject
            )
        }
        (JobKind::Replicate, _, Some(replica)) => {
            format!(
                "the store {} is copied to {} ({})",
                job.store_name,
                job.subject,
                target::shown(&replica.at)
            )
        }
        _ => job.title(),
    };
    let freeze = job.source.filter(|_| job.kind == JobKind::Snapshot).and_then(|source| source.freeze);
    let what = match freeze {
        Some(FreezeKind::Btrfs) => format!("{what}, frozen by Btrfs,"),
        Some(FreezeKind::Lvm) => format!("{what}, frozen by LVM,"),
        None => what,
    };
    let conditions = job.conditions.to_string();
    let conditions = if conditions.is_empty() { conditions } else { format!(", {conditions}") };
    let source = job.source.filter(|_| job.kind == JobKind::Snapshot);
    let keep = source.map(keep_sentence).unwrap_or_default();
    format!("{what} {rhythm}{conditions}{keep}")
}

fn what(source: &ConfiguredSource) -> String {
    match &source.what {
        SourceWhat::Folder(path) => format!("the folder {}", path.display()),
        SourceWhat::File(path) => format!("the file {}", path.display()),
        SourceWhat::Disk(path) => format!("the disk {}", path.display()),
        SourceWhat::Machine(path) => format!("the machine at {}", path.display()),
        SourceWhat::Command { program, .. } => {
            format!("the output of {}", show::name(program.join(" ").as_bytes()))
        }
    }
}

fn keep_sentence(source: &ConfiguredSource) -> String {
    if source.keep.is_empty() {
        return "; all of its snapshots are kept".to_owned();
    }
    let rules: Vec<_> = source
        .keep
        .iter()
        .map(|rule| format!("{} {}", rule.value(), rule.key().trim_start_matches("keep_")))
        .collect();
    format!("; kept are {}", rules.join(", "))
}

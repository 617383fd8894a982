//! `varve config check`: says in sentences what a configuration means.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use jiff::tz::TimeZone;
use serde_json::json;
use varve_daily::StoreFacts;
use varve_session::target;
use varve_watch::{ConfiguredSource, DailyConfig, FreezeKind, ReplicaTrigger, SourceWhat, show_time_span};
use varve_world::{Clock, RealClock, Timestamp};

use super::config_file::LoadedConfig;
use super::distrusted_files::distrusted_files;
use super::jobs::{DailyJob, JobKind, jobs};
use super::retention;
use super::sentences::title;
use super::world_check;
use crate::arguments::{ConfigCheckArgs, ConfigCommand};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, command: &ConfigCommand) -> Result<CommandOutcome> {
    let ConfigCommand::Check(args) = command;
    check(invocation, args)
}

fn check(invocation: &Invocation, args: &ConfigCheckArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.as_deref().or(args.named.config.as_deref()))?;
    retention::check_rules(&loaded)?;
    let now = RealClock.now();
    let files: Vec<_> = loaded.files.iter().map(|file| file.display().to_string()).collect();
    let world = world_check::look(invocation, &loaded);
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
        let counts = retention::would_forget(loaded, job.subject, source, facts.get(job.store_name)?, now);
        Some((job.id(), counts.ok()?))
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
        _ => title(job),
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
        .map(|(rule, value)| format!("{value} {}", rule.trim_start_matches("keep-")))
        .collect();
    format!("; kept are {}", rules.join(", "))
}

/// Lists the promises that the configuration cannot keep, and the rules that nothing applies.
fn unfulfillable(config: &DailyConfig) -> Vec<String> {
    let mut found = Vec::new();
    let limits = &config.promises;
    for (name, source) in &config.sources {
        let limit = source.snapshot_within.or(limits.snapshot_within);
        let longest = source.every.longest() + source.spread;
        if let Some(limit) = limit.filter(|limit| *limit < longest) {
            found.push(format!(
                "snapshot-within {} cannot hold for {name}: it runs {}; give it a snapshot-within of its own",
                show_time_span(limit),
                source.every
            ));
        }
        if !source.keep.is_empty() && config.care.reclaim.is_none() {
            found.push(format!("nothing applies the rules of keep to {name}: [care] has no reclaim"));
        }
        if limit.is_none() {
            found.push(format!(
                "nothing would notice that {name} is not archived: there is no snapshot-within"
            ));
        }
    }
    if let Some(limit) = limits.replica_within {
        if config.replicas.is_empty() {
            found.push("replica-within is about nothing: there is no [replica.NAME]".to_owned());
        }
        for (name, replica) in &config.replicas {
            if let ReplicaTrigger::Every(every) = &replica.trigger
                && every.longest() + replica.spread > limit
            {
                let limit = show_time_span(limit);
                found.push(format!("replica-within {limit} cannot hold for {name}: it is copied {every}"));
            }
        }
    }
    match (&config.care.verify, limits.verified_within) {
        (None, Some(_)) => {
            found.push(
                "verified-within cannot hold: [care] has no verify, so nothing reads the data".to_owned(),
            );
        }
        (Some(verify), Some(limit)) => {
            let whole = full_reading(verify.share.as_deref(), verify.every.longest());
            if whole > limit {
                let (whole, limit) = (show_time_span(whole), show_time_span(limit));
                found.push(format!("verified-within {limit} cannot hold: a full reading takes {whole}"));
            }
        }
        _ => {}
    }
    match (&config.care.drill, limits.drill_within) {
        (None, Some(_)) => {
            found.push("drill-within cannot hold: [care] has no drill, so nothing is restored".to_owned());
        }
        (Some(drill), Some(limit)) if drill.every.longest() + config.care.spread > limit => {
            let limit = show_time_span(limit);
            found.push(format!("drill-within {limit} cannot hold: files are restored {}", drill.every));
        }
        _ => {}
    }
    if limits.reclaimed_within.is_some() && config.care.reclaim.is_none() {
        found.push("reclaimed-within cannot hold: [care] has no reclaim, so nothing is freed".to_owned());
    }
    found
}

/// Returns the time in which all data is read, a share each time.
fn full_reading(share: Option<&str>, every: Duration) -> Duration {
    let percent = share.and_then(|share| share.trim_end_matches('%').parse::<f64>().ok()).unwrap_or(100.0);
    every.mul_f64((100.0 / percent).ceil().clamp(1.0, 1e6))
}

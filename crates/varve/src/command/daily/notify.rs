//! `varve notify`, and the notices at the end of a run.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_block::with_causes;
use varve_daily::StatusReport;
use varve_notify::{Channel, PromiseNotice, Sent};
use varve_session::UsageError;
use varve_watch::{PromiseState, ReportedStates, age};
use varve_world::{Clock, RealClock, Timestamp};

use super::config_file::LoadedConfig;
use super::job_history::Histories;
use super::state_folder::StateFolder;
use super::status::judge_all;
use super::status_metrics;
use crate::arguments::NotifyArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// Promises are judged for notices after each run that did something, and else after this time.
const JUDGE_EVERY: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

pub fn run(invocation: &Invocation, args: &NotifyArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    if !loaded.config.notify.is_set() {
        bail!(UsageError("the configuration has no [notify]".into()));
    }
    if args.test {
        return Ok(test(invocation, &loaded));
    }
    let state = StateFolder::open(&loaded.state)?;
    let failed = send_changes(invocation, &loaded, &state, &state.histories())?;
    Ok(if failed { CommandOutcome::Failed } else { CommandOutcome::Done })
}

/// Sends a notice through each channel, and calls the heartbeat.
fn test(invocation: &Invocation, loaded: &LoadedConfig) -> CommandOutcome {
    let notice = PromiseNotice::test(&loaded.host);
    let mut channels = varve_notify::channels(&loaded.config.notify);
    channels.extend(loaded.config.notify.heartbeat.clone().map(Channel::Heartbeat));
    if channels.is_empty() {
        warning!("[notify] names no channel for notices");
    }
    let sent = varve_notify::send(channels.into_iter().map(|one| (one, notice.clone())).collect());
    let mut outcome = CommandOutcome::Done;
    for Sent { channel, result } in sent {
        if invocation.json {
            let message = result.as_ref().err();
            say::record(
                "notified",
                json!({ "channel": channel, "sent": result.is_ok(), "message": message }),
            );
        }
        match result {
            Ok(()) if invocation.quiet || invocation.json => {}
            Ok(()) => say!("{channel}: sent"),
            Err(error) => {
                warning!("{channel}: {}", show::plain(&error));
                outcome = CommandOutcome::Failed;
            }
        }
    }
    outcome
}

/// Reports whether it is time to judge the promises beside a job that has been at work since
/// `begun`.
pub fn is_time_beside_a_job(state: &StateFolder, begun: Timestamp) -> bool {
    let now = RealClock.now();
    let judged = state.notices().judged.filter(|judged| *judged <= now);
    // The first job of a new configuration has made no snapshot yet.
    age(judged.unwrap_or(begun).max(begun), now) >= JUDGE_EVERY
}

/// Judges the promises at the end of a run, if that is time, and sends what has changed.
pub fn after_run(
    invocation: &Invocation,
    loaded: &LoadedConfig,
    state: &StateFolder,
    histories: &Histories,
    has_done_something: bool,
) {
    if !loaded.config.notify.is_set() {
        return;
    }
    let now = RealClock.now();
    let judged = state.notices().judged.filter(|judged| *judged <= now);
    if !has_done_something && judged.is_some_and(|judged| age(judged, now) < JUDGE_EVERY) {
        return;
    }
    // The jobs have ended as they have, whatever becomes of notices.
    if let Err(error) = send_changes(invocation, loaded, state, histories) {
        warning!("notices: {}", with_causes(error.as_ref()));
    }
}

/// Judges the promises, and sends what has changed. Returns true if a channel failed: it is told
/// the same the next time.
fn send_changes(
    invocation: &Invocation,
    loaded: &LoadedConfig,
    state: &StateFolder,
    histories: &Histories,
) -> Result<bool> {
    let Some(_lock) = state.try_lock_notices()? else {
        // The other process reports the same.
        return Ok(false);
    };
    let config = &loaded.config.notify;
    let report = judge_all(invocation, loaded, histories);
    let now = RealClock.now();
    let mut notices = state.notices();
    notices.judged = Some(now);
    let mut has_lost_metrics = false;
    if let Some(file) = &config.metrics_file {
        let page = status_metrics::page(&report, histories, now);
        let written = write_metrics(file, &page);
        // Its disk may be full. The notices say so.
        if let Err(error) = written.with_context(|| format!("{} cannot be written", file.display())) {
            warning!("{}", with_causes(error.as_ref()));
            has_lost_metrics = true;
        }
    }
    let is_weekly =
        config.events.weekly && !notices.weekly.is_some_and(|last| last <= now && age(last, now) < WEEK);
    let mut outgoing = Vec::new();
    for channel in varve_notify::channels(config) {
        let told = notices.told.get(channel.name()).cloned().unwrap_or_default();
        let changed = told.changes(&report.promises, config.events);
        if changed.is_empty() && !is_weekly {
            // States that cause no notice are known all the same.
            notices.told.insert(channel.name().to_owned(), ReportedStates::of(&report.promises));
            continue;
        }
        let describe = if is_weekly { PromiseNotice::report } else { PromiseNotice::new };
        let notice = describe(&loaded.host, &changed, &report.promises, config.has_details);
        outgoing.push((channel, notice));
    }
    if let Some(url) = config.heartbeat.clone().filter(|_| all_kept(&report)) {
        outgoing.push((Channel::Heartbeat(url), PromiseNotice::test(&loaded.host)));
    }
    let mut has_failed = false;
    for Sent { channel, result } in varve_notify::send(outgoing) {
        match result {
            Ok(()) => {
                notices.told.insert(channel.to_owned(), ReportedStates::of(&report.promises));
            }
            Err(error) => {
                has_failed = true;
                warning!("notice by {channel}: {}", show::plain(&error));
                // The log is not needed to send the others.
                let _ = state.log(json!({
                    "time": moment::rfc3339(now),
                    "job": format!("notify {channel}"),
                    "outcome": "failed",
                    "message": error,
                }));
            }
        }
    }
    if is_weekly && !has_failed {
        notices.weekly = Some(now);
    }
    notices.told.remove("heartbeat");
    state.save_notices(&notices)?;
    Ok(has_failed || has_lost_metrics)
}

fn all_kept(report: &StatusReport) -> bool {
    report.promises.iter().all(|promise| promise.state == PromiseState::Kept)
}

/// Replaces the file with the metrics. Prometheus' node exporter may read it.
fn write_metrics(file: &Path, page: &str) -> Result<()> {
    let folder = file.parent().context("it is no file")?;
    let mut written = tempfile::Builder::new().prefix(".varve-metrics-").tempfile_in(folder)?;
    written.write_all(page.as_bytes())?;
    written.as_file().set_permissions(Permissions::from_mode(0o644))?;
    written.persist(file)?;
    Ok(())
}

//! The notices at the end of a run.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use varve_block::with_causes;
use varve_world::{Clock, RealClock, Timestamp};

use super::observer::RunObserver;
use crate::jobs::Histories;
use crate::judging::{ReportedStates, StatusReport};
use crate::loaded_config::LoadedConfig;
use crate::notices::{Channel, PromiseNotice, Sent, channels, send};
use crate::promise::PromiseState;
use crate::state::{LoggedJob, StateFolder};
use crate::status::{judge_all, metrics_page};

/// Promises are judged for notices after each run that did something, and else after this time.
const JUDGE_EVERY: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Reports whether it is time to judge the promises beside a job that has been at work since
/// `begun`.
pub(super) fn is_time_beside_a_job(state: &StateFolder, begun: Timestamp) -> bool {
    let now = RealClock.now();
    let judged = state.notices().judged.filter(|judged| *judged <= now);
    // The first job of a new configuration has made no snapshot yet.
    now.since(judged.unwrap_or(begun).max(begun)) >= JUDGE_EVERY
}

/// Judges the promises at the end of a run, if that is time, and sends what has changed.
pub(super) fn after_run(
    loaded: &LoadedConfig,
    state: &StateFolder,
    histories: &Histories,
    has_done_something: bool,
    observer: &dyn RunObserver,
) {
    if !loaded.config.notify.is_set() {
        return;
    }
    let now = RealClock.now();
    let judged = state.notices().judged.filter(|judged| *judged <= now);
    if !has_done_something && judged.is_some_and(|judged| now.since(judged) < JUDGE_EVERY) {
        return;
    }
    // The jobs have ended as they have, whatever becomes of notices.
    if let Err(error) = send_changes(loaded, state, histories, observer) {
        observer.warning(&format!("notices: {}", with_causes(error.as_ref())));
    }
}

/// Judges the promises, and sends what has changed. Returns true if a channel failed: it is told
/// the same the next time.
///
/// # Errors
/// When the state folder cannot be used.
pub fn send_changes(
    loaded: &LoadedConfig,
    state: &StateFolder,
    histories: &Histories,
    observer: &dyn RunObserver,
) -> Result<bool> {
    let Some(_lock) = state.try_lock_notices()? else {
        // The other process reports the same.
        return Ok(false);
    };
    let config = &loaded.config.notify;
    let report = judge_all(loaded, histories);
    let now = RealClock.now();
    let mut notices = state.notices();
    notices.judged = Some(now);
    let mut has_lost_metrics = false;
    if let Some(file) = &config.metrics_file {
        let written = write_metrics(file, &metrics_page(&report, histories, now));
        // Its disk may be full. The notices say so.
        if let Err(error) = written.with_context(|| format!("{} cannot be written", file.display())) {
            observer.warning(&with_causes(error.as_ref()));
            has_lost_metrics = true;
        }
    }
    let is_weekly =
        config.events.weekly && !notices.weekly.is_some_and(|last| last <= now && now.since(last) < WEEK);
    let mut outgoing = Vec::new();
    for channel in channels(config) {
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
    for Sent { channel, result } in send(outgoing) {
        match result {
            Ok(()) => {
                notices.told.insert(channel.to_owned(), ReportedStates::of(&report.promises));
            }
            Err(error) => {
                has_failed = true;
                observer.warning(&format!("notice by {channel}: {error}"));
                // The log is not needed to send the others.
                let _ = state.log(&LoggedJob::new(now, format!("notify {channel}"), "failed", Some(error)));
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

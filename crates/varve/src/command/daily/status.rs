//! `varve status`: the promises of a configuration, judged from the archive.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use varve_block::with_causes;
use varve_daily::{
    JudgeContext, OpenStoreView, StatusReport, StoreView, WriteOnlyView, judge_store, unread_files,
};
use varve_notify::promise_value;
use varve_session::{CommandSession, StoreLocation};
use varve_watch::{ConfiguredStore, JudgedPromise, PromiseKind, PromiseState, show_time_span};
use varve_world::{Clock, RealClock, RealStorage, Storage, Timestamp};

use super::config_file::{LoadedConfig, has_usual_file};
use super::empty_folders::empty_sources;
use super::job_history::Histories;
use super::open_store;
use super::replica_views;
use super::retention;
use super::server_clocks;
use super::state_folder::StateFolder;
use super::status_metrics;
use super::status_plugin;
use crate::arguments::StatusArgs;
use crate::colour::{Tone, paint};
use crate::invocation::Invocation;
use crate::outcome::{CommandOutcome, PluginState};
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &StatusArgs) -> Result<CommandOutcome> {
    if args.nagios {
        let (state, text) = answer_monitor(invocation, args).unwrap_or_else(|error| {
            (PluginState::Unknown, status_plugin::failed(&with_causes(error.as_ref())))
        });
        say!("{text}");
        return Ok(CommandOutcome::PluginAnswer(state));
    }
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    let state = StateFolder::to_read(&loaded.state);
    let report = judge_all(invocation, &loaded, &state.histories());
    if let Some(until) = state.paused_until(RealClock.now()) {
        warning!("daily work is paused until {}", moment::show(until));
    }
    if args.metrics {
        say!("{}", status_metrics::page(&report, &state.histories(), RealClock.now()).trim_end());
        return Ok(CommandOutcome::Done);
    }
    for note in &report.notes {
        warning!("{note}");
    }
    for promise in &report.promises {
        print(invocation, &state, promise);
    }
    Ok(match (report.has(PromiseState::Broken), report.has(PromiseState::Unknown)) {
        (true, _) => CommandOutcome::PromiseBroken,
        (false, true) => CommandOutcome::Failed,
        (false, false) => CommandOutcome::Done,
    })
}

/// Returns the state of all promises for a monitoring program.
fn answer_monitor(invocation: &Invocation, args: &StatusArgs) -> Result<(PluginState, String)> {
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    let state = StateFolder::to_read(&loaded.state);
    let report = judge_all(invocation, &loaded, &state.histories());
    let pause = state.paused_until(RealClock.now()).map(moment::show);
    Ok(status_plugin::judged(&report.promises, pause.as_deref()))
}

/// Judges all promises of the named configuration, or of the usual one; `None` if there is none.
pub fn judge_named(invocation: &Invocation, named: Option<&Path>) -> Result<Option<StatusReport>> {
    if named.is_none() && !has_usual_file() {
        return Ok(None);
    }
    let loaded = LoadedConfig::load(named)?;
    let histories = StateFolder::to_read(&loaded.state).histories();
    Ok(Some(judge_all(invocation, &loaded, &histories)))
}

/// Uses the time zone of the named configuration, or of the usual one, for the rest of the process.
pub fn use_named_zone(named: Option<&Path>) {
    if named.is_some() || has_usual_file() {
        // A configuration with faults is reported when its promises are judged.
        drop(LoadedConfig::load(named));
    }
}

/// Judges all promises of a configuration. `histories` has the state of replicas that are away now,
/// as earlier runs saw it.
pub fn judge_all(invocation: &Invocation, loaded: &LoadedConfig, histories: &Histories) -> StatusReport {
    let context = JudgeContext {
        config: &loaded.config,
        host: &loaded.host,
        now: RealClock.now(),
        show_moment: moment::show,
    };
    let mut report = StatusReport::default();
    for (name, store) in &loaded.config.stores {
        let view = view(invocation, loaded, histories, (name, store));
        report.merge(judge_store(context, name, &view));
    }
    report
}

/// Looks at a store and its surroundings.
fn view(
    invocation: &Invocation,
    loaded: &LoadedConfig,
    histories: &Histories,
    (name, store): (&str, &ConfiguredStore),
) -> StoreView {
    let clocks = server_clocks::ask(loaded, name);
    let unlooked_for = histories.unlooked_for(loaded, RealClock.now());
    let opened = loaded.session(invocation, store).and_then(|session| {
        let found = open_store::open(&session, store)?;
        Ok((session, found))
    });
    let (session, archive, facts) = match opened {
        Ok((session, Some((archive, facts)))) => (session, archive, facts),
        Ok((_, None)) => {
            let emptied_sources = histories.emptied_sources(&loaded.config);
            let server_clocks = clocks.wait();
            return StoreView::WriteOnly(WriteOnlyView { emptied_sources, server_clocks, unlooked_for });
        }
        Err(error) => return StoreView::Closed { error: with_causes(error.as_ref()) },
    };
    // Replicas are opened only to be judged.
    let is_judged = loaded.config.promises.replica_within.is_some();
    let own = loaded.config.replicas.iter().filter(|(_, replica)| is_judged && replica.of == name);
    let replicas = replica_views::look(&session, histories, own);
    let unread = unread_files(&loaded.config, &loaded.host, name, &archive, &facts);
    let (free_bytes, empty_sources) = (free_bytes(&session), empty_sources(&loaded.config));
    let limit = loaded.config.promises.reclaimed_within;
    let then = limit.map(|limit| time_before(RealClock.now(), limit));
    let overdue = then.map(|then| retention::overdue(loaded, name, &facts, then)).unwrap_or_default();
    let server_clocks = clocks.wait();
    StoreView::Open(Box::new(OpenStoreView {
        facts,
        unread,
        free_bytes,
        empty_sources,
        overdue,
        server_clocks,
        unlooked_for,
        replicas,
    }))
}

fn time_before(now: Timestamp, span: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
}

/// Returns the free bytes of the store's file system; `None` at a server, and if the file system
/// does not tell.
pub fn free_bytes(session: &CommandSession) -> Option<Result<u64, String>> {
    let Ok(StoreLocation::Folder(folder)) = session.home() else { return None };
    let space = RealStorage::new(&folder).free_space().transpose()?;
    Some(space.map(|space| space.free_bytes).map_err(|error| error.to_string()))
}

fn print(invocation: &Invocation, state: &StateFolder, promise: &JudgedPromise) {
    // The run log only adds a reason. It never decides.
    let reason = match (promise.kind, promise.state) {
        (PromiseKind::SnapshotWithin, PromiseState::Broken) => last_failure(state, &promise.subject),
        _ => None,
    };
    if invocation.json {
        let mut value = promise_value(promise, true);
        value["last_failure"] = reason.into();
        return say::record("promise", value);
    }
    if invocation.quiet && promise.state == PromiseState::Kept {
        return;
    }
    let (word, tone) = match promise.state {
        PromiseState::Broken => ("BROKEN", Tone::Bad),
        PromiseState::Unknown => (PromiseState::Unknown.name(), Tone::Doubtful),
        PromiseState::Kept => (PromiseState::Kept.name(), Tone::Good),
    };
    let word = paint(&format!("{word:<8}"), tone);
    let limit = promise.limit.map(show_time_span).unwrap_or_default();
    let detail =
        promise.detail.as_ref().map(|detail| format!(": {}", show::plain(detail))).unwrap_or_default();
    let reason = reason.map(|reason| format!(" (last failure: {reason})")).unwrap_or_default();
    say!(
        "{word} {:<17} {limit:<8} {:<16} {}{detail}{reason}",
        promise.kind.name(),
        promise.subject,
        show::plain(&promise.text)
    );
}

/// Returns the message of the newest attempt at a snapshot, if it failed.
fn last_failure(state: &StateFolder, source: &str) -> Option<String> {
    let line = state.last_logged(&format!("snapshot {source}"))?;
    let has_failed = line["outcome"] != "done" && line["outcome"] != "gaps";
    has_failed.then(|| line["message"].as_str().map(show::plain)).flatten()
}

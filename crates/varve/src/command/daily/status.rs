//! `varve status`: the promises of a configuration, judged from the archive.

use anyhow::Result;
use varve_block::with_causes;
use varve_daily::{
    JudgedPromise, LoadedConfig, PromiseKind, PromiseState, StateFolder, judge_all, metrics_page,
    promise_value, show_time_span,
};
use varve_world::{Clock, RealClock};

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
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    let state = StateFolder::to_read(&loaded.state);
    let report = judge_all(&loaded, &state.histories());
    if let Some(until) = state.paused_until(RealClock.now()) {
        warning!("daily work is paused until {}", moment::show(until));
    }
    if args.metrics {
        say!("{}", metrics_page(&report, &state.histories(), RealClock.now()).trim_end());
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
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    let state = StateFolder::to_read(&loaded.state);
    let report = judge_all(&loaded, &state.histories());
    let pause = state.paused_until(RealClock.now()).map(moment::show);
    Ok(status_plugin::judged(&report.promises, pause.as_deref()))
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
    let has_failed = line.outcome != "done" && line.outcome != "gaps";
    has_failed.then(|| line.message.as_deref().map(show::plain)).flatten()
}

//! `varve status`: the promises of a configuration, judged from the archive.

use anyhow::Result;
use varve_block::with_causes;
use varve_daily::{
    JudgedPromise, LoadedConfig, PromiseKind, PromiseState, StateFolder, depending_text, folded, judge_all,
    metrics_page, promise_value, show_time_span,
};
use varve_world::{Clock, RealClock};

use super::status_plugin;
use crate::arguments::StatusArgs;
use crate::colour::{Tone, paint};
use crate::invocation::Invocation;
use crate::outcome::{CommandOutcome, PluginState};
use crate::{moment, say, show};

/// The width of the first column, with the blank after it.
const STATE_WIDTH: usize = 9;

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
    if invocation.json {
        report.promises.iter().for_each(|promise| print_json(&state, promise));
    } else {
        let told = folded(&report.promises).into_iter();
        told.for_each(|(promise, count)| print(invocation, &state, promise, count));
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

fn print_json(state: &StateFolder, promise: &JudgedPromise) {
    let mut value = promise_value(promise, true);
    value["last_failure"] = last_failure(state, promise).into();
    say::record("promise", value);
}

fn print(invocation: &Invocation, state: &StateFolder, promise: &JudgedPromise, depending_count: usize) {
    if invocation.quiet && promise.state == PromiseState::Kept {
        return;
    }
    let (word, tone) = match promise.state {
        PromiseState::Broken => ("BROKEN", Tone::Bad),
        PromiseState::Unknown => (PromiseState::Unknown.name(), Tone::Doubtful),
        PromiseState::Kept => (PromiseState::Kept.name(), Tone::Good),
    };
    let word = paint(&format!("{word:<0$}", STATE_WIDTH - 1), tone);
    let limit = promise.limit.map(show_time_span).unwrap_or_default();
    let detail =
        promise.detail.as_ref().map(|detail| format!(": {}", show::plain(detail))).unwrap_or_default();
    let reason = last_failure(state, promise);
    let reason = reason.map(|reason| format!(" (last failure: {reason})")).unwrap_or_default();
    let head = format!("{:<17} {limit:<8} {:<16} ", promise.kind.name(), promise.subject);
    let text = format!("{}{detail}{reason}{}", show::plain(&promise.text), depending_text(depending_count));
    let width = show::terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
    let taken = STATE_WIDTH + head.chars().count();
    say!("{word} {head}{}", show::wrapped(&text, taken, STATE_WIDTH, width));
}

/// Returns the message of the newest attempt at the snapshot of a broken promise, if it failed. The
/// run log only adds a reason. It never decides.
fn last_failure(state: &StateFolder, promise: &JudgedPromise) -> Option<String> {
    if promise.kind != PromiseKind::SnapshotWithin || promise.state != PromiseState::Broken {
        return None;
    }
    let line = state.last_logged(&format!("snapshot {}", promise.subject))?;
    let has_failed = line.outcome != "done" && line.outcome != "gaps";
    has_failed.then(|| line.message.as_deref().map(show::plain)).flatten()
}

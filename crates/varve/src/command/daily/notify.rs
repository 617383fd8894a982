//! `varve notify`

use anyhow::{Result, bail};
use serde_json::json;
use varve_daily::{Channel, LoadedConfig, PromiseNotice, Sent, StateFolder, channels, send, send_changes};
use varve_session::UsageError;

use super::run_printer::RunPrinter;
use crate::arguments::NotifyArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &NotifyArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    if !loaded.config.notify.is_set() {
        bail!(UsageError("the configuration has no [notify]".into()));
    }
    if args.test {
        return Ok(test(invocation, &loaded));
    }
    let state = StateFolder::open(&loaded.state)?;
    let failed = send_changes(&loaded, &state, &state.histories(), &RunPrinter(invocation))?;
    Ok(if failed { CommandOutcome::Failed } else { CommandOutcome::Done })
}

/// Sends a notice through each channel, and calls the heartbeat.
fn test(invocation: &Invocation, loaded: &LoadedConfig) -> CommandOutcome {
    let notice = PromiseNotice::test(&loaded.host);
    let mut named = channels(&loaded.config.notify);
    named.extend(loaded.config.notify.heartbeat.clone().map(Channel::Heartbeat));
    if named.is_empty() {
        warning!("[notify] names no channel for notices");
    }
    let sent = send(named.into_iter().map(|one| (one, notice.clone())).collect());
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

//! `varve replicate --drop-superseded`

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use varve_block::with_causes;
use varve_remote::{Object, ObjectLock, Target};
use varve_replica::{DropError, DropPlan, Dropped, NotProven, ReplicateOptions, Replicated, ReplicationPlan};
use varve_session::WithHint;

use super::replication_run::{ReplicationRun, replication_hint};
use super::transfer_progress::TransferProgress;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::{moment, say, show};

/// Prints the objects that would be removed once the plan of the upload is done.
pub(super) fn print_dry_run(
    run: &ReplicationRun<'_>,
    there: &Arc<dyn Target>,
    text: &str,
    plan: &ReplicationPlan,
    age: Duration,
) {
    let plan = DropPlan::new(run.source, there.as_ref(), plan, age);
    print_plan(run, &plan, text, true);
}

/// Removes the earlier generations from a target that was just brought up to date, as `done` tells.
pub(super) fn run(
    run: &ReplicationRun<'_>,
    there: &Arc<dyn Target>,
    text: &str,
    age: Duration,
    done: Replicated,
) -> Result<CommandOutcome> {
    // The replication has changed the listing, and may have superseded more.
    let plan = done.plan_again(run.source, there, &ReplicateOptions::default());
    let plan = DropPlan::new(run.source, there.as_ref(), &plan.with_hint(replication_hint)?, age);
    print_plan(run, &plan, text, false);
    if plan.due.is_empty() {
        return Ok(CommandOutcome::Done);
    }
    let shown = ShownProgress::start("reading back", &run.progress, run.invocation.quiet);
    let mut dropped = Dropped::default();
    let observer = TransferProgress(Arc::clone(&run.progress));
    let done = plan.apply(run.source, run.secret, there, &observer, &mut dropped);
    drop(shown);
    print_dropped(run, &dropped, text);
    done.with_hint(hint)?;
    Ok(outcome_of(&dropped))
}

fn hint(error: &DropError) -> Option<&'static str> {
    match error {
        DropError::StoreDamaged { .. } | DropError::OrderDamaged { .. } => Some(
            "`varve verify` shows the damage, and `varve repair` mends it, also with blocks from the replica",
        ),
        DropError::ReplicaDamaged { .. } => Some(
            "`varve verify --replica TARGET` shows all of them; `varve replicate TARGET` uploads missing objects",
        ),
        _ => None,
    }
}

fn outcome_of(dropped: &Dropped) -> CommandOutcome {
    let is_damage = |reason: &NotProven| {
        matches!(
            reason,
            NotProven::DamagedHere(_) | NotProven::OtherBytes { .. } | NotProven::Unreadable { .. }
        )
    };
    if dropped.kept.iter().any(|(_, reason)| is_damage(reason)) {
        CommandOutcome::Damage
    } else if dropped.kept.is_empty() && dropped.refused.is_empty() && !dropped.is_cancelled {
        CommandOutcome::Done
    } else {
        CommandOutcome::Gaps
    }
}

fn print_plan(run: &ReplicationRun<'_>, plan: &DropPlan, text: &str, is_dry: bool) {
    let objects: Vec<&Object> = plan.due.iter().flat_map(|older| &older.objects).collect();
    if run.invocation.json {
        let waiting = plan.waiting.iter().map(|(older, until)| {
            json!({
                "arena": older.arena.0,
                "generation": older.generation,
                "bytes": older.bytes(),
                "until": moment::rfc3339(*until),
            })
        });
        let value = json!({
            "target": text,
            "dry_run": is_dry,
            "objects": objects.iter().map(|object| object.name.to_string()).collect::<Vec<_>>(),
            "bytes": plan.bytes(),
            "waiting": waiting.collect::<Vec<_>>(),
        });
        return say::record("superseded_plan", value);
    }
    if is_dry {
        for object in &objects {
            say!("{}", object.name);
        }
    }
    if run.invocation.quiet {
        return;
    }
    let (count, bytes) = (show::count(objects.len() as u64, "object"), show::bytes(plan.bytes()));
    let generations = show::count(plan.due.len() as u64, "earlier generation");
    match (plan.due.is_empty(), is_dry) {
        (true, _) => say!("no earlier generation to remove from {text}"),
        (false, true) => say!("{count} of {generations} would be removed from {text}, {bytes}"),
        (false, false) => say!("removing {count} of {generations} from {text}, {bytes}"),
    }
    if let Some(first) = plan.waiting.iter().map(|(_, until)| *until).min() {
        let count = show::count(plan.waiting.len() as u64, "earlier generation");
        let bytes = show::bytes(plan.waiting.iter().map(|(older, _)| older.bytes()).sum());
        say!("{count} with {bytes} not old enough, the first until {}", moment::show(first));
    }
}

fn print_dropped(run: &ReplicationRun<'_>, dropped: &Dropped, text: &str) {
    for (arena, reason) in &dropped.kept {
        warning!("arena {arena} keeps its earlier generations at {text}: {}", with_causes(reason));
    }
    for (object, error) in &dropped.refused {
        warning!("{object} stays at {text}: {}", with_causes(error));
    }
    if run.invocation.json {
        return say::record("superseded_removed", dropped_as_json(dropped, text));
    }
    if run.invocation.quiet {
        return;
    }
    let (count, bytes) = (show::count(dropped.removed.len() as u64, "object"), show::bytes(dropped.bytes()));
    say!("removed {count} from {text}, {bytes}");
    if let Some(until) = last_day(dropped) {
        let count = show::count(dropped.locked.len() as u64, "object");
        let bytes = show::bytes(dropped.locked.iter().map(|(object, _)| object.bytes).sum());
        say!("{count} with {bytes} stay, {until}");
    }
    if dropped.is_cancelled {
        say!("interrupted: the same command continues");
    }
}

/// Describes the time after which all locked objects may be removed; `None` if none is locked.
fn last_day(dropped: &Dropped) -> Option<String> {
    let is_held = dropped.locked.iter().any(|(_, lock)| *lock == ObjectLock::LegalHold);
    let last = dropped.locked.iter().filter_map(|(_, lock)| match lock {
        ObjectLock::Until(day) => Some(day.as_str()),
        ObjectLock::LegalHold => None,
    });
    match (last.max(), is_held) {
        (None, false) => None,
        (None, true) => Some("under a legal hold".into()),
        (Some(day), false) => Some(format!("locked there: all may be removed after {day}")),
        (Some(day), true) => Some(format!("under a legal hold, or locked there until {day} at the latest")),
    }
}

fn dropped_as_json(dropped: &Dropped, text: &str) -> Value {
    let locked = dropped.locked.iter().map(|(object, lock)| {
        let until = match lock {
            ObjectLock::Until(day) => Some(day),
            ObjectLock::LegalHold => None,
        };
        json!({ "object": object.name.to_string(), "until": until })
    });
    let refused = dropped
        .refused
        .iter()
        .map(|(object, error)| json!({ "object": object.to_string(), "reason": with_causes(error) }));
    let kept =
        dropped.kept.iter().map(|(arena, reason)| json!({ "arena": arena.0, "reason": with_causes(reason) }));
    json!({
        "target": text,
        "removed": dropped.removed.iter().map(|object| object.name.to_string()).collect::<Vec<_>>(),
        "freed_bytes": dropped.bytes(),
        "locked": locked.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
        "kept": kept.collect::<Vec<_>>(),
        "interrupted": dropped.is_cancelled,
    })
}

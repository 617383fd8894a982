//! `varve forget`

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_archive::{Archive, ForgetError, ForgetPlan, ProtectedSnapshot, Protection, Snapshot, SnapshotId};
use varve_session::UsageError;
use varve_world::Timestamp;

use super::hold::named;
use crate::arguments::ForgetArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::looking::snapshot_list::short_id;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

const DAY: Duration = Duration::from_secs(86_400);

/// The snapshots that a command line chooses, each with the reason to keep it, if there is one.
struct ForgetVerdicts {
    forgets: Vec<SnapshotId>,
    keeps: Vec<ProtectedSnapshot>,
}

pub fn run(invocation: &Invocation, args: &ForgetArgs) -> Result<CommandOutcome> {
    let filter = args.which.filter();
    if args.snapshots.is_empty() && filter.is_empty() {
        bail!(UsageError("name snapshots, or conditions for them, such as --until 2025-12-31".into()));
    }
    if filter.latest.is_some() {
        bail!(UsageError("--latest chooses the newest snapshots, which forget would not keep".into()));
    }
    if args.undo {
        return undo(invocation, args);
    }
    let mut archive =
        if args.dry_run { invocation.session.reading()? } else { invocation.session.write()? };
    let now = archive.store().world().clock.now();
    let verdicts = judge(invocation, args, &archive, now)?;
    let undo = DAY.saturating_mul(args.undo_days);
    let plan = match args.dry_run {
        true => ForgetPlan::new(archive.snapshots(), &verdicts.forgets, now, undo),
        false => archive.forget(&verdicts.forgets, now, undo, ""),
    };
    let plan = plan.map_err(explained).context("no snapshot is forgotten")?;
    print(invocation, args, &plan, &verdicts.keeps);
    archive.close()?;
    Ok(CommandOutcome::Done)
}

/// Chooses snapshots. Those that are named are chosen without regard to their protection, which
/// then is an error.
fn judge(
    invocation: &Invocation,
    args: &ForgetArgs,
    archive: &Archive,
    now: Timestamp,
) -> Result<ForgetVerdicts> {
    if !args.snapshots.is_empty() {
        let forgets = named(invocation, archive, &args.snapshots, &args.which)?;
        return Ok(ForgetVerdicts { forgets, keeps: Vec::new() });
    }
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which);
    let mut verdicts = ForgetVerdicts { forgets: Vec::new(), keeps: Vec::new() };
    for snapshot in choice.snapshots() {
        let (id, name, time) = (snapshot.id, snapshot.name.clone(), snapshot.time);
        match Protection::of(snapshot, now) {
            None => verdicts.forgets.push(id),
            Some(protection) => verdicts.keeps.push(ProtectedSnapshot { id, name, time, protection }),
        }
    }
    Ok(verdicts)
}

/// Adds the times to the error for protected snapshots.
fn explained(error: ForgetError) -> anyhow::Error {
    let ForgetError::Protected { snapshots } = &error else { return error.into() };
    let lines = snapshots.iter().map(|one| {
        let id: String = one.id.to_string().chars().take(8).collect();
        format!(
            "{id} {} {}: {}",
            show::name(one.name.as_bytes()),
            moment::show(one.time),
            reason(&one.protection)
        )
    });
    let lines = lines.collect::<Vec<_>>().join("; ");
    anyhow::anyhow!(UsageError(format!("protected snapshots cannot be forgotten: {lines}")))
}

fn reason(protection: &Protection) -> String {
    match protection {
        Protection::Held(labels) => {
            format!(
                "held: {}",
                labels.iter().map(|label| show::name(label.as_bytes())).collect::<Vec<_>>().join(", ")
            )
        }
        Protection::KeepUntil(until) => format!("kept until {}", moment::show(*until)),
    }
}

fn print(invocation: &Invocation, args: &ForgetArgs, plan: &ForgetPlan, keeps: &[ProtectedSnapshot]) {
    let verb = if args.dry_run { "would forget" } else { "forgot" };
    for kept in keeps {
        let id = kept.id.to_string();
        let reason = reason(&kept.protection);
        if invocation.json {
            let mut line = verdict(args, &id, &kept.name, kept.time, "keep");
            line["reasons"] = json!([reason]);
            say::record("forget_verdict", line);
        } else if !invocation.quiet {
            let (id, name) = (id.get(..8).unwrap_or_default(), show::name(kept.name.as_bytes()));
            say!("{id} {name} {}: stays, {reason}", moment::show(kept.time));
        }
    }
    for snapshot in &plan.snapshots {
        if invocation.json {
            let id = snapshot.id.to_string();
            let mut line = verdict(args, &id, &snapshot.name, snapshot.time, "forget");
            line["undo_until"] = moment::rfc3339(plan.undo_until).into();
            say::record("forget_verdict", line);
        } else if !invocation.quiet {
            say!("{verb} {}", described(snapshot));
        }
    }
    if !invocation.json && !invocation.quiet {
        let count = show::count(plan.snapshots.len(), "snapshot");
        let until = moment::show(plan.undo_until);
        say!("{verb} {count}; `forget --undo` brings them back, at least until {until}");
    }
}

fn verdict(args: &ForgetArgs, id: &str, name: &str, time: Timestamp, verdict: &str) -> Value {
    let time = moment::rfc3339(time);
    json!({ "id": id, "name": name, "time": time, "verdict": verdict, "dry_run": args.dry_run })
}

fn described(snapshot: &Snapshot) -> String {
    let name = show::name(snapshot.name.as_bytes());
    format!("{} {name} {}", short_id(snapshot), moment::show(snapshot.time))
}

/// Brings snapshots back from the trash.
fn undo(invocation: &Invocation, args: &ForgetArgs) -> Result<CommandOutcome> {
    let mut archive =
        if args.dry_run { invocation.session.reading()? } else { invocation.session.write()? };
    let trash: Vec<_> = archive.trash().iter().map(|trashed| trashed.snapshot.clone()).collect();
    let choice = ChosenSnapshots::new(invocation, &trash, &args.which);
    let ids: Vec<_> = match args.snapshots.is_empty() {
        true => choice.snapshots().iter().map(|snapshot| snapshot.id).collect(),
        false => {
            let named = args.snapshots.iter().map(|name| Ok(choice.named(name)?.id));
            named.collect::<Result<_>>().context("nothing of this name is in the trash")?
        }
    };
    let undone = if args.dry_run { archive.plan_undo(&ids) } else { archive.undo_forget(&ids) };
    let verb = if args.dry_run { "would bring back" } else { "brought back" };
    for snapshot in undone.context("no snapshot is brought back")? {
        if invocation.json {
            let id = snapshot.id.to_string();
            say::record("forget_verdict", verdict(args, &id, &snapshot.name, snapshot.time, "undo"));
        } else if !invocation.quiet {
            say!("{verb} {}", described(&snapshot));
        }
    }
    archive.close()?;
    Ok(CommandOutcome::Done)
}

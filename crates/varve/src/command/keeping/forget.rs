//! `varve forget`

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_archive::retention::{Dated, MeetingKeys, RetentionPolicy, Verdict, judge, meeting_keys};
use varve_archive::{
    Archive, ForgetError, ForgetPlan, Protection, Snapshot, SnapshotFilter, SnapshotId, SpaceNeeds,
    TrashedSnapshot, WorkDays,
};
use varve_daily::{clock_behind_text, clock_leap_text};
use varve_session::UsageError;
use varve_world::Timestamp;

use super::hold::named;
use crate::arguments::ForgetArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::looking::snapshot_list::{forgotten_text, key_json, key_text, short_id};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

const DAY: Duration = Duration::from_secs(86_400);
/// The memory for finding out what would be freed.
const SPACE_MEMORY_BYTES: u64 = 256 << 20;
/// If the newest snapshot is older than this, the clock may be wrong.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(30 * 86_400);

/// The verdict on a chosen snapshot.
pub(super) struct ForgetVerdict {
    snapshot: Snapshot,
    is_kept: bool,
    /// The rules and holds that keep it, or the rule that lets it go.
    reasons: Vec<String>,
}

pub fn run(invocation: &Invocation, args: &ForgetArgs) -> Result<CommandOutcome> {
    let (filter, policy) = (args.which.filter(), policy(args)?);
    let only_names = SnapshotFilter { names: args.which.names.clone(), ..SnapshotFilter::default() };
    if !args.undo
        && policy.is_none()
        && args.snapshots.is_empty()
        && !filter.is_empty()
        && filter == only_names
    {
        let text = "--name alone would take the whole series: add rules, such as --keep-daily 7, or a time, such as --until 2025-12-31";
        bail!(UsageError(text.into()));
    }
    if args.snapshots.is_empty() && filter.is_empty() && policy.is_none() && !args.undo {
        let text =
            "name snapshots, or rules such as --keep-daily 7, or conditions such as --until 2025-12-31";
        bail!(UsageError(text.into()));
    }
    if policy.is_some() && args.undo {
        bail!(UsageError(
            "rules choose what is forgotten, and --undo brings it back: give one of them".into()
        ));
    }
    if args.undo {
        return undo(invocation, args);
    }
    let mut archive = if args.dry_run { invocation.session.read()? } else { invocation.session.write()? };
    let now = archive.store().world().clock.now();
    if !args.trust_clock {
        require_clock_not_behind(&archive, now)?;
    }
    let verdicts = match &policy {
        Some(policy) => by_policy(invocation, args, &archive, policy, now)?,
        None if args.snapshots.is_empty() => by_conditions(invocation, args, &archive, now),
        None => by_name(invocation, args, &archive)?,
    };
    if let Some(policy) = &policy {
        warn_of_claims(&verdicts, policy, now);
    }
    let forgets = let_go(&verdicts);
    let plan = match args.dry_run {
        true => plan(args, &archive, &forgets, now),
        false => forget(args, &mut archive, &forgets, now),
    }?;
    let verb = if args.dry_run { "would forget" } else { "forgot" };
    print_verdicts(invocation, args, verb, &plan, &verdicts);
    print_sum(invocation, args, verb, &plan);
    if args.dry_run && !forgets.is_empty() {
        print_freed(invocation, &archive, &forgets)?;
    }
    archive.close()?;
    Ok(CommandOutcome::Done)
}

/// Prints the bytes that are free in the end if these snapshots are forgotten.
pub(super) fn print_freed(invocation: &Invocation, archive: &Archive, forgets: &[SnapshotId]) -> Result<()> {
    let progress = cancellable_progress()?;
    let is_silent = invocation.quiet || invocation.json;
    let shown = ShownProgress::start("finding who needs what", &progress, is_silent);
    let forgets = forgets.iter().copied().collect();
    let found = SpaceNeeds::bytes_of_only(archive, &forgets, SPACE_MEMORY_BYTES, &progress);
    drop(shown);
    let bytes = found.context("it is not known what that would free")?;
    if invocation.json {
        say::record("forget_sum", json!({ "freed_bytes": bytes, "snapshots": forgets.len() }));
    } else if !invocation.quiet {
        let (who, their) = if forgets.len() == 1 {
            ("this snapshot needs", "its")
        } else {
            ("these snapshots need", "their")
        };
        say!("only {who} {}: `gc` can free it once {their} undo has ended", show::bytes(bytes));
    }
    Ok(())
}

/// Returns the rules; `None` if there are none.
pub(super) fn policy(args: &ForgetArgs) -> Result<Option<RetentionPolicy>> {
    if args.which.others.latest.is_some() {
        let text = "--latest would forget the newest snapshots: --keep-last keeps them";
        bail!(UsageError(text.into()));
    }
    args.retention.policy()
}

/// Returns the snapshots that the verdicts do not keep.
pub(super) fn let_go(verdicts: &[ForgetVerdict]) -> Vec<SnapshotId> {
    verdicts.iter().filter(|verdict| !verdict.is_kept).map(|verdict| verdict.snapshot.id).collect()
}

/// Plans to forget snapshots, and changes nothing.
pub(super) fn plan(
    args: &ForgetArgs,
    archive: &Archive,
    ids: &[SnapshotId],
    now: Timestamp,
) -> Result<ForgetPlan> {
    let plan = ForgetPlan::new(archive.snapshots(), ids, now, undo_time(args));
    plan.map_err(explained).context("no snapshot is forgotten")
}

/// Forgets snapshots.
pub(super) fn forget(
    args: &ForgetArgs,
    archive: &mut Archive,
    ids: &[SnapshotId],
    now: Timestamp,
) -> Result<ForgetPlan> {
    let by = archive.store().vault().key_id().unwrap_or_default().to_owned();
    let forgotten = archive.forget(ids, now, undo_time(args), &by);
    forgotten.map_err(explained).context("no snapshot is forgotten")
}

fn undo_time(args: &ForgetArgs) -> Duration {
    DAY.saturating_mul(args.undo_days)
}

/// Chooses the named snapshots. If one of them is protected, forgetting them fails.
fn by_name(invocation: &Invocation, args: &ForgetArgs, archive: &Archive) -> Result<Vec<ForgetVerdict>> {
    let ids = named(invocation, archive, &args.snapshots, &args.which)?;
    let chosen = archive.snapshots().iter().filter(|snapshot| ids.contains(&snapshot.id));
    let verdict = |snapshot: &Snapshot| ForgetVerdict {
        snapshot: snapshot.clone(),
        is_kept: false,
        reasons: Vec::new(),
    };
    Ok(chosen.map(verdict).collect())
}

/// Chooses all snapshots that meet the conditions, and keeps the protected ones.
fn by_conditions(
    invocation: &Invocation,
    args: &ForgetArgs,
    archive: &Archive,
    now: Timestamp,
) -> Vec<ForgetVerdict> {
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which);
    let verdict = |snapshot: &&Snapshot| {
        let protection = Protection::of(snapshot, now);
        let reasons: Vec<_> = protection.iter().map(reason).collect();
        ForgetVerdict { snapshot: (*snapshot).clone(), is_kept: protection.is_some(), reasons }
    };
    choice.snapshots().iter().map(verdict).collect()
}

/// Judges all snapshots that meet the conditions by rules.
pub(super) fn by_policy(
    invocation: &Invocation,
    args: &ForgetArgs,
    archive: &Archive,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<Vec<ForgetVerdict>> {
    if !args.trust_clock {
        require_known_time(archive, policy, now)?;
    }
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which);
    let judged = choice.of_series(&args.snapshots)?;
    let dated: Vec<_> = judged.iter().map(|snapshot| dated(snapshot)).collect();
    let verdicts = judge(&dated, policy, now).into_iter().zip(judged);
    let verdict = |(verdict, snapshot): (Verdict, &Snapshot)| {
        let is_kept = verdict.is_kept();
        let reasons = match verdict {
            Verdict::Keep(kept_by) => kept_by.iter().map(ToString::to_string).collect(),
            Verdict::Drop(reason) => vec![reason.to_string()],
        };
        let backdated = snapshot.is_backdated().then(|| "backdated".to_owned());
        let reasons = backdated.into_iter().chain::<Vec<_>>(reasons).collect();
        ForgetVerdict { snapshot: snapshot.clone(), is_kept, reasons }
    };
    Ok(verdicts.map(verdict).collect())
}

/// Refuses to forget anything while the clock is behind: the undo would have ended once the clock
/// is right.
fn require_clock_not_behind(archive: &Archive, now: Timestamp) -> Result<()> {
    if WorkDays::of(archive.catalog()).are_mostly_after(now) {
        bail!(UsageError(format!("{}: set it, or confirm with --trust-clock", clock_behind_text(now))));
    }
    Ok(())
}

/// Refuses to judge if the snapshots do not bear out the time of the clock.
fn require_known_time(archive: &Archive, policy: &RetentionPolicy, now: Timestamp) -> Result<()> {
    require_clock_not_behind(archive, now)?;
    let newest = archive.snapshots().iter().map(|snapshot| snapshot.time).filter(|time| *time <= now).max();
    if newest.is_some_and(|newest| now.since(newest) > SNAPSHOT_AGE_MAX) {
        bail!(UsageError(format!(
            "the newest snapshot is more than 30 days old, or the clock is wrong ({}): confirm with --trust-clock",
            moment::show(now)
        )));
    }
    let nights = WorkDays::of(archive.catalog());
    let leap = nights.leap(now).filter(|_| policy.has_spans());
    if let Some(reason) = leap.map(clock_leap_text) {
        bail!(UsageError(format!("{reason}: confirm with --trust-clock")));
    }
    Ok(())
}

fn dated(snapshot: &Snapshot) -> Dated {
    let holds = snapshot.holds.iter().map(|hold| hold.label.clone()).collect();
    Dated::of(snapshot, holds, snapshot.keep_until)
}

/// Warns of snapshots that may be in the name of another machine, or in the past, on purpose.
pub(super) fn warn_of_claims(verdicts: &[ForgetVerdict], policy: &RetentionPolicy, now: Timestamp) {
    let judged: Vec<_> = verdicts.iter().map(|verdict| dated(&verdict.snapshot)).collect();
    for MeetingKeys { host, name, keys, period, period_count } in meeting_keys(&judged, policy, now) {
        let series = format!("{}:{}", show::name(host.as_bytes()), show::name(name.as_bytes()));
        let keys: Vec<_> = keys.iter().map(|key| key.as_ref().map_or("full keys".into(), key_text)).collect();
        let (period, many) = (period.word(), show::count(period_count as u64, "period"));
        warning!(
            "{series} has snapshots of several keys in {many} ({period}): {}; the rules apply to each by itself, and none takes another's place; `varve snapshots -v` shows the keys",
            keys.join(", ")
        );
    }
    let mut backdated = BTreeMap::<_, u64>::new();
    for snapshot in judged.iter().filter(|snapshot| snapshot.is_backdated) {
        *backdated.entry((&snapshot.host, &snapshot.name)).or_default() += 1;
    }
    for ((host, name), count) in backdated {
        warning!(
            "{}:{}: {} backdated: added after a later one, by a key that is not full; the rules apply to them by themselves, and none takes the place of another",
            show::name(host.as_bytes()),
            show::name(name.as_bytes()),
            if count == 1 { "1 snapshot is".to_owned() } else { format!("{count} snapshots are") }
        );
    }
}

/// Adds the times to the error for protected snapshots.
fn explained(error: ForgetError) -> anyhow::Error {
    let ForgetError::Protected { snapshots } = &error else { return error.into() };
    let described = snapshots.iter().map(|one| {
        let id: String = one.id.to_string().chars().take(8).collect();
        let (name, time) = (show::name(one.name.as_bytes()), moment::show(one.time));
        format!("{id} {name} {time}: {}", reason(&one.protection))
    });
    let described = described.collect::<Vec<_>>().join("; ");
    anyhow::Error::new(UsageError(format!("protected snapshots cannot be forgotten: {described}")))
}

fn reason(protection: &Protection) -> String {
    match protection {
        Protection::Held(labels) => {
            let labels: Vec<_> = labels.iter().map(|label| show::name(label.as_bytes())).collect();
            format!("held: {}", labels.join(", "))
        }
        Protection::KeepUntil(until) => format!("kept until {}", moment::show(*until)),
    }
}

pub(super) fn print_verdicts(
    invocation: &Invocation,
    args: &ForgetArgs,
    verb: &str,
    plan: &ForgetPlan,
    verdicts: &[ForgetVerdict],
) {
    for ForgetVerdict { snapshot, is_kept, reasons } in verdicts {
        if invocation.json {
            let mut line = as_json(args, snapshot, if *is_kept { "keep" } else { "forget" });
            line["reasons"] = json!(reasons);
            if !is_kept {
                line["undo_until"] = moment::rfc3339(plan.undo_until).into();
            }
            say::record("forget_verdict", line);
        } else if !invocation.quiet {
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
            say!("{} {}{reasons}", if *is_kept { "keep" } else { verb }, described(snapshot));
        }
    }
}

fn print_sum(invocation: &Invocation, args: &ForgetArgs, verb: &str, plan: &ForgetPlan) {
    if !invocation.json && !invocation.quiet {
        let count = show::count(plan.snapshots.len(), "snapshot");
        let (their, them) = if plan.snapshots.len() == 1 { ("its", "it") } else { ("their", "them") };
        if args.undo_days == 0 {
            say!(
                "{verb} {count}; the next `gc` frees {their} space: until then `forget --undo` brings {them} back"
            );
            return;
        }
        let until = moment::show(plan.undo_until);
        say!("{verb} {count}; `forget --undo` brings {them} back, at least until {until}");
    }
}

fn as_json(args: &ForgetArgs, snapshot: &Snapshot, verdict: &str) -> Value {
    json!({
        "id": snapshot.id.to_string(),
        "host": snapshot.host,
        "name": snapshot.name,
        "time": moment::rfc3339(snapshot.time),
        "added_with": snapshot.added_with().map(key_json),
        "backdated": snapshot.is_backdated(),
        "verdict": verdict,
        "dry_run": args.dry_run,
    })
}

fn described(snapshot: &Snapshot) -> String {
    let name = show::name(snapshot.name.as_bytes());
    format!("{} {name} {}", short_id(snapshot), moment::show(snapshot.time))
}

/// Returns the snapshots that the last `forget` or `prune` has taken.
fn last_forgotten(trash: &[TrashedSnapshot]) -> Result<Vec<SnapshotId>> {
    let last = trash.iter().map(|trashed| trashed.forgotten).max();
    let last = last.context("the trash is empty: nothing was forgotten, or it is gone for ever")?;
    Ok(trash.iter().filter(|trashed| trashed.forgotten == last).map(|trashed| trashed.snapshot.id).collect())
}

const NOT_IN_TRASH: &str =
    "nothing of this name is in the trash: it was not forgotten, or it is gone for ever";
/// Brings snapshots back from the trash.
fn undo(invocation: &Invocation, args: &ForgetArgs) -> Result<CommandOutcome> {
    let mut archive = if args.dry_run { invocation.session.read()? } else { invocation.session.write()? };
    let trash: Vec<_> = archive.trash().iter().map(|trashed| trashed.snapshot.clone()).collect();
    let forgotten: BTreeMap<SnapshotId, String> =
        archive.trash().iter().map(|trashed| (trashed.snapshot.id, forgotten_text(trashed))).collect();
    let choice = ChosenSnapshots::new(invocation, &trash, &args.which);
    let ids: Vec<_> = match args.snapshots.is_empty() {
        true if args.which.filter().is_empty() => last_forgotten(archive.trash())?,
        true => choice.snapshots().iter().map(|snapshot| snapshot.id).collect(),
        false => {
            let gone_of =
                |name: &str| archive.catalog().gone().iter().find(|id| id.begins_with(name)).copied();
            let named = args.snapshots.iter().map(|name| match choice.named(name) {
                Ok(snapshot) => Ok(snapshot.id),
                Err(error) => gone_of(name).ok_or_else(|| error.context(NOT_IN_TRASH)),
            });
            named.collect::<Result<_>>()?
        }
    };
    let undone = if args.dry_run { archive.plan_undo(&ids) } else { archive.undo_forget(&ids) };
    let verb = if args.dry_run { "would bring back" } else { "brought back" };
    for snapshot in undone.context("no snapshot is brought back")? {
        if invocation.json {
            say::record("forget_verdict", as_json(args, &snapshot, "undo"));
        } else if !invocation.quiet {
            let forgotten = forgotten.get(&snapshot.id).map(|text| format!(", {text}"));
            say!("{verb} {}{}", described(&snapshot), forgotten.unwrap_or_default());
        }
    }
    archive.close()?;
    Ok(CommandOutcome::Done)
}

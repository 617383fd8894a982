//! `varve hold` and `varve release`

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use varve_archive::{Archive, SnapshotId};

use crate::arguments::{HoldArgs, ReleaseArgs, SnapshotFilterArgs};
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::looking::snapshot_list::{as_json, protection, short_id};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &HoldArgs) -> Result<CommandOutcome> {
    let mut archive = invocation.session.write()?;
    let ids = named(invocation, &archive, &args.snapshots, &args.which)?;
    let now = archive.store().world().clock.now();
    let mut changed = BTreeSet::new();
    if let Some(label) = &args.label {
        let held = archive.hold(&ids, label, now).context("no snapshot is held")?;
        changed.extend(held.into_iter().map(|snapshot| snapshot.id));
    }
    if let Some(until) = args.keep_until {
        let kept = archive.keep_until(&ids, Some(until)).context("no snapshot is kept for longer")?;
        changed.extend(kept.into_iter().map(|snapshot| snapshot.id));
    }
    finish(invocation, archive, &ids, &changed)
}

pub fn release(invocation: &Invocation, args: &ReleaseArgs) -> Result<CommandOutcome> {
    let mut archive = invocation.session.write()?;
    let ids = named(invocation, &archive, &args.snapshots, &args.which)?;
    let mut changed = BTreeSet::new();
    if let Some(label) = &args.label {
        let released = archive.release(&ids, label).context("no hold is released")?;
        changed.extend(released.into_iter().map(|snapshot| snapshot.id));
    }
    if args.keep_until {
        let released = archive.keep_until(&ids, None).context("no snapshot is released")?;
        changed.extend(released.into_iter().map(|snapshot| snapshot.id));
    }
    finish(invocation, archive, &ids, &changed)
}

/// Returns the ids of the named snapshots, without duplicates.
pub(super) fn named(
    invocation: &Invocation,
    archive: &Archive,
    names: &[String],
    which: &SnapshotFilterArgs,
) -> Result<Vec<SnapshotId>> {
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), which);
    let ids = names.iter().map(|name| Ok(choice.named(name)?.id)).collect::<Result<BTreeSet<_>>>()?;
    Ok(ids.into_iter().collect())
}

/// Prints the snapshots, and closes the store.
fn finish(
    invocation: &Invocation,
    archive: Archive,
    ids: &[SnapshotId],
    changed: &BTreeSet<SnapshotId>,
) -> Result<CommandOutcome> {
    for snapshot in archive.snapshots().iter().filter(|snapshot| ids.contains(&snapshot.id)) {
        let is_changed = changed.contains(&snapshot.id);
        if invocation.json {
            let mut line = as_json(snapshot);
            line["changed"] = is_changed.into();
            say::record("snapshot", line);
        } else if !invocation.quiet {
            let name = show::name(snapshot.name.as_bytes());
            let protection = protection(snapshot).unwrap_or_else(|| "not held".into());
            let unchanged = if is_changed { "" } else { " (as before)" };
            say!("{} {name}: {protection}{unchanged}", short_id(snapshot));
        }
    }
    archive.close()?;
    Ok(CommandOutcome::Done)
}

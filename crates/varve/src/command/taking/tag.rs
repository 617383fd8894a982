//! `varve tag`

use anyhow::{Context, Result, bail};
use varve_archive::{Snapshot, SnapshotId, TagChanges};
use varve_session::UsageError;

use super::report::say_root;
use crate::arguments::TagArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::looking::snapshot_list::{as_json, remarks, short_id};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &TagArgs) -> Result<CommandOutcome> {
    let changes = TagChanges {
        remove: args.remove.clone(),
        set: args.set.clone(),
        add: args.add.clone(),
        comment: args.comment.clone(),
    };
    if changes == TagChanges::default() {
        bail!(UsageError("name a change: --add, --remove, --set or --comment".into()));
    }
    let mut archive = invocation.session.write_home()?;
    let ids = chosen(invocation, args, archive.snapshots())?;
    let changed = archive.change(&ids, &changes).context("no tag is changed")?;
    for snapshot in archive.snapshots().iter().filter(|snapshot| ids.contains(&snapshot.id)) {
        print(invocation, snapshot, changed.iter().any(|changed| changed.id == snapshot.id));
    }
    if !changed.is_empty() {
        say_root(invocation, archive.home());
    }
    archive.close()?;
    Ok(CommandOutcome::Done)
}

/// Returns the ids of the named snapshots, without duplicates.
fn chosen(invocation: &Invocation, args: &TagArgs, snapshots: &[Snapshot]) -> Result<Vec<SnapshotId>> {
    let choice = ChosenSnapshots::new(invocation, snapshots, &args.which);
    let mut ids = Vec::new();
    for name in &args.snapshots {
        let id = choice.named(name)?.id;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn print(invocation: &Invocation, snapshot: &Snapshot, is_changed: bool) {
    if invocation.json {
        let mut line = as_json(snapshot);
        line["changed"] = is_changed.into();
        say::record("snapshot", line);
    } else if !invocation.quiet {
        let name = show::name(snapshot.name.as_bytes());
        let remarks = remarks(snapshot);
        let remarks = if remarks.is_empty() { "no tags" } else { &remarks };
        let unchanged = if is_changed { "" } else { " (as before)" };
        say!("{} {name}: {remarks}{unchanged}", short_id(snapshot));
    }
}

//! `varve tag`

use anyhow::{Context, Result, bail};
use varve_archive::{Snapshot, SnapshotId, TagChanges};

use super::Outcome;
use super::choice::Choice;
use super::snapshots::{as_json, remarks, short_id};
use super::taker::Taker;
use crate::arguments::{Arguments, Tag, WrongWords};
use crate::{say, show};

pub(super) fn run(arguments: &Arguments, args: &Tag) -> Result<Outcome> {
    let changes = TagChanges {
        remove: args.remove.clone(),
        set: args.set.clone(),
        add: args.add.clone(),
        comment: args.comment.clone(),
    };
    if changes == TagChanges::default() {
        bail!(WrongWords("say what to change: --add, --remove, --set or --comment".into()));
    }
    let mut taker = Taker::open(arguments)?;
    let ids = chosen(arguments, args, taker.snapshots())?;
    let changed = taker.change(&ids, &changes).context("no tag is changed")?;
    for snapshot in taker.snapshots().iter().filter(|snapshot| ids.contains(&snapshot.id)) {
        print(arguments, snapshot, changed.iter().any(|changed| changed.id == snapshot.id));
    }
    if !changed.is_empty() {
        taker.note_root(arguments)?;
    }
    taker.close()?;
    Ok(Outcome::Done)
}

/// The snapshots that are named, each once.
fn chosen(arguments: &Arguments, args: &Tag, snapshots: &[Snapshot]) -> Result<Vec<SnapshotId>> {
    let choice = Choice::new(arguments, snapshots, &args.which);
    let mut ids = Vec::new();
    for name in &args.snapshots {
        let id = choice.named(name)?.id;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn print(arguments: &Arguments, snapshot: &Snapshot, is_changed: bool) {
    if arguments.json {
        let mut line = as_json(snapshot);
        line["changed"] = is_changed.into();
        say::record("snapshot", line);
    } else if !arguments.quiet {
        let name = show::name(snapshot.name.as_bytes());
        let remarks = remarks(snapshot);
        let remarks = if remarks.is_empty() { "no tags" } else { &remarks };
        let unchanged = if is_changed { "" } else { " (as before)" };
        say!("{} {name}: {remarks}{unchanged}", short_id(snapshot));
    }
}

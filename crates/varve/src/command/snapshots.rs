//! `varve snapshots`

use anyhow::Result;
use serde_json::{Value, json};
use varve_archive::{Snapshot, SnapshotContent};

use super::Outcome;
use super::taken::{left_out_bytes, left_out_json, left_out_lines};
use crate::arguments::{Arguments, Snapshots};
use crate::reading::Reading;
use crate::{moment, say, show};

/// How many digits of an id are shown.
const ID_DIGITS: usize = 8;

pub(super) fn run(arguments: &Arguments, words: &Snapshots) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let wanted = |snapshot: &&Snapshot| {
        let named = words.name.as_ref().is_none_or(|name| snapshot.name == *name);
        named && words.tags.iter().all(|tag| snapshot.tags.contains(tag))
    };
    let mut snapshots: Vec<_> = archive.snapshots().iter().filter(wanted).collect();
    snapshots.sort_by_key(|snapshot| snapshot.time);
    if arguments.json {
        snapshots.into_iter().for_each(|snapshot| say::item("snapshot", as_json(snapshot)));
        return Ok(Outcome::Done);
    }
    let mut table =
        show::table(&["id", "time", "name", "kind", "size", "new", "stored", "entries", ""], &[4, 5, 6, 7]);
    for snapshot in &snapshots {
        table.add_row([
            short_id(snapshot),
            moment::show(snapshot.time),
            show::name(snapshot.name.as_bytes()),
            kind(snapshot).into(),
            show::bytes(snapshot.size),
            bytes_if_known(snapshot.growth.map(|growth| growth.new_bytes)),
            bytes_if_known(snapshot.growth.map(|growth| growth.stored_bytes)),
            if snapshot.file_count > 0 { snapshot.file_count.to_string() } else { String::new() },
            remarks(snapshot),
        ]);
    }
    say!("{}", table.trim_fmt());
    if arguments.verbose > 0 {
        for snapshot in snapshots.iter().filter(|snapshot| !snapshot.left_out.is_empty()) {
            say!("{} {}", short_id(snapshot), show::name(snapshot.name.as_bytes()));
            left_out_lines(&snapshot.left_out, true).iter().for_each(|line| say!("{line}"));
        }
    }
    Ok(Outcome::Done)
}

/// The first digits of a snapshot's id.
pub(super) fn short_id(snapshot: &Snapshot) -> String {
    snapshot.id.to_string().chars().take(ID_DIGITS).collect()
}

fn bytes_if_known(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, show::bytes)
}

fn kind(snapshot: &Snapshot) -> &'static str {
    match snapshot.content {
        SnapshotContent::Image(_) => "image",
        SnapshotContent::Folder(_) => "folder",
    }
}

fn remarks(snapshot: &Snapshot) -> String {
    let tags = snapshot.tags.iter().map(|tag| show::name(tag.as_bytes()));
    let problems = (snapshot.problem_count > 0).then(|| show::count(snapshot.problem_count, "problem"));
    let left_out = left_out_bytes(&snapshot.left_out);
    let left_out = (left_out > 0).then(|| format!("{} left out", show::bytes(left_out)));
    tags.chain(problems).chain(left_out).collect::<Vec<_>>().join(" ")
}

/// A snapshot for programs.
pub(super) fn as_json(snapshot: &Snapshot) -> Value {
    let mut shown = json!({
        "id": snapshot.id.to_string(),
        "name": snapshot.name,
        "time": moment::rfc3339(snapshot.time),
        "kind": kind(snapshot),
        "host": snapshot.host,
        "tags": snapshot.tags,
        "size": snapshot.size,
        "entries": snapshot.file_count,
        "problems": snapshot.problem_count,
        "new_bytes": snapshot.growth.map(|growth| growth.new_bytes),
        "stored_bytes": snapshot.growth.map(|growth| growth.stored_bytes),
        "machine": snapshot.machine.as_ref().map(|machine| &machine.name),
        "left_out_bytes": left_out_bytes(&snapshot.left_out),
        "left_out": left_out_json(&snapshot.left_out),
        "elapsed_seconds": std::time::Duration::from_nanos(snapshot.elapsed).as_secs_f64(),
    });
    show::put_name(&mut shown, "source", &snapshot.source);
    shown
}

//! `varve snapshots`

use std::collections::BTreeMap;

use anyhow::Result;
use comfy_table::ColumnConstraint;
use serde_json::{Value, json};
use varve_archive::{Hold, Snapshot, SnapshotContent, SnapshotId, TrashedSnapshot};
use varve_content::image::SectorSizes;
use varve_store::Origin;

use super::listed_copies::ListedCopies;
use crate::arguments::{GroupBy, ListSnapshotsArgs, SnapshotFilterArgs};
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::looking::left_out::{left_out_bytes, left_out_json, left_out_lines};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// The column headings. [`NUMBERS`] lists the columns that hold numbers.
const HEADINGS: [&str; 12] =
    ["id", "time", "host", "name", "kind", "size", "new", "stored", "entries", "source", "copies", ""];
const NUMBERS: [usize; 4] = [5, 6, 7, 8];
const SOURCE: usize = 9;
/// This column is hidden if the store has no copies.
const COPIES: usize = 10;
const REMARKS: usize = 11;
/// The columns that may be shortened if the lines are too long for a terminal, in this order, with
/// their minimum widths.
const SHORTENED: [(usize, usize); 4] = [(SOURCE, 12), (2, 8), (COPIES, 8), (REMARKS, 8)];
/// The columns that are left out if that is not enough, in this order.
const DISPENSABLE: [usize; 6] = [8, 7, 6, 4, SOURCE, 2];
/// The width between two columns.
const GAP: usize = 2;

pub fn run(invocation: &Invocation, args: &ListSnapshotsArgs) -> Result<CommandOutcome> {
    let archive;
    let in_trash: Vec<_>;
    let mut trash = BTreeMap::new();
    let copies;
    let listed = if args.trash {
        let of_store = invocation.session.read()?;
        copies = ListedCopies::read(Some(of_store.store().vault()));
        in_trash = of_store.trash().iter().map(|trashed| trashed.snapshot.clone()).collect();
        trash.extend(of_store.trash().iter().map(|trashed| (trashed.snapshot.id, trashed.clone())));
        &in_trash[..]
    } else {
        archive = invocation.session.reading()?;
        copies = ListedCopies::read(archive.vault());
        archive.snapshots()
    };
    let choice = ChosenSnapshots::new(invocation, listed, &args.which);
    let mut snapshots = match &args.name {
        Some(name) => match choice.series(name) {
            Ok(named) => named,
            // If the name exists but the filter leaves none of its snapshots, the list is empty.
            Err(_) if !args.which.filter().is_empty() => {
                ChosenSnapshots::new(invocation, listed, &SnapshotFilterArgs::default()).series(name)?;
                Vec::new()
            }
            Err(error) => return Err(error),
        },
        None => choice.snapshots().to_vec(),
    };
    snapshots.sort_by_key(|snapshot| snapshot.time);
    let groups = grouped(snapshots, &args.group_by);
    if invocation.json {
        let all = groups.into_iter().flat_map(|(_, snapshots)| snapshots);
        all.for_each(|snapshot| {
            let mut shown = as_json(snapshot);
            shown["copies"] = copies.json(snapshot);
            if let Some(trashed) = trash.get(&snapshot.id) {
                put_trashed(&mut shown, trashed);
            }
            say::item("snapshot", shown);
        });
        return Ok(CommandOutcome::Done);
    }
    let width = if invocation.verbose == 0 { show::terminal_width(&std::io::stdout()) } else { None };
    let is_one = args.group_by.is_empty();
    for (number, (title, snapshots)) in groups.into_iter().enumerate() {
        if !is_one {
            let gap = if number > 0 { "\n" } else { "" };
            say!("{gap}{}", titled(&args.group_by, &title));
        }
        say!("{}", table(&snapshots, &trash, &copies, width, invocation.verbose > 0));
        if invocation.verbose > 0 {
            say_all_left_out(&snapshots);
        }
    }
    Ok(CommandOutcome::Done)
}

/// Prints the parts of each snapshot that were left out, or kept against the rule.
fn say_all_left_out(snapshots: &[&Snapshot]) {
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.left_out.is_empty()) {
        say!("{} {}", short_id(snapshot), show::name(snapshot.name.as_bytes()));
        left_out_lines(&snapshot.left_out, true).iter().for_each(|line| say!("{line}"));
    }
}

/// Groups the snapshots, in the order of the groups. Without criteria all snapshots form one group.
fn grouped<'a>(snapshots: Vec<&'a Snapshot>, by: &[GroupBy]) -> Vec<(Vec<String>, Vec<&'a Snapshot>)> {
    if by.is_empty() {
        return vec![(Vec::new(), snapshots)];
    }
    let mut groups = BTreeMap::<Vec<String>, Vec<&Snapshot>>::new();
    for snapshot in snapshots {
        let key = |by: &GroupBy| match by {
            GroupBy::Host => show::name(snapshot.host.as_bytes()),
            GroupBy::Name => show::name(snapshot.name.as_bytes()),
            GroupBy::Path => show::name(&snapshot.source),
            GroupBy::Tags => {
                snapshot.tags.iter().map(|tag| show::name(tag.as_bytes())).collect::<Vec<_>>().join(" ")
            }
        };
        groups.entry(by.iter().map(key).collect()).or_default().push(snapshot);
    }
    groups.into_iter().collect()
}

fn titled(by: &[GroupBy], values: &[String]) -> String {
    let part = |(by, value): (&GroupBy, &String)| {
        let what = match by {
            GroupBy::Host => "host",
            GroupBy::Name => "name",
            GroupBy::Path => "path",
            GroupBy::Tags => "tags",
        };
        format!("{what} {}", if value.is_empty() { "-" } else { value })
    };
    by.iter().zip(values).map(part).collect::<Vec<_>>().join(", ") + ":"
}

/// Formats a table of snapshots, for lines of the given width if there is one.
fn table(
    snapshots: &[&Snapshot],
    trash: &BTreeMap<SnapshotId, TrashedSnapshot>,
    copies: &ListedCopies,
    width: Option<usize>,
    shows_keys: bool,
) -> String {
    let row =
        |snapshot: &&Snapshot| row(snapshot, trash.get(&snapshot.id), copies.text(snapshot), shows_keys);
    let mut rows: Vec<[String; HEADINGS.len()]> = snapshots.iter().map(row).collect();
    let hidden = shorten(&mut rows, width.unwrap_or(usize::MAX));
    let mut table = show::table(&HEADINGS, &NUMBERS);
    for column in hidden {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}

fn row(
    snapshot: &Snapshot,
    trashed: Option<&TrashedSnapshot>,
    copies: String,
    shows_keys: bool,
) -> [String; HEADINGS.len()] {
    let forgotten = trashed.map(|trashed| format!("[{}]", forgotten_text(trashed)));
    let key =
        snapshot.added_with().filter(|_| shows_keys).map(|key| format!("[added with {}]", key_text(key)));
    let remarks = [Some(remarks(snapshot)).filter(|text| !text.is_empty()), key, forgotten];
    let remarks = remarks.into_iter().flatten().collect::<Vec<_>>().join(" ");
    [
        short_id(snapshot),
        moment::show(snapshot.time),
        show::name(snapshot.host.as_bytes()),
        show::name(snapshot.name.as_bytes()),
        kind(snapshot).into(),
        show::bytes(snapshot.size),
        bytes_if_known(snapshot.growth.map(|growth| growth.new_bytes)),
        bytes_if_known(snapshot.growth.map(|growth| growth.stored_bytes)),
        if snapshot.file_count > 0 { snapshot.file_count.to_string() } else { String::new() },
        show::name(&snapshot.source),
        copies,
        remarks,
    ]
}

/// Shortens the lines to `width`. Returns the columns that are not shown.
fn shorten(rows: &mut [[String; HEADINGS.len()]], width: usize) -> Vec<usize> {
    let widest = |rows: &[[String; HEADINGS.len()]], column: usize| {
        let heading = HEADINGS.get(column).map_or(0, |heading| heading.len());
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(heading)
    };
    let has_copies = rows.iter().any(|row| row.get(COPIES).is_some_and(|cell| !cell.is_empty()));
    let mut hidden = if has_copies { Vec::new() } else { vec![COPIES] };
    let excess = |rows: &[[String; HEADINGS.len()]], hidden: &[usize]| {
        let shown = (0..HEADINGS.len()).filter(|column| !hidden.contains(column));
        let line = shown.map(|column| widest(rows, column) + GAP).sum::<usize>();
        line.saturating_sub(width.saturating_add(GAP))
    };
    for (column, least) in SHORTENED.into_iter().filter(|(column, _)| !hidden.contains(column)) {
        let excess = excess(rows, &hidden);
        let room = widest(rows, column).saturating_sub(excess).max(least);
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)).filter(|_| excess > 0) {
            *cell = if column == SOURCE { show::end_of(cell, room) } else { show::start_of(cell, room) };
        }
    }
    for column in DISPENSABLE {
        if excess(rows, &hidden) > 0 {
            hidden.push(column);
        }
    }
    hidden
}

/// Returns the first digits of a snapshot's id.
pub fn short_id(snapshot: &Snapshot) -> String {
    show::short_id(&snapshot.id.to_string()).to_owned()
}

fn bytes_if_known(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, show::bytes)
}

/// Returns the kind of a snapshot's source.
pub fn kind(snapshot: &Snapshot) -> &'static str {
    match snapshot.content {
        SnapshotContent::Image(_) => "image",
        SnapshotContent::Folder(_) if snapshot.file.is_some() => "file",
        SnapshotContent::Folder(_) => "folder",
    }
}

/// Returns the tags, the mark of UEFI variables, the protection, the mark of a backdated snapshot,
/// the problems and the comment.
pub fn remarks(snapshot: &Snapshot) -> String {
    let tags = snapshot.tags.iter().map(|tag| show::name(tag.as_bytes()));
    let problems = (snapshot.problem_count > 0).then(|| show::count(snapshot.problem_count, "problem"));
    let left_out = left_out_bytes(&snapshot.left_out);
    let left_out = (left_out > 0).then(|| format!("{} left out", show::bytes(left_out)));
    let comment =
        (!snapshot.comment.is_empty()).then(|| format!("\"{}\"", show::name(snapshot.comment.as_bytes())));
    let firmware = snapshot
        .firmware_of()
        .map(|machine| format!("[UEFI variables of {}]", show::name(machine.name.as_bytes())));
    let backdated = snapshot.is_backdated().then(|| "[backdated]".to_owned());
    tags.chain(firmware)
        .chain(protection(snapshot))
        .chain(backdated)
        .chain(problems)
        .chain(left_out)
        .chain(comment)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Describes the holds of a snapshot, and the time until which it is kept.
pub fn protection(snapshot: &Snapshot) -> Option<String> {
    let labels: Vec<_> = snapshot.holds.iter().map(|hold| show::name(hold.label.as_bytes())).collect();
    let held = (!labels.is_empty()).then(|| format!("held: {}", labels.join(", ")));
    let kept = snapshot.keep_until.map(|until| format!("kept until {}", moment::show(until)));
    let all: Vec<_> = held.into_iter().chain(kept).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join("; ")))
}

/// Describes the key that a snapshot was added with.
pub fn key_text(key: &Origin) -> String {
    show::name(key.to_string().as_bytes())
}

/// Tells when a snapshot was forgotten, and with which key if that is known.
pub fn forgotten_text(trashed: &TrashedSnapshot) -> String {
    let by = match trashed.forgotten_by.as_str() {
        "" => String::new(),
        key => format!(" with key {}", show::name(key.as_bytes())),
    };
    format!("forgotten {}{by}", moment::show(trashed.forgotten))
}

fn put_trashed(shown: &mut Value, trashed: &TrashedSnapshot) {
    let by = (!trashed.forgotten_by.is_empty()).then_some(&trashed.forgotten_by);
    shown["forgotten"] = moment::rfc3339(trashed.forgotten).into();
    shown["forgotten_by"] = json!(by);
    shown["undo_until"] = moment::rfc3339(trashed.undo_until).into();
}

fn hold_json(hold: &Hold) -> Value {
    json!({ "label": hold.label, "set": moment::rfc3339(hold.set) })
}

/// Formats the key that a snapshot was added with for programs.
pub fn key_json(key: &Origin) -> Value {
    let id = (!key.key.is_empty()).then_some(&key.key);
    json!({ "key": id, "role": key.role })
}

/// Formats a snapshot for programs.
pub fn as_json(snapshot: &Snapshot) -> Value {
    let mut shown = json!({
        "id": snapshot.id.to_string(),
        "name": snapshot.name,
        "time": moment::rfc3339(snapshot.time),
        "kind": kind(snapshot),
        "host": snapshot.host,
        "tags": snapshot.tags,
        "comment": snapshot.comment,
        "holds": snapshot.holds.iter().map(hold_json).collect::<Vec<_>>(),
        "keep_until": snapshot.keep_until.map(moment::rfc3339),
        "size": snapshot.size,
        "entries": snapshot.file_count,
        "problems": snapshot.problem_count,
        "new_bytes": snapshot.growth.map(|growth| growth.new_bytes),
        "stored_bytes": snapshot.growth.map(|growth| growth.stored_bytes),
        "added_with": snapshot.added_with().map(key_json),
        "backdated": snapshot.is_backdated(),
        "firmware_variables": snapshot.firmware_of().is_some(),
        "sector_bytes": snapshot.sectors.map(SectorSizes::logical),
        "physical_sector_bytes": snapshot.sectors.map(SectorSizes::physical),
        "machine": snapshot.machine.as_ref().map(|machine| &machine.name),
        "left_out_bytes": left_out_bytes(&snapshot.left_out),
        "left_out": left_out_json(&snapshot.left_out),
        "elapsed_seconds": std::time::Duration::from_nanos(snapshot.elapsed).as_secs_f64(),
    });
    show::put_name(&mut shown, "source", &snapshot.source);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(sources: &[&str], host: &str) -> Vec<[String; HEADINGS.len()]> {
        let row = |source: &&str| {
            let mut row: [String; HEADINGS.len()] = std::array::from_fn(|_| "12345678".into());
            row[9] = (*source).into();
            row[2] = host.into();
            row[10] = String::new();
            row[11] = String::new();
            row
        };
        sources.iter().map(row).collect()
    }

    #[test]
    fn lines_fit_a_terminal_where_they_can() {
        let sources = ["/srv/data/projects/2026/web", "/etc"];
        let line = |rows: &[[String; HEADINGS.len()]]| {
            let widest = |column: usize| {
                rows.iter().map(|row| row[column].chars().count()).max().unwrap().max(HEADINGS[column].len())
            };
            let columns = (0..HEADINGS.len()).filter(|column| *column != COPIES);
            columns.map(|column| widest(column) + GAP).sum::<usize>() - GAP
        };
        let whole = rows(&sources, "backup.example.org");
        let natural = line(&whole);
        for width in [natural, natural - 5, natural - 20] {
            let mut rows = whole.clone();
            assert_eq!(shorten(&mut rows, width), [COPIES]);
            assert!(line(&rows) <= width, "{width}: {rows:?}");
            assert_eq!(rows[1][9], "/etc", "what is short stays");
            assert_eq!(rows == whole, width == natural);
        }
        let mut rows = whole.clone();
        assert_eq!(shorten(&mut rows, 1)[1..], DISPENSABLE);
        assert_eq!((rows[0][9].as_str(), rows[0][2].as_str()), ("…ts/2026/web", "backup.…"));
    }
}

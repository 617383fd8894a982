//! Messages about a snapshot that was taken.

use std::path::Path;

use serde_json::json;
use varve_archive::{Snapshot, SnapshotHome};
use varve_block::BlockName;

use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::{moment, say, show};

/// Warns that volumes of a disk are shown in their state before their newest changes.
pub fn warn_of_fast_commits(path: &Path, volumes: &[String]) {
    for volume in volumes {
        warning!(
            "{}: {volume} was in use, and its journal has fast commits, which this version cannot read: everything is archived, but its files are shown in the state before them; a mount of the restored disk shows the newer state",
            path.display()
        );
    }
}

/// Formats a new snapshot for people.
pub fn as_line(snapshot: &Snapshot) -> String {
    let entries = match snapshot.file_count {
        _ if snapshot.file.is_some() => String::new(),
        0 => String::new(),
        number => format!(" in {}", show::count(number, "entry")),
    };
    format!(
        "{} {}: {}{entries}{}, {}",
        snapshot_list::short_id(snapshot),
        show::name(snapshot.name.as_bytes()),
        show::bytes(snapshot.size),
        growth(snapshot),
        show::duration(snapshot.elapsed)
    )
}

/// Warns if another snapshot of the same series has a later time, as after a run with the clock
/// ahead. The name alone still means that later snapshot.
pub fn warn_if_hidden(snapshots: &[Snapshot], taken: &Snapshot) {
    let of_series = snapshots.iter().filter(|other| other.is_of_series(&taken.host, &taken.name));
    let later = of_series.filter(|other| other.time > taken.time);
    let Some(newest) = later.max_by_key(|other| other.time) else { return };
    let name = show::name(taken.name.as_bytes());
    warning!(
        "{name} alone still means {}, of {}: its time is later than that of {}. Check the clock: it is wrong now, or was wrong then",
        snapshot_list::short_id(newest),
        moment::show(newest.time),
        snapshot_list::short_id(taken)
    );
}

/// Prints the newest root of the catalog, if the home itself has no place for it.
pub fn say_root(invocation: &Invocation, home: &dyn SnapshotHome) {
    let Some(BlockName { score, .. }) = home.root_to_keep() else { return };
    if invocation.json {
        say::record("catalog_root", json!({ "root": format!("catalog:{score}") }));
    } else if !invocation.quiet {
        say!("catalog:{score}");
    }
}

/// Formats the growth of the store by a snapshot, with a leading comma; empty if the growth is
/// unknown.
pub fn growth(snapshot: &Snapshot) -> String {
    snapshot.growth.map_or_else(String::new, |growth| {
        format!(", {} new, {} stored", show::bytes(growth.new_bytes), show::bytes(growth.stored_bytes))
    })
}

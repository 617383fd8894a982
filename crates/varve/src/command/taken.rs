//! Messages about a snapshot that was taken.

use std::path::Path;

use serde_json::{Value, json};
use varve_archive::{LeftOutRecord, Snapshot};
use varve_block::visible;

use super::snapshots;
use crate::{moment, show};

/// Returns the lines about left-out parts for people. With `kept`, it includes the parts that were
/// kept against the rule.
pub(super) fn left_out_lines<'a>(
    records: impl IntoIterator<Item = &'a LeftOutRecord>,
    kept: bool,
) -> Vec<String> {
    let of = |record: &LeftOutRecord| {
        let what = visible(&record.what);
        if record.volume.is_empty() { what } else { format!("{what} of {}", visible(&record.volume)) }
    };
    let line = |record: &'a LeftOutRecord| match &record.kept_because {
        Some(reason) => kept.then(|| format!("  kept: {}: {}", of(record), visible(reason))),
        None if record.bytes == 0 => None,
        None => {
            let bytes = show::bytes(record.bytes);
            Some(format!("  left out: {}, {bytes}: {}", of(record), visible(&record.why)))
        }
    };
    records.into_iter().filter_map(line).collect()
}

/// Prints the left-out parts for people.
pub(super) fn say_left_out(records: &[LeftOutRecord]) {
    for line in left_out_lines(records, false) {
        say!("{line}");
    }
}

/// Formats the left-out parts for programs, including those that were kept against the rule.
pub(super) fn left_out_json<'a>(records: impl IntoIterator<Item = &'a LeftOutRecord>) -> Value {
    let one = |record: &LeftOutRecord| {
        json!({
            "volume": record.volume,
            "what": record.what,
            "bytes": record.bytes,
            "why": record.kept_because.is_none().then_some(&record.why),
            "kept_because": record.kept_because,
        })
    };
    records.into_iter().map(one).collect()
}

/// Returns the number of bytes that were archived as zeros.
pub(super) fn left_out_bytes(records: &[LeftOutRecord]) -> u64 {
    records.iter().map(|record| record.bytes).fold(0, u64::saturating_add)
}

/// Warns that volumes of a disk are shown in their state before their newest changes.
pub(super) fn warn_of_fast_commits(path: &Path, volumes: &[String]) {
    for volume in volumes {
        remark!(
            "varve: {}: {volume} was in use, and its journal has fast commits, which are not known here: all is archived, \
             but its files are shown as they were before them; a mount of the restored disk has the newer ones",
            path.display()
        );
    }
}

/// Formats a new snapshot for people.
pub(super) fn as_line(snapshot: &Snapshot) -> String {
    let entries = match snapshot.file_count {
        _ if snapshot.file.is_some() => String::new(),
        0 => String::new(),
        number => format!(" in {}", show::count(number, "entry")),
    };
    format!(
        "{} {}: {}{entries}{}, {}",
        snapshots::short_id(snapshot),
        show::name(snapshot.name.as_bytes()),
        show::bytes(snapshot.size),
        growth(snapshot),
        show::duration(snapshot.elapsed)
    )
}

/// Warns if another snapshot of the same name has a later time, as after a run with the clock
/// ahead. The name alone still means that later snapshot.
pub(super) fn warn_if_hidden(snapshots: &[Snapshot], taken: &Snapshot) {
    let later = snapshots.iter().filter(|other| other.name == taken.name && other.time > taken.time);
    let Some(newest) = later.max_by_key(|other| other.time) else { return };
    let name = show::name(taken.name.as_bytes());
    remark!(
        "varve: {name} alone still means {}, of {}: its moment is later than that of {}. Is the clock right, or was it wrong then?",
        snapshots::short_id(newest),
        moment::show(newest.time),
        snapshots::short_id(taken)
    );
}

/// Formats the growth of the store by a snapshot, with a leading comma; empty if the growth is
/// unknown.
pub(super) fn growth(snapshot: &Snapshot) -> String {
    snapshot.growth.map_or_else(String::new, |growth| {
        format!(", {} new, {} stored", show::bytes(growth.new_bytes), show::bytes(growth.stored_bytes))
    })
}

//! The files that lost blocks harm, each with the snapshots that have it.

use std::collections::BTreeMap;

use varve_archive::Snapshot;

use super::snapshot_place::address_in;
use crate::archive::snapshot_view::{SeriesName, SnapshotView};
use crate::show;
use crate::site::PageRequest;
use crate::state::known_harm::KnownHarm;

/// Files that are listed.
const FILES_MAX: usize = 100;

/// A harmed file or folder of a source.
pub(crate) struct HarmedFile {
    pub(crate) name: String,
    /// The source, with its host.
    pub(crate) source: String,
    /// The file in the newest snapshot that has it harmed.
    pub(crate) address: String,
    pub(crate) count: String,
    pub(crate) first: String,
    pub(crate) last: String,
}

/// The snapshots in which a file is harmed.
struct HarmedIn<'a> {
    first: &'a Snapshot,
    last: &'a Snapshot,
    count: u64,
}

/// The harmed files by source and path, and the number of those that are left out.
pub(crate) fn harmed_files(request: &PageRequest, harm: &KnownHarm) -> (Vec<HarmedFile>, usize) {
    let found = by_path(&request.view, harm);
    let left_out = found.len().saturating_sub(FILES_MAX);
    let row = |((series, path), harmed): ((SeriesName, &[u8]), HarmedIn<'_>)| {
        let host = if series.host.is_empty() { String::new() } else { format!(" on {}", series.host) };
        HarmedFile {
            name: if path.is_empty() { "all of it".into() } else { show::name(path) },
            source: show::name(format!("{}{host}", series.name).as_bytes()),
            address: address_in("/look/", harmed.last, path),
            count: show::count(harmed.count, "snapshot"),
            first: show::minute(harmed.first.time, request.zone()),
            last: show::minute(harmed.last.time, request.zone()),
        }
    };
    (found.into_iter().take(FILES_MAX).map(row).collect(), left_out)
}

fn by_path<'a>(
    view: &'a SnapshotView,
    harm: &'a KnownHarm,
) -> BTreeMap<(SeriesName, &'a [u8]), HarmedIn<'a>> {
    let mut found: BTreeMap<_, HarmedIn<'_>> = BTreeMap::new();
    for snapshot in view.snapshots() {
        for path in harm.paths(&snapshot.id) {
            let entry = found.entry((SeriesName::of(snapshot), path));
            let harmed = entry.or_insert(HarmedIn { first: snapshot, last: snapshot, count: 0 });
            harmed.last = snapshot;
            harmed.count += 1;
        }
    }
    found
}

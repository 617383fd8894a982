//! The bar about a snapshot at the top of its pages.

use varve_archive::Snapshot;

use super::harm_marks::HarmMarks;
use super::snapshot_place::{SnapshotPlace, address_in, source_address};
use crate::show;
use crate::site::PageRequest;

/// Tags that are shown.
const TAGS_MAX: usize = 20;

/// The snapshot of a page, with links to its neighbours.
pub(crate) struct SnapshotLine {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) time: String,
    pub(crate) age: String,
    pub(crate) short_id: String,
    pub(crate) all: String,
    /// Its size, and the number of its files and problems.
    pub(crate) sizes: String,
    pub(crate) problems: String,
    /// Empty if no part of it is known to be lost.
    pub(crate) harm: String,
    pub(crate) holds: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) comment: String,
    /// The same place in the snapshots before and after, with their times.
    pub(crate) before: Option<(String, String)>,
    pub(crate) after: Option<(String, String)>,
}

impl SnapshotLine {
    pub(crate) fn of(
        request: &PageRequest,
        place: &SnapshotPlace<'_>,
        beginning: &str,
        marks: &HarmMarks,
    ) -> Self {
        let snapshot = place.snapshot;
        let (before, after) = request.view.neighbours(snapshot);
        let link = |other: &Snapshot| {
            (address_in(beginning, other, &place.path), show::minute(other.time, request.zone()))
        };
        Self {
            name: show::name(snapshot.name.as_bytes()),
            host: show::name(snapshot.host.as_bytes()),
            time: show::minute(snapshot.time, request.zone()),
            age: show::age(snapshot.time, request.now),
            short_id: snapshot.id.to_string().chars().take(8).collect(),
            all: source_address(&place.series(), None),
            sizes: sizes(snapshot),
            problems: match snapshot.problem_count {
                0 => String::new(),
                count => show::count(count, "problem"),
            },
            harm: marks.of_snapshot(snapshot),
            holds: snapshot.holds.iter().map(|hold| show::name(hold.label.as_bytes())).collect(),
            tags: snapshot.tags.iter().take(TAGS_MAX).map(|tag| show::name(tag.as_bytes())).collect(),
            comment: show::text_line(&snapshot.comment),
            before: before.map(link),
            after: after.map(link),
        }
    }
}

/// The size of a snapshot, its files, and the bytes by which it made the archive grow.
fn sizes(snapshot: &Snapshot) -> String {
    let mut parts = vec![show::bytes(snapshot.size)];
    if snapshot.file_count > 0 {
        parts.push(show::count(snapshot.file_count, "entry"));
    }
    if let Some(growth) = snapshot.growth {
        parts.push(format!("{} stored", show::bytes(growth.stored_bytes)));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use varve_archive::{Growth, SnapshotContent, SnapshotId};
    use varve_content::{Node, NodeKind};
    use varve_world::Timestamp;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_snapshot() {
        let root = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
        let empty = Snapshot::new(SnapshotId([0; 16]), "home".into(), Timestamp(0), root);
        let growth = Some(Growth { new_bytes: 4096, stored_bytes: 2048 });
        let full = Snapshot { size: 5 << 20, file_count: 1_234, growth, ..empty.clone() };
        assert_eq!(sizes(&full), "5.00 MiB, 1,234 entries, 2.00 KiB stored");
        assert_eq!(sizes(&Snapshot { file_count: 0, growth: None, ..full }), "5.00 MiB");
    }
}

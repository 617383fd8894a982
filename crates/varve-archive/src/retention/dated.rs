//! A snapshot as retention sees it.

use varve_store::Origin;
use varve_world::Timestamp;

use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_id::SnapshotId;

/// The properties of a snapshot that decide whether it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dated {
    pub id: SnapshotId,
    pub time: Timestamp,
    pub host: String,
    pub name: String,
    pub kind: ContentKind,
    /// `KEY=VALUE`
    pub tags: Vec<String>,
    /// The labels of its holds. A snapshot with a hold is kept.
    pub holds: Vec<String>,
    /// The snapshot is kept before this time.
    pub keep_until: Option<Timestamp>,
    /// True if something of the source was not archived as it is.
    pub has_gaps: bool,
    /// The key that added it, unless that was a full key or is not known.
    pub lesser_key: Option<Origin>,
    /// It was added after a later one of its series.
    pub is_backdated: bool,
}

/// The kind of a snapshot's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentKind {
    Image,
    Folder,
}

impl Dated {
    /// The properties of a snapshot in the catalog, with its holds and its `keep_until`.
    #[must_use]
    pub fn of(snapshot: &Snapshot, holds: Vec<String>, keep_until: Option<Timestamp>) -> Self {
        let kind = match snapshot.content {
            SnapshotContent::Image(_) => ContentKind::Image,
            SnapshotContent::Folder(_) => ContentKind::Folder,
        };
        Self {
            id: snapshot.id,
            time: snapshot.time,
            host: snapshot.host.clone(),
            name: snapshot.name.clone(),
            kind,
            tags: snapshot.tags.clone(),
            holds,
            keep_until,
            has_gaps: snapshot.problem_count > 0,
            lesser_key: snapshot.added_with().filter(|origin| !origin.is_full()).cloned(),
            is_backdated: snapshot.is_backdated(),
        }
    }
}

impl std::fmt::Display for ContentKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Image => "image",
            Self::Folder => "folder",
        })
    }
}

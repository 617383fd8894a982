//! One path through the snapshots of a series.

use std::time::Duration;

use tokio::time::Instant;
use varve_archive::{Snapshot, SnapshotContent};
use varve_content::Node;
use varve_tree::Entry;

use super::folder_changes::{FolderOf, is_same_file};
use super::open_files::{FileOpener, OpenFiles};
use super::place::{Place, PlaceError};

/// After this time the search ends, and can be continued.
const TIME_MAX: Duration = Duration::from_millis(1_500);
/// The maximum number of versions that are found at a time.
const VERSIONS_MAX: usize = 100;

/// A file as several snapshots in a row have it.
pub(crate) struct FileVersion<'s> {
    pub(crate) state: VersionState,
    pub(crate) first: &'s Snapshot,
    pub(crate) last: &'s Snapshot,
    pub(crate) snapshot_count: u64,
}

/// The state of a path in a snapshot.
#[derive(Clone)]
pub(crate) enum VersionState {
    There {
        files: OpenFiles,
        node: Box<Node>,
    },
    Absent,
    /// With the reason.
    Unreadable(String),
}

/// The versions of a path, the newest first.
pub(crate) struct FileHistory<'s> {
    pub(crate) versions: Vec<FileVersion<'s>>,
    /// The newest snapshot that was not looked at.
    pub(crate) next: Option<&'s Snapshot>,
}

/// Finds the versions of `path` in `snapshots`, which are in order, the newest first.
pub(crate) fn file_history<'s>(
    opener: &FileOpener,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    path: &[u8],
) -> FileHistory<'s> {
    let begun = Instant::now();
    let mut finder = PathFinder { opener, path, steps: Vec::new(), disk: None };
    let mut history = FileHistory { versions: Vec::new(), next: None };
    for snapshot in snapshots {
        let is_late = begun.elapsed() >= TIME_MAX && !history.versions.is_empty();
        let state = if is_late { None } else { Some(finder.state(snapshot)) };
        let is_full = history.versions.len() >= VERSIONS_MAX;
        match (state, history.versions.last_mut()) {
            (Some(state), Some(version)) if is_same_state(&state, &version.state) => {
                version.first = snapshot;
                version.snapshot_count += 1;
            }
            (Some(state), _) if !is_full => {
                let version = FileVersion { state, first: snapshot, last: snapshot, snapshot_count: 1 };
                history.versions.push(version);
            }
            _ => {
                history.next = Some(snapshot);
                break;
            }
        }
    }
    history
}

fn is_same_state(one: &VersionState, other: &VersionState) -> bool {
    match (one, other) {
        (VersionState::Absent, VersionState::Absent) => true,
        (
            VersionState::There { files: one_files, node: one },
            VersionState::There { files: other_files, node: other },
        ) => one_files.with(|one_files| {
            other_files.with(|other_files| {
                let one = FolderOf { files: one_files, node: one };
                is_same_file(one, FolderOf { files: other_files, node: other })
            })
        }),
        _ => false,
    }
}

/// Finds one path in many snapshots. A folder that is the same in the next snapshot is not read
/// again.
struct PathFinder<'a> {
    opener: &'a FileOpener,
    path: &'a [u8],
    /// For each name of the path: the content of the folder before it, and the node that was found
    /// there.
    steps: Vec<(Option<Entry>, Option<Node>)>,
    /// The last image, and the state of the path in it.
    disk: Option<(Entry, VersionState)>,
}

impl PathFinder<'_> {
    fn state(&mut self, snapshot: &Snapshot) -> VersionState {
        match &snapshot.content {
            SnapshotContent::Folder(root) => self.in_folder(snapshot, root),
            SnapshotContent::Image(entry) => match &self.disk {
                Some((known, state)) if known == entry => state.clone(),
                _ => {
                    let state = self.anywhere(snapshot);
                    self.disk = Some((*entry, state.clone()));
                    state
                }
            },
        }
    }

    fn in_folder(&mut self, snapshot: &Snapshot, root: &Node) -> VersionState {
        let files = self.opener.folder();
        let names: Vec<&[u8]> =
            self.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let mut node = root.clone();
        for (depth, name) in names.into_iter().enumerate() {
            let content = node.content.filter(|_| node.kind == varve_content::NodeKind::Folder);
            if node.kind == varve_content::NodeKind::File {
                // The path may go on in a disk.
                return self.anywhere(snapshot);
            }
            let known = self.steps.get(depth).filter(|(known, _)| *known == content);
            let found = match known {
                Some((_, found)) => found.clone(),
                None => {
                    let found = match files.with(|files| files.find(&node, name)) {
                        Ok(found) => found,
                        Err(error) => return VersionState::Unreadable(varve_block::with_causes(&error)),
                    };
                    self.steps.truncate(depth);
                    self.steps.push((content, found.clone()));
                    found
                }
            };
            match found {
                Some(found) => node = found,
                None => return VersionState::Absent,
            }
        }
        VersionState::There { files, node: Box::new(node) }
    }

    fn anywhere(&self, snapshot: &Snapshot) -> VersionState {
        match Place::find(self.opener, snapshot, self.path) {
            Ok(place) => VersionState::There { files: place.files, node: Box::new(place.node) },
            Err(PlaceError::Absent(_) | PlaceError::Depth) => VersionState::Absent,
            Err(error) => VersionState::Unreadable(varve_block::with_causes(&error)),
        }
    }
}

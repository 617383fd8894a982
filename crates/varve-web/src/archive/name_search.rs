//! Finds names in all snapshots, by walking them.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use varve_archive::Snapshot;
use varve_content::{Files, Node, NodeKind};
use varve_tree::Entry;

use super::open_files::FileOpener;
use super::snapshot_view::SeriesName;

/// After this time the search ends, and can be continued with the next snapshot.
const TIME_MAX: Duration = Duration::from_secs(3);
/// The maximum number of paths that are found at a time.
const FOUND_MAX: usize = 100;
/// Folders that are remembered, so that they are searched in one snapshot only.
const FOLDERS_MAX: usize = 200_000;
const DEPTH_MAX: usize = 256;

/// A found path, with the newest snapshot that has it.
pub(crate) struct FoundName<'s> {
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) path: Vec<u8>,
    pub(crate) node: Node,
}

/// The result of a search.
pub(crate) struct FoundNames<'s> {
    pub(crate) found: Vec<FoundName<'s>>,
    /// The snapshots that were searched.
    pub(crate) snapshot_count: u64,
    /// The snapshot that was not searched to its end.
    pub(crate) cut: Option<&'s Snapshot>,
    /// The newest snapshot that was not searched.
    pub(crate) next: Option<&'s Snapshot>,
    /// Some folders were unreadable.
    pub(crate) has_gaps: bool,
}

/// Searches folders and disks for names that contain `text`, without regard to case. `snapshots`
/// come with the newest first. A folder that two snapshots share is searched once.
pub(crate) fn find_names<'s>(
    opener: &FileOpener,
    snapshots: impl Iterator<Item = &'s Snapshot>,
    text: &str,
) -> FoundNames<'s> {
    let wanted = text.to_lowercase();
    let until = Instant::now() + TIME_MAX;
    let mut result =
        FoundNames { found: Vec::new(), snapshot_count: 0, cut: None, next: None, has_gaps: false };
    let (mut seen, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for snapshot in snapshots {
        if Instant::now() >= until || result.found.len() >= FOUND_MAX {
            result.next = Some(snapshot);
            break;
        }
        let mut search = FolderSearch {
            wanted: &wanted,
            until,
            snapshot,
            seen: &mut seen,
            paths: &mut paths,
            result: &mut result,
        };
        let opened = opener.for_a_walk(snapshot);
        let is_whole = search.whole(&*opened.files, &opened.root);
        result.snapshot_count += 1;
        if !is_whole {
            result.cut = Some(snapshot);
        }
    }
    result
}

struct FolderSearch<'a, 's> {
    wanted: &'a str,
    until: Instant,
    snapshot: &'s Snapshot,
    seen: &'a mut BTreeSet<Entry>,
    /// The found paths, each with its series. An older snapshot with the same path is not listed.
    paths: &'a mut BTreeSet<(SeriesName, Vec<u8>)>,
    result: &'a mut FoundNames<'s>,
}

impl FolderSearch<'_, '_> {
    /// Searches everything below a folder. Returns false if it was ended before.
    fn whole(&mut self, files: &dyn Files, root: &Node) -> bool {
        // Folders that are still to be searched, each with its path.
        let mut open = vec![(Vec::new(), root.clone(), 0_usize)];
        while let Some((path, folder, depth)) = open.pop() {
            if let Some(content) = folder.content
                && self.seen.len() < FOLDERS_MAX
                && !self.seen.insert(content)
            {
                continue;
            }
            for node in files.nodes(&folder) {
                if Instant::now() >= self.until || self.result.found.len() >= FOUND_MAX {
                    return false;
                }
                let Ok(node) = node else {
                    self.result.has_gaps = true;
                    break;
                };
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let below = [&path, slash, &node.name].concat();
                if String::from_utf8_lossy(&node.name).to_lowercase().contains(self.wanted)
                    && self.paths.insert((SeriesName::of(self.snapshot), below.clone()))
                {
                    self.result.found.push(FoundName {
                        snapshot: self.snapshot,
                        path: below.clone(),
                        node: node.clone(),
                    });
                }
                if node.kind == NodeKind::Folder && depth < DEPTH_MAX {
                    open.push((below, node, depth + 1));
                }
            }
        }
        true
    }
}

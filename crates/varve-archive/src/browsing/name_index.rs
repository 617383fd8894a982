//! The names in all snapshots of folders, for a search without a walk.
//!
//! ```text
//! snapshot ─▶ folders that changed since the snapshot before ─▶ names of each folder, with the
//!             snapshots that have them ─▶ search ─▶ path, and the newest snapshot that has it
//! ```
//!
//! The index only proposes paths: a reader looks each one up in its snapshot. It may be dropped at
//! any time, and is made anew from the snapshots. It takes the length of each name and eight bytes,
//! however many snapshots have the name.

mod folder_names;
mod name_matcher;
mod saved_names;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use varve_world::Timestamp;

use self::folder_names::IndexedFolder;
use self::name_matcher::NameMatcher;
use crate::browsing::files::Files;
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_id::SnapshotId;
use crate::records::node::{Node, NodeKind};

/// Names are not indexed beyond these bytes in all.
const INDEX_BYTES_MAX: usize = 256 << 20;
/// Deeper folders are not indexed.
const DEPTH_MAX: usize = 256;

/// The host and the name of a series of snapshots.
type SeriesKey = (String, String);

/// The names in snapshots of folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameIndex {
    series: BTreeMap<SeriesKey, IndexedSeries>,
}

/// The names in the snapshots of one series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct IndexedSeries {
    /// By time, the oldest first. Their numbers are in the spans of the names.
    snapshots: Vec<IndexedSnapshot>,
    /// By path. The root has an empty path.
    folders: BTreeMap<Vec<u8>, IndexedFolder>,
    /// True if a folder was unreadable.
    has_gaps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IndexedSnapshot {
    time: Timestamp,
    id: SnapshotId,
}

/// A path in the index, with the newest listed snapshot that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexedPath {
    pub host: String,
    pub series: String,
    /// The folder, and the name in it.
    pub folder: Vec<u8>,
    pub name: Vec<u8>,
    pub snapshot: SnapshotId,
}

impl IndexedPath {
    /// The whole path within the snapshot.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        join(&self.folder, &self.name)
    }
}

/// The reason for which an index was not brought up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpdateNamesError {
    #[error("the names of all snapshots take more than {} MiB", INDEX_BYTES_MAX >> 20)]
    TooLarge,
    #[error("the update was ended")]
    Ended,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundPaths {
    /// By host, series, folder and name.
    pub paths: Vec<IndexedPath>,
    /// True if there are more.
    pub is_cut: bool,
    /// True if a folder of the searched series was unreadable.
    pub has_gaps: bool,
}

impl NameIndex {
    /// Adds the snapshots that are not in the index, and drops series without snapshots. Reads only
    /// folders that changed from one snapshot to the next. Returns true if anything changed.
    ///
    /// # Errors
    /// [`UpdateNamesError`]; the index is then incomplete, and can be brought up to date later.
    pub fn update<'s>(
        &mut self,
        files: &dyn Files,
        snapshots: impl IntoIterator<Item = &'s Snapshot>,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<bool, UpdateNamesError> {
        let mut listed: BTreeMap<SeriesKey, BTreeMap<IndexedSnapshot, &Node>> = BTreeMap::new();
        for snapshot in snapshots {
            if let SnapshotContent::Folder(root) = &snapshot.content {
                let key = (snapshot.host.clone(), snapshot.name.clone());
                let indexed = IndexedSnapshot { time: snapshot.time, id: snapshot.id };
                listed.entry(key).or_default().insert(indexed, root);
            }
        }
        let count = self.series.len();
        self.series.retain(|key, _| listed.contains_key(key));
        let mut is_changed = self.series.len() != count;
        for (key, listed) in listed {
            let mut left = INDEX_BYTES_MAX.saturating_sub(self.bytes());
            let series = self.series.entry(key).or_default();
            if !series.is_continued_by(&listed) {
                *series = IndexedSeries::default();
            }
            let known: BTreeSet<_> = series.snapshots.iter().copied().collect();
            for (indexed, root) in listed.iter().filter(|(indexed, _)| !known.contains(indexed)) {
                let before = series.snapshots.last().and_then(|last| listed.get(last)).copied();
                is_changed = true;
                series.add(files, *indexed, before, root, &mut left, is_ended)?;
            }
        }
        Ok(is_changed)
    }

    /// Returns true if all these snapshots of folders are in the index.
    pub fn has_all<'s>(&self, snapshots: impl IntoIterator<Item = &'s Snapshot>) -> bool {
        let known: BTreeSet<_> =
            self.series.values().flat_map(|series| series.snapshots.iter().map(|one| one.id)).collect();
        let is_known = |snapshot: &Snapshot| {
            matches!(snapshot.content, SnapshotContent::Image(_)) || known.contains(&snapshot.id)
        };
        snapshots.into_iter().all(is_known)
    }

    /// Finds at most `count` paths whose last part contains `text`, without regard to case. The
    /// search begins behind `after`. Only series for which `is_wanted` holds, given their host and
    /// name, are searched, and only snapshots for which `is_listed` holds are proposed.
    pub fn find(
        &self,
        text: &str,
        after: Option<&IndexedPath>,
        count: usize,
        is_wanted: &dyn Fn(&str, &str) -> bool,
        is_listed: &dyn Fn(&SnapshotId) -> bool,
    ) -> FoundPaths {
        let matcher = NameMatcher::new(text);
        let mut result = FoundPaths::default();
        let first = after.map(|after| (after.host.clone(), after.series.clone()));
        let from = first.clone().map_or(Bound::Unbounded, Bound::Included);
        for (key, series) in self.series.range((from, Bound::Unbounded)) {
            let (host, name) = key;
            if !is_wanted(host, name) {
                continue;
            }
            result.has_gaps |= series.has_gaps;
            let is_listed: Vec<bool> = series.snapshots.iter().map(|one| is_listed(&one.id)).collect();
            let after = after.filter(|_| Some(key) == first.as_ref());
            let from = after.map_or(Bound::Unbounded, |after| Bound::Included(after.folder.clone()));
            for (folder, names) in series.folders.range((from, Bound::Unbounded)) {
                let after = after.filter(|after| after.folder == *folder).map(|after| after.name.as_slice());
                for (name, spans) in names.iter() {
                    if after.is_some_and(|after| name <= after) || !matcher.matches(name) {
                        continue;
                    }
                    let Some(number) = folder_names::newest_listed(spans, &is_listed) else { continue };
                    let Some(snapshot) = series.snapshots.get(number) else { continue };
                    if result.paths.len() >= count {
                        result.is_cut = true;
                        return result;
                    }
                    result.paths.push(IndexedPath {
                        host: host.clone(),
                        series: key.1.clone(),
                        folder: folder.clone(),
                        name: name.to_vec(),
                        snapshot: snapshot.id,
                    });
                }
            }
        }
        result
    }

    /// The memory for names and spans, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.series.values().map(IndexedSeries::bytes).sum()
    }
}

impl IndexedSeries {
    fn bytes(&self) -> usize {
        self.folders.iter().map(|(path, names)| path.len() + names.bytes()).sum()
    }

    /// Returns true if the listed snapshots can be added behind those of the index. A series with
    /// an older snapshot that came later, or without its last one, is indexed anew. So is one that
    /// has lost most of its snapshots.
    fn is_continued_by(&self, listed: &BTreeMap<IndexedSnapshot, &Node>) -> bool {
        let Some(last) = self.snapshots.last() else { return true };
        let known = self.snapshots.iter().filter(|one| listed.contains_key(one)).count();
        let not_later = listed.range(..=*last).count();
        let has_news = listed.len() > not_later;
        let is_known_prefix = known == not_later;
        is_known_prefix && known * 2 >= self.snapshots.len() && (!has_news || listed.contains_key(last))
    }

    /// Adds a snapshot. `before` is the root of the one before.
    fn add(
        &mut self,
        files: &dyn Files,
        indexed: IndexedSnapshot,
        before: Option<&Node>,
        root: &Node,
        left: &mut usize,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<(), UpdateNamesError> {
        let number = u32::try_from(self.snapshots.len()).map_err(|_| UpdateNamesError::TooLarge)?;
        let added = self.add_folders(files, number, before, root, left, is_ended);
        match added {
            Ok(()) => self.snapshots.push(indexed),
            // Some spans have this number already, which no snapshot has.
            Err(_) => *self = Self::default(),
        }
        added
    }

    fn add_folders(
        &mut self,
        files: &dyn Files,
        number: u32,
        before: Option<&Node>,
        root: &Node,
        left: &mut usize,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<(), UpdateNamesError> {
        struct Step {
            path: Vec<u8>,
            before: Option<Node>,
            now: Node,
            depth: usize,
        }
        let mut open = vec![Step { path: Vec::new(), before: before.cloned(), now: root.clone(), depth: 0 }];
        while let Some(Step { path, before, now, depth }) = open.pop() {
            if is_ended() {
                return Err(UpdateNamesError::Ended);
            }
            if before.as_ref().is_some_and(|before| before.content == now.content) {
                continue;
            }
            let (mut names, mut folders, mut is_whole) = (Vec::new(), Vec::new(), true);
            for node in files.nodes(&now) {
                let Ok(node) = node else {
                    is_whole = false;
                    break;
                };
                names.push(node.name.clone());
                if node.kind == NodeKind::Folder {
                    folders.push(node);
                }
            }
            self.has_gaps |= !is_whole;
            let mut old: BTreeMap<Vec<u8>, Node> = BTreeMap::new();
            if let Some(before) = &before {
                let nodes = files.nodes(before).map_while(Result::ok);
                old.extend(
                    nodes.filter(|node| node.kind == NodeKind::Folder).map(|node| (node.name.clone(), node)),
                );
            }
            names.sort_unstable();
            let known = self.folders.entry(path.clone()).or_default();
            let bytes = known.bytes();
            known.apply(&names, number, is_whole);
            let grown = known.bytes().saturating_sub(bytes);
            *left = left.checked_sub(grown).ok_or(UpdateNamesError::TooLarge)?;
            if depth >= DEPTH_MAX {
                self.has_gaps |= !folders.is_empty();
                continue;
            }
            for node in folders {
                let path = join(&path, &node.name);
                open.push(Step { before: old.remove(&node.name), path, now: node, depth: depth + 1 });
            }
            if is_whole {
                for name in old.keys() {
                    self.end_below(&join(&path, name), number);
                }
            }
        }
        Ok(())
    }

    /// Ends the spans of all names in a folder that is gone, and in the folders below it.
    fn end_below(&mut self, path: &[u8], number: u32) {
        if let Some(names) = self.folders.get_mut(path) {
            names.apply(&[], number, true);
        }
        let inside = [path, b"/"].concat();
        let below = self.folders.range_mut(inside.clone()..);
        for (_, names) in below.take_while(|(folder, _)| folder.starts_with(&inside)) {
            names.apply(&[], number, true);
        }
    }
}

/// Joins a folder and a name. The root of a snapshot is an empty path.
fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    [folder, slash, name].concat()
}

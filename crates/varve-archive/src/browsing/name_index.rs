//! The names in all snapshots of folders and disks, for a search without a walk.
//!
//! ```text
//! snapshot ─▶ folders that changed since the snapshot before ─▶ names of each folder, with the
//!             snapshots that have them ─▶ search ─▶ path, and the newest snapshot that has it
//! ```
//!
//! The folders inside a disk do not show whether they changed, so all folders of a changed disk are
//! read. A disk in a file of an archived folder is that file alone.
//!
//! The index only proposes paths: a reader looks each one up in its snapshot. It may be dropped at
//! any time, and is made anew from the snapshots. Names are kept without the bytes that they share
//! with the name before, and take about four bytes more, however many snapshots have the name.

mod folder_names;
mod name_matcher;
mod packed_names;
mod saved_names;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use varve_content::{Files, Node, NodeKind};
use varve_world::Timestamp;

use self::folder_names::{IndexedFolder, NameList};
use self::name_matcher::NameMatcher;
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_id::SnapshotId;

/// Names are not indexed beyond these bytes in all.
const INDEX_BYTES_MAX: usize = 128 << 20;
/// The memory for a folder beside its path and names: its place in the map, and two allocations.
const FOLDER_BYTES: usize = 96;
/// Deeper folders are not indexed.
const DEPTH_MAX: usize = 256;

/// The host and the name of a series of snapshots.
type SeriesKey = (String, String);

/// The files of a snapshot, and their root.
pub struct OpenedSnapshot<'f> {
    pub files: Arc<dyn Files + 'f>,
    pub root: Node,
}

/// The names in snapshots of folders and disks.
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
    folders: BTreeMap<Box<[u8]>, IndexedFolder>,
    /// True if a folder was unreadable.
    has_gaps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IndexedSnapshot {
    time: Timestamp,
    id: SnapshotId,
}

impl IndexedSnapshot {
    fn of(snapshot: &Snapshot) -> Self {
        Self { time: snapshot.time, id: snapshot.id }
    }
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

/// The result of an update that met no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamesUpdate {
    /// The index has changed.
    pub is_changed: bool,
    /// The index has all snapshots.
    pub is_whole: bool,
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
    /// Adds at most `most` of the snapshots that are not in the index, and drops series without
    /// snapshots. `open` opens a snapshot. Reads only folders that changed from one snapshot to the
    /// next, and all folders of a disk that changed.
    ///
    /// # Errors
    /// [`UpdateNamesError`]; the index is then incomplete, and can be brought up to date later.
    pub fn update<'s, 'f>(
        &mut self,
        open: &dyn Fn(&Snapshot) -> OpenedSnapshot<'f>,
        snapshots: impl IntoIterator<Item = &'s Snapshot>,
        most: usize,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<NamesUpdate, UpdateNamesError> {
        let mut listed: BTreeMap<SeriesKey, BTreeMap<IndexedSnapshot, &Snapshot>> = BTreeMap::new();
        for snapshot in snapshots {
            listed.entry(series_key(snapshot)).or_default().insert(IndexedSnapshot::of(snapshot), snapshot);
        }
        let count = self.series.len();
        self.series.retain(|key, _| listed.contains_key(key));
        let mut update = NamesUpdate { is_changed: self.series.len() != count, is_whole: true };
        let mut added = 0;
        for (key, listed) in listed {
            let mut left = INDEX_BYTES_MAX.saturating_sub(self.bytes());
            let series = self.series.entry(key).or_default();
            if !series.is_continued_by(&listed) {
                *series = IndexedSeries::default();
            }
            let known: BTreeSet<_> = series.snapshots.iter().copied().collect();
            for (indexed, snapshot) in listed.iter().filter(|(indexed, _)| !known.contains(indexed)) {
                if added == most {
                    update.is_whole = false;
                    return Ok(update);
                }
                let before = series.snapshots.last().and_then(|last| listed.get(last)).copied();
                series.add(open, *indexed, before, snapshot, &mut left, is_ended)?;
                update.is_changed = true;
                added += 1;
            }
        }
        Ok(update)
    }

    /// Returns true if all these snapshots are in the index.
    pub fn has_all<'s>(&self, snapshots: impl IntoIterator<Item = &'s Snapshot>) -> bool {
        let is_known = |snapshot: &Snapshot| {
            let series = self.series.get(&series_key(snapshot));
            series
                .is_some_and(|series| series.snapshots.binary_search(&IndexedSnapshot::of(snapshot)).is_ok())
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
            let from = after.map_or(Bound::Unbounded, |after| Bound::Included(after.folder.as_slice()));
            for (folder, names) in series.folders.range::<[u8], _>((from, Bound::Unbounded)) {
                let after =
                    after.filter(|after| *after.folder == **folder).map(|after| after.name.as_slice());
                let mut names = names.cursor();
                while names.advance() {
                    let name = names.name();
                    if after.is_some_and(|after| name <= after) || !matcher.matches(name) {
                        continue;
                    }
                    let Some(number) = folder_names::newest_listed(names.spans(), &is_listed) else {
                        continue;
                    };
                    let Some(snapshot) = series.snapshots.get(number) else { continue };
                    if result.paths.len() >= count {
                        result.is_cut = true;
                        return result;
                    }
                    result.paths.push(IndexedPath {
                        host: host.clone(),
                        series: key.1.clone(),
                        folder: folder.to_vec(),
                        name: name.to_vec(),
                        snapshot: snapshot.id,
                    });
                }
            }
        }
        result
    }

    /// The memory for folders, names and spans, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.series.values().map(IndexedSeries::bytes).sum()
    }
}

impl IndexedSeries {
    fn bytes(&self) -> usize {
        self.folders.iter().map(|(path, names)| folder_bytes(path, names)).sum()
    }

    /// Returns true if the listed snapshots can be added behind those of the index. A series with
    /// an older snapshot that came later, or without its last one, is indexed anew. So is one that
    /// has lost most of its snapshots.
    fn is_continued_by(&self, listed: &BTreeMap<IndexedSnapshot, &Snapshot>) -> bool {
        let Some(last) = self.snapshots.last() else { return true };
        let known = self.snapshots.iter().filter(|one| listed.contains_key(one)).count();
        let not_later = listed.range(..=*last).count();
        let has_news = listed.len() > not_later;
        let is_known_prefix = known == not_later;
        is_known_prefix && known * 2 >= self.snapshots.len() && (!has_news || listed.contains_key(last))
    }

    /// Adds a snapshot. `before` is the one before.
    fn add<'f>(
        &mut self,
        open: &dyn Fn(&Snapshot) -> OpenedSnapshot<'f>,
        indexed: IndexedSnapshot,
        before: Option<&Snapshot>,
        snapshot: &Snapshot,
        left: &mut usize,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<(), UpdateNamesError> {
        let number = u32::try_from(self.snapshots.len()).map_err(|_| UpdateNamesError::TooLarge)?;
        let is_same = before.is_some_and(|before| before.content == snapshot.content);
        let added = if is_same {
            Ok(())
        } else {
            // The folders of a disk cannot be compared.
            let is_folder = |one: &&Snapshot| matches!(one.content, SnapshotContent::Folder(_));
            let before = before.filter(is_folder).filter(|_| is_folder(&snapshot)).map(open);
            self.add_folders(before, open(snapshot), number, left, is_ended)
        };
        match added {
            Ok(()) => self.snapshots.push(indexed),
            // Some spans have this number already, which no snapshot has.
            Err(_) => *self = Self::default(),
        }
        added
    }

    fn add_folders(
        &mut self,
        before: Option<OpenedSnapshot<'_>>,
        now: OpenedSnapshot<'_>,
        number: u32,
        left: &mut usize,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<(), UpdateNamesError> {
        struct Step {
            path: Vec<u8>,
            before: Option<Node>,
            now: Node,
            depth: usize,
        }
        let files = now.files;
        let (files_before, root_before) =
            before.map_or((None, None), |before| (Some(before.files), Some(before.root)));
        let mut open = vec![Step { path: Vec::new(), before: root_before, now: now.root, depth: 0 }];
        while let Some(Step { path, before, now, depth }) = open.pop() {
            if is_ended() {
                return Err(UpdateNamesError::Ended);
            }
            if now.content.is_some() && before.as_ref().is_some_and(|before| before.content == now.content) {
                continue;
            }
            let (mut names, mut folders, mut is_whole) = (NameList::default(), Vec::new(), true);
            for node in files.nodes(&now) {
                let Ok(node) = node else {
                    is_whole = false;
                    break;
                };
                names.push(&node.name);
                if node.kind == NodeKind::Folder {
                    folders.push(node);
                }
            }
            self.has_gaps |= !is_whole;
            names.sort();
            folders.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            let gone = if is_whole { self.folders_but(&path, &folders) } else { Vec::new() };
            let bytes_before =
                self.folders.get(path.as_slice()).map_or(0, |known| folder_bytes(&path, known));
            let known = self.folders.entry(path.as_slice().into()).or_default();
            known.apply(names.iter(), number, is_whole);
            let grown = folder_bytes(&path, known).saturating_sub(bytes_before);
            *left = left.checked_sub(grown).ok_or(UpdateNamesError::TooLarge)?;
            gone.iter().for_each(|gone| self.end_below(gone, number));
            if depth >= DEPTH_MAX {
                self.has_gaps |= !folders.is_empty();
                continue;
            }
            let mut old: BTreeMap<Vec<u8>, Node> = BTreeMap::new();
            if let (Some(files), Some(before)) = (&files_before, &before) {
                let nodes = files.nodes(before).map_while(Result::ok);
                let folders = nodes.filter(|node| node.kind == NodeKind::Folder);
                old.extend(folders.map(|node| (node.name.clone(), node)));
            }
            for node in folders {
                let path = join(&path, &node.name);
                open.push(Step { before: old.remove(&node.name), path, now: node, depth: depth + 1 });
            }
        }
        Ok(())
    }

    /// The paths of the folders that the newest snapshot of the index has in a folder, but for
    /// those in `folders`, which are sorted by name.
    fn folders_but(&self, path: &[u8], folders: &[Node]) -> Vec<Vec<u8>> {
        let Some(known) = self.folders.get(path) else { return Vec::new() };
        let is_left = |name: &[u8]| folders.binary_search_by(|one| one.name.as_slice().cmp(name)).is_err();
        let left = known.newest(is_left).into_iter().map(|name| join(path, &name));
        left.filter(|path| self.folders.contains_key(path.as_slice())).collect()
    }

    /// Ends the spans of all names in a folder that is gone, and in the folders below it.
    fn end_below(&mut self, path: &[u8], number: u32) {
        if let Some(names) = self.folders.get_mut(path) {
            names.apply([], number, true);
        }
        let inside = [path, b"/"].concat();
        let from = (Bound::Included(inside.as_slice()), Bound::Unbounded);
        let below = self.folders.range_mut::<[u8], _>(from);
        for (_, names) in below.take_while(|(folder, _)| folder.starts_with(&inside)) {
            names.apply([], number, true);
        }
    }
}

/// The memory for a folder, in bytes.
fn folder_bytes(path: &[u8], names: &IndexedFolder) -> usize {
    path.len() + names.packed().len() + FOLDER_BYTES
}

fn series_key(snapshot: &Snapshot) -> SeriesKey {
    (snapshot.host.clone(), snapshot.name.clone())
}

/// Joins a folder and a name. The root of a snapshot is an empty path.
fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
    [folder, slash, name].concat()
}

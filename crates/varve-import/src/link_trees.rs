//! Folders of hard-linked trees: rsnapshot, rsync with `--link-dest`, Back In Time and the like.
//! Each folder in the given folder is a snapshot. A file that is a hard link to one of an earlier
//! snapshot is not opened again: one status shows that it is the same.
//!
//! ```text
//! WalkAhead, on a thread ── LinkTree ── steps ──> LinkTrees::tree ──> Importer
//!                              ├── several_names: the files that have two names in this tree
//!                              └── SeenInodes: the attributes of the files of earlier trees
//! ```

mod link_tree;
mod seen_inodes;
mod several_names;
mod walk_ahead;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use parking_lot::Mutex;
use varve_content::folder::DescriptionError;
use varve_world::Timestamp;

use self::link_tree::{LinkStep, LinkTree, SharedByTrees};
use self::walk_ahead::WalkAhead;
use crate::dated_name::time_in_name;
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};

/// The origin of the times of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSource {
    /// A date in the name of each folder.
    Names,
    /// The modification time of each folder, which rsnapshot sets.
    Mtime,
}

/// Why a folder is not a folder of snapshots.
#[derive(Debug, thiserror::Error)]
pub enum OpenLinkTreesError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no date in its name", path.display())]
    NoDate { path: PathBuf },
    #[error("there is no folder in {}", path.display())]
    Empty { path: PathBuf },
    #[error("{} and {} have the same time: the order of these snapshots is not known", one.display(), other.display())]
    SameTime { one: PathBuf, other: PathBuf },
}

/// A folder of hard-linked trees.
pub struct LinkTrees {
    kind: &'static str,
    folders: Vec<PathBuf>,
    snapshots: Vec<ForeignSnapshot>,
    /// Names that are no snapshots.
    skipped: Vec<PathBuf>,
    shared: Arc<SharedByTrees>,
    /// The walk of the tree that will probably be requested next, and the tree's place.
    next: Mutex<Option<(usize, WalkAhead<LinkStep>)>>,
}

impl LinkTrees {
    /// Lists the snapshots in a folder. Names that begin with a dot or an underscore, and names of
    /// files, are skipped.
    ///
    /// # Errors
    /// [`OpenLinkTreesError`].
    pub fn open(
        kind: &'static str,
        folder: &Path,
        times: TimeSource,
        host: &str,
    ) -> Result<Self, OpenLinkTreesError> {
        let unread = |path: &Path, source| OpenLinkTreesError::Read { path: path.into(), source };
        let whole = folder.canonicalize().map_err(|error| unread(folder, error))?;
        let mut found = Vec::new();
        let mut skipped = Vec::new();
        for entry in fs::read_dir(&whole).map_err(|error| unread(folder, error))? {
            let entry = entry.map_err(|error| unread(folder, error))?;
            let path = entry.path();
            let name = entry.file_name();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_folder || matches!(name.as_bytes().first(), Some(b'.' | b'_')) {
                skipped.push(path);
                continue;
            }
            let (time, id) = match times {
                TimeSource::Names => {
                    let name = name.to_string_lossy();
                    let time = time_in_name(&name, &TimeZone::system());
                    (time.ok_or(OpenLinkTreesError::NoDate { path: path.clone() })?, name.into_owned())
                }
                TimeSource::Mtime => {
                    let status = fs::symlink_metadata(&path).map_err(|error| unread(&path, error))?;
                    let seconds = status.mtime().saturating_mul(1_000_000_000);
                    let time = Timestamp(seconds.saturating_add(status.mtime_nsec()));
                    // The name changes with each rotation, and the time does not.
                    (time, time.0.to_string())
                }
            };
            found.push((time, path, id));
        }
        skipped.sort();
        found.sort();
        for pair in found.windows(2) {
            if let [(time, one, _), (next, other, _)] = pair
                && time == next
            {
                return Err(OpenLinkTreesError::SameTime { one: one.clone(), other: other.clone() });
            }
        }
        if found.is_empty() {
            return Err(OpenLinkTreesError::Empty { path: folder.into() });
        }
        let source = whole.as_os_str().as_bytes().to_vec();
        let snapshot = |(time, _, id): &(Timestamp, PathBuf, String)| ForeignSnapshot {
            id: id.clone(),
            time: *time,
            host: host.to_owned(),
            source: source.clone(),
            earlier_ids: Vec::new(),
            tags: Vec::new(),
        };
        let snapshots = found.iter().map(snapshot).collect();
        let folders = found.into_iter().map(|(_, path, _)| path).collect();
        Ok(Self { kind, folders, snapshots, skipped, shared: Arc::default(), next: Mutex::default() })
    }

    /// The names in the folder that are no snapshots.
    #[must_use]
    pub fn skipped(&self) -> &[PathBuf] {
        &self.skipped
    }

    /// The folder of the snapshot at this place.
    #[must_use]
    pub fn folder(&self, place: usize) -> Option<&Path> {
        self.folders.get(place).map(PathBuf::as_path)
    }

    /// Begins to walk the tree at this place, if there is one.
    fn start(&self, place: usize) -> Option<WalkAhead<LinkStep>> {
        let (folder, shared) = (Arc::from(self.folder(place)?), Arc::clone(&self.shared));
        Some(WalkAhead::start(move |stop| Ok(LinkTree::open(folder, shared, stop)?)))
    }
}

impl ForeignArchive for LinkTrees {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn snapshots(&self) -> &[ForeignSnapshot] {
        &self.snapshots
    }

    fn tree(&self, place: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError> {
        let started = self.next.lock().take().filter(|(started, _)| *started == place);
        let walk = started.map(|(_, walk)| walk).or_else(|| self.start(place));
        let mut walk = walk.ok_or("there is no such snapshot")?;
        walk.wait_until_open()?;
        // Two walks at a time: one of them waits for the disk while the other one does not.
        let next = place + 1;
        *self.next.lock() = self.start(next).map(|walk| (next, walk));
        Ok(Box::new(WalkedTree(walk)))
    }
}

/// A tree that is walked on a thread of its own.
struct WalkedTree(WalkAhead<LinkStep>);

impl ForeignTree for WalkedTree {
    fn next(&mut self, _: Option<&ForeignContents<'_>>) -> Result<Option<ForeignStep>, DescriptionError> {
        Ok(self.0.next()?.map(LinkStep::into_foreign))
    }
}

#[cfg(test)]
mod tests;

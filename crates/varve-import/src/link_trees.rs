//! Folders of hard-linked trees: rsnapshot, rsync with `--link-dest`, Back In Time and the like.
//! Each folder in the given folder is a snapshot. A file that is a hard link to one of an earlier
//! snapshot is not read again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use varve_archive::folder::{
    ContentSink, DescriptionError, FileContent, HostEntry, HostFolder, HostIdentity, TreeStep,
};
use varve_archive::{Node, NodeKind};
use varve_world::Timestamp;

use crate::dated_name::time_in_name;
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};
use crate::seen_contents::ContentId;

/// The deepest folder that is read.
const DEPTH_MAX: usize = 4096;

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
            tags: Vec::new(),
        };
        let snapshots = found.iter().map(snapshot).collect();
        let folders = found.into_iter().map(|(_, path, _)| path).collect();
        Ok(Self { kind, folders, snapshots, skipped })
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
}

impl ForeignArchive for LinkTrees {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn snapshots(&self) -> &[ForeignSnapshot] {
        &self.snapshots
    }

    fn tree(&self, place: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError> {
        let folder = self.folder(place).ok_or("there is no such snapshot")?;
        let (root, node) = HostFolder::open(folder)?;
        let several = files_with_several_names(&root)?;
        Ok(Box::new(LinkTree {
            folder: Arc::from(folder),
            begin: Some((root, node)),
            open: Vec::new(),
            path: Vec::new(),
            waiting: None,
            several,
            begun: BTreeSet::new(),
        }))
    }
}

/// The device and the inode of a file.
type LinkedFileId = (u32, u32, u64);

/// The files that have several names inside one snapshot. Most files of such a tree have several
/// names, but in different snapshots.
fn files_with_several_names(root: &HostFolder) -> io::Result<BTreeSet<LinkedFileId>> {
    let mut seen: Vec<LinkedFileId> = Vec::new();
    let mut open = vec![(None, root.names()?.into_iter())];
    loop {
        let depth = open.len();
        let Some((folder, names)) = open.last_mut() else { break };
        let Some(name) = names.next() else {
            open.pop();
            continue;
        };
        let folder: &HostFolder = folder.as_ref().unwrap_or(root);
        // The walk that archives reports unreadable names.
        let Ok(HostIdentity { kind, file_id: id, link_count }) = folder.identify(&name) else { continue };
        if kind == Some(NodeKind::Folder) {
            if depth < DEPTH_MAX
                && let Ok(below) = folder.folder(&name)
                && let Ok(names) = below.names()
            {
                open.push((Some(below), names.into_iter()));
            }
        } else if link_count > 1 {
            seen.push(id);
        }
    }
    seen.sort_unstable();
    let several = seen.windows(2).filter_map(|pair| match pair {
        [one, other] if one == other => Some(*one),
        _ => None,
    });
    Ok(several.collect())
}

/// A walk over a snapshot.
struct LinkTree {
    folder: Arc<Path>,
    begin: Option<(HostFolder, Node)>,
    open: Vec<(HostFolder, std::vec::IntoIter<Vec<u8>>)>,
    /// The names of the open folders below the root.
    path: Vec<Vec<u8>>,
    waiting: Option<TreeStep>,
    several: BTreeSet<LinkedFileId>,
    begun: BTreeSet<u64>,
}

impl LinkTree {
    fn enter(&mut self, folder: HostFolder, mut node: Node) -> ForeignStep {
        let names = folder.names().unwrap_or_else(|error| {
            node.problem = Some(varve_archive::NodeProblem::Unreadable);
            self.waiting = Some(TreeStep::Harmed { name: Vec::new(), error: error.into() });
            Vec::new()
        });
        self.open.push((folder, names.into_iter()));
        ForeignStep::Tree(TreeStep::Open(node))
    }

    fn step(&mut self, name: &[u8]) -> Result<ForeignStep, DescriptionError> {
        let Some((folder, _)) = self.open.last() else { return Err("no folder is open".into()) };
        let HostEntry { mut node, file_id } = folder.entry(name)?;
        // The inode is that of the copy, and not of the archived file.
        node.inode = 0;
        if node.kind == NodeKind::Folder {
            if self.open.len() >= DEPTH_MAX {
                return Err("the folders are nested too deeply".into());
            }
            let below = folder.folder(name)?;
            self.path.push(name.to_vec());
            return Ok(self.enter(below, node));
        }
        if self.several.contains(&file_id) {
            node.link_group = Some(file_id.2);
            if !self.begun.insert(file_id.2) {
                return Ok(ForeignStep::Tree(TreeStep::Link(node)));
            }
        }
        if node.kind != NodeKind::File || node.size == 0 {
            return Ok(ForeignStep::Tree(TreeStep::Entry(node)));
        }
        let id = content_id(file_id, &node);
        let path = self.path.iter().cloned().chain([name.to_vec()]).collect();
        let content = LinkedContent { folder: Arc::clone(&self.folder), path };
        Ok(ForeignStep::File { node, id, content: Box::new(content) })
    }
}

impl ForeignTree for LinkTree {
    fn next(&mut self, _: Option<&ForeignContents<'_>>) -> Result<Option<ForeignStep>, DescriptionError> {
        if let Some((folder, node)) = self.begin.take() {
            let node = Node { inode: 0, ..node };
            return Ok(Some(self.enter(folder, node)));
        }
        if let Some(step) = self.waiting.take() {
            return Ok(Some(ForeignStep::Tree(step)));
        }
        let Some((_, names)) = self.open.last_mut() else { return Ok(None) };
        let Some(name) = names.next() else {
            self.open.pop();
            self.path.pop();
            return Ok(Some(ForeignStep::Tree(TreeStep::Close)));
        };
        let step = self.step(&name);
        Ok(Some(step.unwrap_or_else(|error| ForeignStep::Tree(TreeStep::Lost { name, error }))))
    }
}

/// The same inode with the same size and time has the same content.
fn content_id((major, minor, inode): LinkedFileId, node: &Node) -> ContentId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&major.to_le_bytes()).update(&minor.to_le_bytes()).update(&inode.to_le_bytes());
    hasher.update(&node.size.to_le_bytes());
    hasher.update(&node.mtime.seconds().to_le_bytes());
    hasher.update(&node.mtime.subsecond_nanoseconds().to_le_bytes());
    *hasher.finalize().as_bytes()
}

/// The content of a file, which is opened only when it is read, so that few files are open.
struct LinkedContent {
    folder: Arc<Path>,
    /// The names from the root of the snapshot to the file.
    path: Vec<Vec<u8>>,
}

impl FileContent for LinkedContent {
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        let (mut folder, _) = HostFolder::open(&self.folder)?;
        let Some((name, folders)) = self.path.split_last() else { return Err("it has no name".into()) };
        for name in folders {
            folder = folder.folder(name)?;
        }
        folder.file(name)?.write_to(into)
    }
}

//! The snapshots of a repository, and their trees as steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use varve_content::folder::{ContentSink, DescriptionError, FOLDER_DEPTH_MAX, FileContent, TreeStep};
use varve_content::{Node, NodeKind, NodeProblem};
use varve_image::FileTime;
use varve_world::Timestamp;

use super::index::PackedKind;
use super::restic_folder::{OpenResticError, ResticFolder, ResticProblem};
use super::restic_id::ResticId;
use super::tree::{ResticNode, parse_tree, time};
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};
use crate::seen_contents::ContentId;

/// A list of files may occur in many folders. Of all folders of a snapshot together, this many
/// times the bytes of all lists in the repository are read, and [`TREE_BYTES_MIN`] more.
const TREE_TIMES_MAX: u64 = 256;
const TREE_BYTES_MIN: u64 = 64 << 20;
/// Upper bound on the nodes of the open folders that wait in memory, each about half a kilobyte.
const WAITING_COUNT_MAX: usize = 4 << 20;
/// A change time this close to the time of the snapshot is no evidence: the file may have changed
/// once more without a visible sign.
const TRUST_NANOSECONDS: i64 = 2_050_000_000;

/// Selects snapshots of a repository.
#[derive(Debug, Clone, Default)]
pub struct ResticFilter {
    pub hosts: Vec<String>,
    pub paths: Vec<String>,
}

/// A repository as a source of snapshots.
pub struct ResticArchive {
    kind: &'static str,
    repository: Arc<ResticFolder>,
    snapshots: Vec<ForeignSnapshot>,
    /// For each snapshot, its tree and the folder in it that is archived.
    trees: Vec<SnapshotTree>,
    problems: Vec<ResticProblem>,
}

struct SnapshotTree {
    tree: ResticId,
    /// The paths that the snapshot was taken of.
    paths: Vec<String>,
    time: Timestamp,
}

#[derive(Deserialize)]
struct SnapshotJson {
    time: String,
    tree: ResticId,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    hostname: String,
    tags: Option<Vec<String>>,
    /// The first id, if restic has written the snapshot anew: `tag`, `rewrite`, `copy`.
    original: Option<ResticId>,
}

impl ResticArchive {
    /// Opens the repository in a folder. `kind` is the word before the ids in tags.
    ///
    /// # Errors
    /// [`OpenResticError`].
    pub fn open(
        kind: &'static str,
        folder: &Path,
        password: &[u8],
        filter: &ResticFilter,
    ) -> Result<Self, OpenResticError> {
        let repository = Arc::new(ResticFolder::open(folder, password)?);
        let mut problems = repository.problems().to_vec();
        let files = repository
            .files_in("snapshots")
            .map_err(|source| OpenResticError::Read { path: folder.join("snapshots"), source })?;
        let mut found = Vec::new();
        for path in files {
            match read_snapshot(&repository, &path) {
                Ok(snapshot) => found.push((snapshot, file_id(&path))),
                Err(reason) => problems.push(ResticProblem { path, reason }),
            }
        }
        let is_chosen = |json: &SnapshotJson| {
            (filter.hosts.is_empty() || filter.hosts.contains(&json.hostname))
                && (filter.paths.is_empty() || json.paths.iter().any(|path| filter.paths.contains(path)))
        };
        found.retain(|((json, _), _)| is_chosen(json));
        found.sort_by(|((_, one), one_id), ((_, other), other_id)| (one, one_id).cmp(&(other, other_id)));
        let (mut snapshots, mut trees) = (Vec::new(), Vec::new());
        for ((json, time), id) in found {
            let source = match json.paths.as_slice() {
                [only] => only.clone().into_bytes(),
                several => several.join(" ").into_bytes(),
            };
            let tags = json.tags.unwrap_or_default().iter().map(|tag| as_tag(tag)).collect();
            let earlier_ids = json.original.map(|id| id.to_string()).into_iter().collect();
            snapshots.push(ForeignSnapshot { id, earlier_ids, time, host: json.hostname, source, tags });
            trees.push(SnapshotTree { tree: json.tree, paths: json.paths, time });
        }
        Ok(Self { kind, repository, snapshots, trees, problems })
    }

    /// The files of the repository that cannot be read.
    #[must_use]
    pub fn problems(&self) -> &[ResticProblem] {
        &self.problems
    }

    /// The path inside restic's own restore at which the archived folder of a snapshot lies.
    ///
    /// # Errors
    /// The tree of the snapshot is unreadable.
    pub fn restored_path(&self, place: usize) -> Result<PathBuf, DescriptionError> {
        let tree = self.trees.get(place).ok_or("there is no such snapshot")?;
        let root = self.root(tree)?;
        Ok(root.path)
    }

    /// The id of a snapshot.
    ///
    /// # Errors
    /// There is no such snapshot.
    pub fn snapshot_id(&self, place: usize) -> Result<&str, DescriptionError> {
        Ok(self.snapshots.get(place).map(|one| one.id.as_str()).ok_or("there is no such snapshot")?)
    }

    /// The folder of a snapshot that is archived: the folder that restic was called with, or
    /// everything if there were several, or if it was a file.
    fn root(&self, snapshot: &SnapshotTree) -> Result<SnapshotRoot, DescriptionError> {
        let nodes = self.nodes(snapshot.tree)?;
        if let [path] = snapshot.paths.as_slice() {
            let whole: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
            let last = whole.last().copied();
            let candidates = [Some(whole), last.map(|last| vec![last])];
            for parts in candidates.into_iter().flatten() {
                if let Some((node, subtree)) = self.descend(&nodes, &parts)? {
                    return Ok(SnapshotRoot { node, tree: Some(subtree), path: parts.iter().collect() });
                }
            }
        }
        let mut node = Node::new(Vec::new(), NodeKind::Folder);
        node.mode = 0o755;
        node.mtime = FileTime::from_nanoseconds(snapshot.time.0);
        Ok(SnapshotRoot { node, tree: Some(snapshot.tree), path: PathBuf::new() })
    }

    /// Follows a path from the root of a snapshot. Returns the folder at its end.
    fn descend(
        &self,
        nodes: &[ResticNode],
        parts: &[&str],
    ) -> Result<Option<(Node, ResticId)>, DescriptionError> {
        let Some((last, way)) = parts.split_last() else { return Ok(None) };
        let mut nodes = nodes.to_vec();
        for part in way {
            let Some((_, subtree)) = only_folder(&nodes, part) else { return Ok(None) };
            nodes = self.nodes(subtree)?;
        }
        Ok(only_folder(&nodes, last))
    }

    fn nodes(&self, tree: ResticId) -> Result<Vec<ResticNode>, DescriptionError> {
        let bytes = self.repository.packed(tree, PackedKind::Tree)?;
        Ok(parse_tree(&bytes)?)
    }
}

/// The only node, if it is a folder of this name. Each folder on the way to the archived one is
/// alone in its folder. Otherwise the snapshot holds more.
fn only_folder(nodes: &[ResticNode], name: &str) -> Option<(Node, ResticId)> {
    let [ResticNode { node, subtree, .. }] = nodes else { return None };
    let is_it = node.name == name.as_bytes() && node.kind == NodeKind::Folder;
    Some((node.clone(), subtree.filter(|_| is_it)?))
}

/// The folder of a snapshot that becomes the root.
struct SnapshotRoot {
    node: Node,
    tree: Option<ResticId>,
    /// Its path in the tree of the snapshot.
    path: PathBuf,
}

fn read_snapshot(repository: &ResticFolder, path: &Path) -> Result<(SnapshotJson, Timestamp), String> {
    let plain = repository.file(path)?;
    let json: SnapshotJson = serde_json::from_slice(&plain).map_err(|error| error.to_string())?;
    let nanoseconds = time(&json.time).and_then(FileTime::nanoseconds);
    let time = Timestamp(nanoseconds.ok_or("its time is malformed")?);
    Ok((json, time))
}

fn file_id(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A tag of restic as one of ours, which have a key.
fn as_tag(tag: &str) -> String {
    if tag.contains('=') && !tag.starts_with("vac=") { tag.to_owned() } else { format!("tag={tag}") }
}

impl ForeignArchive for ResticArchive {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn snapshots(&self) -> &[ForeignSnapshot] {
        &self.snapshots
    }

    fn tree(&self, place: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError> {
        let snapshot = self.trees.get(place).ok_or("there is no such snapshot")?;
        let SnapshotRoot { node, tree, .. } = self.root(snapshot)?;
        let root = Some((Node { name: Vec::new(), ..node }, tree));
        let trusted = FileTime::from_nanoseconds(snapshot.time.0.saturating_sub(TRUST_NANOSECONDS));
        Ok(Box::new(ResticTree {
            archive: self,
            root,
            open: Vec::new(),
            waiting: None,
            groups: BTreeMap::new(),
            begun: BTreeSet::new(),
            trusted,
            waiting_count: 0,
            tree_bytes_left: self
                .repository
                .all_tree_bytes()
                .saturating_mul(TREE_TIMES_MAX)
                .saturating_add(TREE_BYTES_MIN),
        }))
    }
}

/// A walk over the tree of a snapshot.
struct ResticTree<'a> {
    archive: &'a ResticArchive,
    root: Option<(Node, Option<ResticId>)>,
    /// The remaining nodes of each open folder.
    open: Vec<std::vec::IntoIter<ResticNode>>,
    /// The next step, if it is known already.
    waiting: Option<TreeStep>,
    /// Link groups, and the files to which they belong.
    groups: BTreeMap<u64, (u64, u64)>,
    /// The link groups of which a name was passed on.
    begun: BTreeSet<u64>,
    /// A change time before this is evidence that a file is unchanged.
    trusted: FileTime,
    /// The nodes that wait in all open folders.
    waiting_count: usize,
    /// The bytes of lists of files that may still be read.
    tree_bytes_left: u64,
}

impl ResticTree<'_> {
    fn open_folder(&mut self, mut node: Node, tree: Option<ResticId>) -> ForeignStep {
        node.ctime = None;
        let listed = match tree {
            Some(_) if self.open.len() >= FOLDER_DEPTH_MAX => {
                Err(format!("it is more than {FOLDER_DEPTH_MAX} folders deep").into())
            }
            Some(tree) => self.nodes(tree),
            None => Err("the list of its files is missing".into()),
        };
        let nodes = listed.unwrap_or_else(|error| {
            node.problem = Some(NodeProblem::Unreadable);
            self.waiting = Some(TreeStep::Harmed { name: Vec::new(), error });
            Vec::new()
        });
        self.waiting_count += nodes.len();
        self.open.push(nodes.into_iter());
        ForeignStep::Tree(TreeStep::Open(node))
    }

    /// The files in a folder. A few lists that lead to each other can stand for any number of
    /// folders.
    fn nodes(&mut self, tree: ResticId) -> Result<Vec<ResticNode>, DescriptionError> {
        let bytes = self.archive.repository.packed_bytes(tree).unwrap_or(0);
        self.tree_bytes_left = self.tree_bytes_left.checked_sub(bytes).ok_or(
            "its files are left out: the folders of the snapshot have the same lists of files again and again",
        )?;
        let nodes = self.archive.nodes(tree)?;
        if self.waiting_count.saturating_add(nodes.len()) > WAITING_COUNT_MAX {
            return Err("its files are left out: the folders above it have too many files".into());
        }
        Ok(nodes)
    }

    /// The link group of a file with several names: its inode, unless a file on another device has
    /// that already.
    fn group(&mut self, links: (u64, u64)) -> u64 {
        let mut group = links.1;
        while self.groups.get(&group).is_some_and(|other| *other != links) {
            group = group.wrapping_add(1 << 32 | 1);
        }
        self.groups.insert(group, links);
        group
    }

    fn step(&mut self, found: ResticNode) -> ForeignStep {
        let ResticNode { mut node, content, subtree, links, problem } = found;
        if let Some(problem) = problem {
            return ForeignStep::Tree(TreeStep::Lost { name: node.name, error: problem.into() });
        }
        node.ctime = node.ctime.filter(|ctime| *ctime < self.trusted);
        if node.kind == NodeKind::Folder {
            return self.open_folder(node, subtree);
        }
        if let Some(links) = links {
            let group = self.group(links);
            node.link_group = Some(group);
            if !self.begun.insert(group) {
                return ForeignStep::Tree(TreeStep::Link(node));
            }
        }
        if node.kind != NodeKind::File || content.is_empty() {
            node.size = 0;
            return ForeignStep::Tree(TreeStep::Entry(node));
        }
        let id = content_id(&content);
        let (repository, bytes) = (Arc::clone(&self.archive.repository), node.size);
        let content = ResticContent { repository, blobs: content, bytes };
        ForeignStep::File { node, id, content: Box::new(content) }
    }
}

impl ForeignTree for ResticTree<'_> {
    fn next(&mut self, _: Option<&ForeignContents<'_>>) -> Result<Option<ForeignStep>, DescriptionError> {
        if let Some((node, tree)) = self.root.take() {
            return Ok(Some(self.open_folder(node, tree)));
        }
        if let Some(step) = self.waiting.take() {
            return Ok(Some(ForeignStep::Tree(step)));
        }
        let Some(folder) = self.open.last_mut() else { return Ok(None) };
        match folder.next() {
            Some(node) => {
                self.waiting_count -= 1;
                Ok(Some(self.step(node)))
            }
            None => {
                self.open.pop();
                Ok(Some(ForeignStep::Tree(TreeStep::Close)))
            }
        }
    }
}

/// The same blobs in the same order are the same content.
fn content_id(blobs: &[ResticId]) -> ContentId {
    let mut hasher = blake3::Hasher::new();
    for blob in blobs {
        hasher.update(&blob.0);
    }
    *hasher.finalize().as_bytes()
}

/// The content of a file: blobs, one after the other.
struct ResticContent {
    repository: Arc<ResticFolder>,
    blobs: Vec<ResticId>,
    /// The size of the file.
    bytes: u64,
}

impl FileContent for ResticContent {
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        let known = self.blobs.iter().filter_map(|id| self.repository.packed_bytes(*id));
        let listed = known.fold(0, u64::saturating_add);
        // The list may have one blob any number of times.
        if listed > self.bytes {
            let bytes = self.bytes;
            return Err(format!("its list of blobs has {listed} bytes, and the file has {bytes}").into());
        }
        let mut last: Option<(ResticId, Vec<u8>)> = None;
        for id in &self.blobs {
            let blob = match last.take().filter(|(read, _)| read == id) {
                Some((_, again)) => Ok(again),
                None => self.repository.packed(*id, PackedKind::Data),
            };
            match blob {
                Ok(bytes) => {
                    // restic cuts holes into blobs of zeros.
                    if bytes.iter().all(|byte| *byte == 0) {
                        into.write_zeros(bytes.len() as u64)?;
                    } else {
                        into.write(&bytes)?;
                    }
                    last = Some((*id, bytes));
                }
                Err(error) => match self.repository.packed_bytes(*id) {
                    Some(bytes) => into.lose(bytes, error.into())?,
                    None => return Err(error.into()),
                },
            }
        }
        let (written, bytes) = (into.bytes_written(), self.bytes);
        if written < bytes {
            let text = format!("its list of blobs has {written} bytes, and the file has {bytes}");
            into.lose(0, text.into())?;
        }
        Ok(())
    }
}

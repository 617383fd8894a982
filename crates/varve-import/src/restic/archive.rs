//! The snapshots of a repository, and their trees as steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use varve_archive::folder::{ContentSink, DescriptionError, FileContent, TreeStep};
use varve_archive::{Node, NodeKind, NodeProblem};
use varve_image::FileTime;
use varve_world::Timestamp;

use super::index::PackedKind;
use super::restic_folder::{OpenResticError, ResticFolder, ResticProblem};
use super::restic_id::ResticId;
use super::tree::{ResticNode, parse_tree, time};
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};
use crate::seen_contents::ContentId;

/// The deepest folder that is read. No file system has longer paths.
const DEPTH_MAX: usize = 4096;
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
            snapshots.push(ForeignSnapshot { id, time, host: json.hostname, source, tags });
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

    fn descend(
        &self,
        nodes: &[ResticNode],
        parts: &[&str],
    ) -> Result<Option<(Node, ResticId)>, DescriptionError> {
        let Some((first, rest)) = parts.split_first() else { return Ok(None) };
        // Each folder on the way is alone in its folder. Otherwise the snapshot holds more.
        let [node] = nodes else { return Ok(None) };
        if node.node.name != first.as_bytes() {
            return Ok(None);
        }
        let Some(subtree) = node.subtree.filter(|_| node.node.kind == NodeKind::Folder) else {
            return Ok(None);
        };
        if rest.is_empty() {
            return Ok(Some((node.node.clone(), subtree)));
        }
        self.descend(&self.nodes(subtree)?, rest)
    }

    fn nodes(&self, tree: ResticId) -> Result<Vec<ResticNode>, DescriptionError> {
        let bytes = self.repository.packed(tree, PackedKind::Tree)?;
        Ok(parse_tree(&bytes)?)
    }
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
}

impl ResticTree<'_> {
    fn open_folder(&mut self, mut node: Node, tree: Option<ResticId>) -> ForeignStep {
        node.ctime = None;
        let listed = match tree {
            Some(_) if self.open.len() >= DEPTH_MAX => Err("the folders are nested too deeply".into()),
            Some(tree) => self.archive.nodes(tree),
            None => Err("the list of its files is missing".into()),
        };
        let nodes = listed.unwrap_or_else(|error| {
            node.problem = Some(NodeProblem::Unreadable);
            self.waiting = Some(TreeStep::Harmed { name: Vec::new(), error });
            Vec::new()
        });
        self.open.push(nodes.into_iter());
        ForeignStep::Tree(TreeStep::Open(node))
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
        let content = ResticContent { repository: Arc::clone(&self.archive.repository), blobs: content };
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
            Some(node) => Ok(Some(self.step(node))),
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
}

impl FileContent for ResticContent {
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        for id in &self.blobs {
            match self.repository.packed(*id, PackedKind::Data) {
                // restic cuts holes into blobs of zeros.
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => into.write_zeros(bytes.len() as u64)?,
                Ok(bytes) => into.write(&bytes)?,
                Err(error) => match self.repository.packed_bytes(*id) {
                    Some(bytes) => into.lose(bytes, error.into())?,
                    None => return Err(error.into()),
                },
            }
        }
        Ok(())
    }
}

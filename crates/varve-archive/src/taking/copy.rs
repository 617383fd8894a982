//! Copies snapshots into another archive, whatever scores, encryption or index its store has. The
//! catalog record of a snapshot is copied with it. Each block gets the score that the other store
//! gives it.
//!
//! ```text
//! snapshot ─▶ image: its tree, leaf by leaf; parts shared with the image before stay shared
//!         └─▶ folder ─▶ nodes, each with its content's new entry ─▶ a new list of nodes
//! ```
//!
//! A snapshot keeps its id, and is in the other catalog as soon as all of it is durable there. An
//! interrupted copy therefore continues with the snapshots that are still missing.

use std::collections::BTreeMap;
use std::path::Path;

use varve_block::{BlockStore, PutError, Score};
use varve_content::{
    FolderStack, FolderStep, Node, NodeKind, NodeList, NodeListWriter, Progress, ReadFolderError, TooDeep,
    WriteNodeError,
};
use varve_tree::{CopyError, CopyMode, CopyTreeError, Entry, copy_archive, copy_tree};

use crate::archive::Archive;
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::taking::take::TakeError;

/// Upper bound on remembered copies of files and folders, in each of two generations. One takes
/// about 150 bytes.
const KNOWN_MAX: usize = 1 << 18;
/// The tag that leads to the data for vac's tools.
const VAC_TAG: &str = "vac=";

/// Why a snapshot was not copied. The snapshots before it were copied, and the other archive is
/// intact.
#[derive(Debug, thiserror::Error)]
pub enum CopySnapshotError {
    /// A tree could not be copied.
    #[error("{}", path_text(path))]
    Tree {
        /// The file or folder, from the root of the snapshot; empty for an image.
        path: Vec<u8>,
        source: Box<CopyTreeError>,
    },
    /// The list of a folder is unreadable.
    #[error("the folder {} cannot be read", path_text(path))]
    Folder { path: Vec<u8>, source: Box<ReadFolderError> },
    #[error("{0}")]
    TooDeep(#[from] TooDeep),
    /// The list of a folder was not stored.
    #[error("a folder cannot be stored")]
    Put(#[from] PutError),
    /// A node of a folder was not stored.
    #[error("a folder cannot be stored")]
    Write(#[from] WriteNodeError),
    /// The data for vac's tools could not be copied.
    #[error("the data for vac's tools cannot be copied")]
    Vac(#[source] Box<CopyError>),
    /// The snapshot could not be added to the catalog.
    #[error("{0}")]
    Enter(#[from] TakeError),
    #[error("interrupted")]
    Cancelled,
}

fn path_text(path: &[u8]) -> String {
    if path.is_empty() { "the image".into() } else { String::from_utf8_lossy(path).into_owned() }
}

/// Copies snapshots from one store, one after the other. It remembers a bounded number of copies,
/// so that content that several snapshots share is read once.
pub struct SnapshotCopier<'a> {
    from: &'a dyn BlockStore,
    progress: &'a Progress,
    /// Copies of files and folders: the recent ones, and the ones before.
    known: [BTreeMap<Vec<u8>, Entry>; 2],
    /// The last image of each series, and its copy.
    images: BTreeMap<(String, String), (Entry, Entry)>,
    brings_back: bool,
}

/// A folder that is being copied.
struct FolderCopy<'a> {
    node: Node,
    list: NodeListWriter<'a>,
}

impl<'a> SnapshotCopier<'a> {
    /// Creates a copier that reads from this store.
    #[must_use]
    pub fn new(from: &'a dyn BlockStore, progress: &'a Progress) -> Self {
        Self { from, progress, known: Default::default(), images: BTreeMap::new(), brings_back: false }
    }

    /// Copies also the snapshots that the other archive has forgotten. They are listed there again.
    #[must_use]
    pub fn bringing_back(self) -> Self {
        Self { brings_back: true, ..self }
    }

    /// Copies a snapshot, and returns its record in the other catalog. Returns `None` if that
    /// catalog lists a snapshot with its id, or has forgotten it: see
    /// [`bringing_back`](Self::bringing_back).
    ///
    /// # Errors
    /// [`CopySnapshotError`].
    pub fn copy(
        &mut self,
        snapshot: &Snapshot,
        to: &mut Archive,
    ) -> Result<Option<Snapshot>, CopySnapshotError> {
        if let Some(there) = to.snapshots().iter().find(|there| there.id == snapshot.id) {
            if let (SnapshotContent::Image(entry), SnapshotContent::Image(copy)) =
                (&snapshot.content, &there.content)
            {
                self.images.insert(series_of(snapshot), (*entry, *copy));
            }
            return Ok(None);
        }
        if !self.brings_back && to.catalog().is_forgotten(snapshot.id) {
            return Ok(None);
        }
        let blocks = to.blocks();
        let begun = to.begin()?;
        let content = match &snapshot.content {
            SnapshotContent::Image(entry) => {
                blocks.expect_reads_in_pieces(true);
                let before = self.images.get(&series_of(snapshot)).copied();
                let before = before.as_ref().map(|(entry, copy)| (entry, copy));
                let copy = self.copy_tree(entry, &*blocks, before).map_err(in_tree(Vec::new))?;
                self.images.insert(series_of(snapshot), (*entry, copy));
                SnapshotContent::Image(copy)
            }
            SnapshotContent::Folder(root) => {
                blocks.expect_reads_in_pieces(false);
                SnapshotContent::Folder(Box::new(self.copy_folder(root, &*blocks)?))
            }
        };
        let tags = self.copy_tags(&snapshot.tags, &*blocks)?;
        let copy = Snapshot { content, tags, ..snapshot.clone() };
        Ok(Some(to.enter(begun, copy)?))
    }

    fn copy_tree(
        &self,
        entry: &Entry,
        to: &dyn BlockStore,
        before: Option<(&Entry, &Entry)>,
    ) -> Result<Entry, CopyTreeError> {
        let mut watch = |bytes| {
            self.progress.add_bytes_done(bytes);
            !self.progress.is_cancelled()
        };
        copy_tree(self.from, entry, to, before, &mut watch)
    }

    fn copy_folder(&mut self, root: &Node, to: &dyn BlockStore) -> Result<Node, CopySnapshotError> {
        let from = self.from;
        let copy = |node: &Node| FolderCopy { node: node.clone(), list: NodeListWriter::new(to) };
        let mut folders = FolderStack::default();
        folders.enter(NodeList::new(from, root), copy(root))?;
        loop {
            if self.progress.is_cancelled() {
                return Err(CopySnapshotError::Cancelled);
            }
            let node = match folders.next().expect("the loop ends when the root is left") {
                FolderStep::Node(Ok(node)) => match self.copy_content(&node, folders.path(), to)? {
                    Some(copied) => copied,
                    None => {
                        folders.enter(NodeList::new(from, &node), copy(&node))?;
                        continue;
                    }
                },
                FolderStep::Node(Err(source)) => {
                    let path = folders.path().to_vec();
                    return Err(CopySnapshotError::Folder { path, source: Box::new(source) });
                }
                FolderStep::Left(FolderCopy { mut node, list }) => {
                    let copy = list.finish()?;
                    if let (Some(entry), Some(copy)) = (node.content, copy) {
                        self.note(&entry, copy);
                    }
                    node.content = copy;
                    node
                }
            };
            let Some(folder) = folders.value_mut() else { return Ok(node) };
            folder.list.push(&node)?;
            self.progress.add_files_done(1);
        }
    }

    /// The node with its content in the other store. `None` for a folder that is not copied yet.
    fn copy_content(
        &mut self,
        node: &Node,
        path: &[u8],
        to: &dyn BlockStore,
    ) -> Result<Option<Node>, CopySnapshotError> {
        let Some(entry) = node.content else { return Ok(Some(node.clone())) };
        let copy = match self.known(&entry) {
            Some(copy) => {
                self.progress.add_bytes_done(if node.kind == NodeKind::Folder { 0 } else { entry.size() });
                copy
            }
            None if node.kind == NodeKind::Folder => return Ok(None),
            None => {
                self.progress.set_current(Path::new(&*String::from_utf8_lossy(&node.name)));
                let copy = self.copy_tree(&entry, to, None).map_err(in_tree(|| path.to_vec()))?;
                self.note(&entry, copy);
                copy
            }
        };
        Ok(Some(Node { content: Some(copy), ..node.clone() }))
    }

    fn known(&mut self, entry: &Entry) -> Option<Entry> {
        let key = entry.encode();
        let [young, old] = &self.known;
        let copy = young.get(&key).or_else(|| old.get(&key)).copied()?;
        self.note(entry, copy);
        Some(copy)
    }

    fn note(&mut self, entry: &Entry, copy: Entry) {
        let [young, old] = &mut self.known;
        if young.len() >= KNOWN_MAX {
            *old = std::mem::take(young);
        }
        young.insert(entry.encode(), copy);
    }

    /// Copies the tags. The data for vac's tools is named by a hash. It is copied if both stores
    /// use the same scores; otherwise nothing could lead to it, and its tag is dropped.
    fn copy_tags(&self, tags: &[String], to: &dyn BlockStore) -> Result<Vec<String>, CopySnapshotError> {
        let mut kept = Vec::new();
        for tag in tags {
            let root = tag.strip_prefix(VAC_TAG).and_then(|score| Score::from_hex(score).ok());
            if let Some(root) = root {
                let mut watch = |_: &_| !self.progress.is_cancelled();
                match copy_archive(self.from, to, root, CopyMode::Whole, &mut watch) {
                    Ok(_) => {}
                    Err(CopyError::OtherScores) => continue,
                    Err(CopyError::Cancelled) => return Err(CopySnapshotError::Cancelled),
                    Err(error) => return Err(CopySnapshotError::Vac(Box::new(error))),
                }
            }
            kept.push(tag.clone());
        }
        Ok(kept)
    }
}

/// The host and the name of a snapshot.
fn series_of(snapshot: &Snapshot) -> (String, String) {
    (snapshot.host.clone(), snapshot.name.clone())
}

fn in_tree(path: impl FnOnce() -> Vec<u8>) -> impl FnOnce(CopyTreeError) -> CopySnapshotError {
    |source| match source {
        CopyTreeError::Cancelled => CopySnapshotError::Cancelled,
        source => CopySnapshotError::Tree { path: path(), source: Box::new(source) },
    }
}

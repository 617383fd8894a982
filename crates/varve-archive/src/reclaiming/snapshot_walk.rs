//! Walks snapshots, lists of the catalog, and archives of other programs, and shows their parts to
//! a [`WalkVisitor`].
//!
//! Memory: that of a [`FolderStack`], beside that of the visitor.

use varve_block::{BlockStore, Score};
use varve_content::{FolderStack, FolderStep, Node, NodeKind, NodeList, Progress};
use varve_tree::{Entry, TreeBlock, VENTI_SCORE_BYTES};

use super::block_walk::{BlockWalk, TreePart, WalkCounts, WalkVisitor};
use super::mark_error::{MarkError, MarkTreeError};
use crate::catalog::snapshot::{Snapshot, SnapshotContent};

/// The tag with the score of a snapshot's archive for vac's tools.
const VAC_TAG: &str = "vac=";

/// The work of a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MarkReport {
    /// The snapshots that are live.
    pub snapshot_count: u64,
    /// The archives of other programs that are live.
    pub archive_count: u64,
    /// The folders whose lists were read.
    pub folder_count: u64,
    pub walked: WalkCounts,
}

impl MarkReport {
    pub(super) fn add(&mut self, other: &Self) {
        self.snapshot_count += other.snapshot_count;
        self.archive_count += other.archive_count;
        self.folder_count += other.folder_count;
        self.walked.add(&other.walked);
    }
}

/// See the module's documentation. With each root comes the knowledge of what leads to it.
pub(crate) struct SnapshotWalk<'a, V> {
    pub(super) walk: BlockWalk<'a, V>,
    report: MarkReport,
}

/// A folder whose list is being read.
struct FolderToLeave<K> {
    /// Its encoded entry.
    entry: Vec<u8>,
    known: K,
}

impl<'a, V: WalkVisitor> SnapshotWalk<'a, V> {
    pub(crate) fn new(blocks: &'a dyn BlockStore, visitor: &'a mut V, progress: &'a Progress) -> Self {
        Self { walk: BlockWalk::new(blocks, visitor, progress), report: MarkReport::default() }
    }

    pub(crate) fn report(&self) -> MarkReport {
        MarkReport { walked: self.walk.counts(), ..self.report }
    }

    /// Walks everything that a snapshot leads to.
    ///
    /// # Errors
    /// [`MarkError`]: the snapshot cannot be walked to its end.
    pub(crate) fn snapshot(&mut self, above: V::Known, snapshot: &Snapshot) -> Result<(), MarkError> {
        self.report.snapshot_count += 1;
        let mut path = Vec::new();
        let walked = match &snapshot.content {
            SnapshotContent::Image(entry) => self.tree(above, entry),
            SnapshotContent::Folder(root) => self.folder(above, root, &mut path),
        };
        walked.and_then(|()| self.archives_of(above, snapshot)).map_err(|error| {
            let (id, name) = (snapshot.id, snapshot.name.clone());
            error.into_mark(|source| MarkError::Snapshot { id, name, path, source })
        })
    }

    /// Walks a list of the catalog.
    ///
    /// # Errors
    /// [`MarkError`]: the list cannot be walked to its end.
    pub(crate) fn list(&mut self, above: V::Known, list: &Entry) -> Result<(), MarkError> {
        self.tree(above, list).map_err(|error| error.into_mark(MarkError::List))
    }

    /// Walks an archive of another program.
    pub(super) fn archive(&mut self, above: V::Known, score: Score) -> Result<(), MarkTreeError> {
        self.report.archive_count += 1;
        Ok(self.walk.walk(above, TreeBlock::of_archive(score))?)
    }

    /// Returns true if this can be the score of an archive of another program.
    pub(super) fn is_score(&self, score: &Score) -> bool {
        let lengths = [self.walk.blocks().score_bytes(), score.as_bytes().len()];
        lengths == [VENTI_SCORE_BYTES; 2]
    }

    /// Walks the archive that vac's tools read instead of the snapshot, if it has one.
    fn archives_of(&mut self, above: V::Known, snapshot: &Snapshot) -> Result<(), MarkTreeError> {
        for score in snapshot.tags.iter().filter_map(|tag| tag.strip_prefix(VAC_TAG)) {
            // In a store with other scores there is no such archive.
            if let Some(score) = Score::from_hex(score).ok().filter(|score| self.is_score(score)) {
                self.archive(above, score)?;
            }
        }
        Ok(())
    }

    fn tree(&mut self, above: V::Known, entry: &Entry) -> Result<(), MarkTreeError> {
        let top = TreeBlock::of_tree(entry, self.walk.blocks().empty_score());
        Ok(top.map_or(Ok(()), |top| self.walk.walk(above, top))?)
    }

    /// Walks a folder with everything in it. After an error, `path` is the place of the error.
    fn folder(&mut self, above: V::Known, root: &Node, path: &mut Vec<u8>) -> Result<(), MarkTreeError> {
        let mut open = FolderStack::default();
        let walked = self.folders(above, root, &mut open);
        if walked.is_err() {
            *path = open.path().to_vec();
        }
        walked
    }

    fn folders(
        &mut self,
        above: V::Known,
        root: &Node,
        open: &mut FolderStack<'a, FolderToLeave<V::Known>>,
    ) -> Result<(), MarkTreeError> {
        self.enter(above, root, open)?;
        while let Some(step) = open.next() {
            let node = match step {
                FolderStep::Node(node) => node?,
                FolderStep::Left(FolderToLeave { entry, .. }) => {
                    self.walk.visitor().leave(TreePart::Folder(&entry));
                    continue;
                }
            };
            let Some(known) = open.value().map(|folder| folder.known) else { break };
            if node.kind == NodeKind::Folder {
                self.enter(known, &node, open)?;
            } else if let Some(content) = &node.content {
                self.tree(known, content)?;
            }
        }
        Ok(())
    }

    /// Walks the list of a folder, and enters the folder if the visitor wants what is in it.
    fn enter(
        &mut self,
        above: V::Known,
        folder: &Node,
        open: &mut FolderStack<'a, FolderToLeave<V::Known>>,
    ) -> Result<(), MarkTreeError> {
        let Some(content) = folder.content else { return Ok(()) };
        let entry = content.encode();
        if !self.walk.visitor().reach(above, TreePart::Folder(&entry)) {
            return Ok(());
        }
        self.walk.check()?;
        self.report.folder_count += 1;
        let known = self.walk.visitor().enter(TreePart::Folder(&entry));
        self.tree(known, &content)?;
        let list = NodeList::new(self.walk.blocks(), folder);
        Ok(open.enter(list, FolderToLeave { entry, known })?)
    }
}

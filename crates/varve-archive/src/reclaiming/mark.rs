//! Marks the live blocks: walks every tree that a root leads to, and adds its blocks to a set.
//!
//! It changes nothing in the store, and needs no lock. A mark that ran without the lock is brought
//! up to date by another one with the same set: everything that was walked is skipped, so the
//! second mark costs little. Only after a mark under the lock is the set complete.
//!
//! Memory: the set, and a folder's list for each level of the folders.

use varve_block::{BlockStore, BlockType, GetError, Score, has_kind};
use varve_log::{OpenLogError, ReadLogError};
use varve_store::Store;
use varve_tree::{Entry, TreeBlock, VENTI_SCORE_BYTES, previous_archive};
use varve_upkeep::LiveBlocks;

use super::block_walk::{BlockWalk, WalkBlocksError, WalkCounts};
use super::roots::{ForeignRoots, LiveRoots};
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_id::SnapshotId;
use crate::progress::Progress;
use crate::records::node::{Node, NodeKind};
use crate::records::node_list::{NodeList, ReadFolderError};

/// Upper bound on the nesting of folders.
const DEPTH_MAX: usize = 4096;
/// The tag with the score of a snapshot's archive for vac's tools.
pub(crate) const VAC_TAG: &str = "vac=";

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

/// The reason why the live blocks are not all known. Nothing may be freed then.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// A snapshot cannot be walked to its end.
    #[error("the snapshot {name} ({id}) cannot be read to its end{}", in_path(path))]
    Snapshot {
        id: SnapshotId,
        name: String,
        /// The file or folder; empty for an image.
        path: Vec<u8>,
        source: Box<MarkTreeError>,
    },
    /// A list of the catalog cannot be read.
    #[error("a list of the catalog cannot be read to its end")]
    List(#[source] Box<MarkTreeError>),
    /// An archive of another program cannot be walked to its end.
    #[error("the archive {score} cannot be read to its end")]
    Archive { score: Score, source: Box<MarkTreeError> },
    /// The store's scores are not those of Venti.
    #[error("{score} is not a score of this store")]
    OtherScores { score: Score },
    /// The blocks of type root cannot be listed.
    #[error("{0}")]
    ListArenas(#[from] OpenLogError),
    #[error("{0}")]
    ReadArena(#[from] ReadLogError),
    #[error("interrupted")]
    Cancelled,
}

/// The reason why a tree was not walked to its end.
#[derive(Debug, thiserror::Error)]
pub enum MarkTreeError {
    #[error("{0}")]
    Blocks(#[from] WalkBlocksError),
    #[error("{0}")]
    Folder(#[from] ReadFolderError),
    #[error("folders are nested more than {DEPTH_MAX} deep")]
    TooDeep,
}

has_kind!(MarkTreeError: Self::TooDeep => Damage);

fn in_path(path: &[u8]) -> String {
    if path.is_empty() { String::new() } else { format!(", at {:?}", String::from_utf8_lossy(path)) }
}

/// Adds everything that these roots lead to. The set may hold the results of earlier marks, also of
/// marks that have failed.
///
/// # Errors
/// [`MarkError`]: the set is not complete.
pub fn mark(
    store: &Store,
    roots: &LiveRoots,
    live: &mut LiveBlocks,
    progress: &Progress,
) -> Result<MarkReport, MarkError> {
    let mut report = mark_trees(store, roots, live, progress)?;
    let archives = match &roots.foreign {
        ForeignRoots::None => return Ok(report),
        ForeignRoots::Named(scores) => scores.clone(),
        ForeignRoots::All => all_archives(store)?,
    };
    let mut marker = Marker::new(store, live, progress);
    for score in archives {
        marker.foreign_archive(score, &roots.foreign)?;
    }
    report.add(&marker.report());
    Ok(report)
}

/// Adds everything that snapshots and lists lead to, in any block store. Leaves out archives of
/// other programs that no snapshot names.
///
/// # Errors
/// [`MarkError`].
pub(crate) fn mark_trees(
    blocks: &dyn BlockStore,
    roots: &LiveRoots,
    live: &mut LiveBlocks,
    progress: &Progress,
) -> Result<MarkReport, MarkError> {
    live.set_catalog_root(roots.catalog_root);
    let mut marker = Marker::new(blocks, live, progress);
    for list in &roots.lists {
        marker.tree(list).map_err(|error| error.into_mark(MarkError::List))?;
    }
    // The newest snapshot comes first: its blocks are most likely to be in memory, and the older
    // ones mostly share them.
    for snapshot in roots.snapshots.iter().rev() {
        marker.snapshot(snapshot)?;
    }
    Ok(marker.report())
}

/// The scores of all blocks of type root.
fn all_archives(store: &Store) -> Result<Vec<Score>, MarkError> {
    let mut scores = Vec::new();
    for id in store.arenas()? {
        if store.vault().log().was_never_begun(id).unwrap_or(false) {
            continue;
        }
        let found = store.names_in_arena(id)?;
        if let Some(error) = found.failure {
            return Err(error.into());
        }
        let roots = found.names.iter().filter(|name| name.block_type == BlockType::ROOT);
        scores.extend(roots.map(|name| name.score));
    }
    scores.sort_unstable();
    scores.dedup();
    Ok(scores)
}

impl MarkTreeError {
    pub(crate) fn into_mark(self, describe: impl FnOnce(Box<Self>) -> MarkError) -> MarkError {
        match self {
            Self::Blocks(WalkBlocksError::Cancelled) => MarkError::Cancelled,
            other => describe(Box::new(other)),
        }
    }
}

impl MarkReport {
    fn add(&mut self, other: &Self) {
        self.snapshot_count += other.snapshot_count;
        self.archive_count += other.archive_count;
        self.folder_count += other.folder_count;
        self.walked.add(&other.walked);
    }
}

struct Marker<'a> {
    walk: BlockWalk<'a>,
    report: MarkReport,
}

/// A folder whose list is being read.
struct OpenFolder<'a> {
    /// Its encoded entry.
    entry: Vec<u8>,
    list: NodeList<'a>,
    /// The length of its path.
    path_bytes: usize,
}

impl<'a> Marker<'a> {
    fn new(blocks: &'a dyn BlockStore, live: &'a mut LiveBlocks, progress: &'a Progress) -> Self {
        Self { walk: BlockWalk::new(blocks, live, progress), report: MarkReport::default() }
    }

    fn report(&self) -> MarkReport {
        MarkReport { walked: self.walk.counts(), ..self.report }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), MarkError> {
        self.report.snapshot_count += 1;
        let mut path = Vec::new();
        let marked = match &snapshot.content {
            SnapshotContent::Image(entry) => self.tree(entry),
            SnapshotContent::Folder(root) => self.folder(root, &mut path),
        };
        marked.and_then(|()| self.archives_of(snapshot)).map_err(|error| {
            let (id, name) = (snapshot.id, snapshot.name.clone());
            error.into_mark(|source| MarkError::Snapshot { id, name, path, source })
        })
    }

    /// Adds the archive that vac's tools read instead of the snapshot, if it has one.
    fn archives_of(&mut self, snapshot: &Snapshot) -> Result<(), MarkTreeError> {
        for score in snapshot.tags.iter().filter_map(|tag| tag.strip_prefix(VAC_TAG)) {
            // In a store with other scores there is no such archive.
            if let Some(score) = Score::from_hex(score).ok().filter(|score| self.is_score(score)) {
                self.archive(score)?;
            }
        }
        Ok(())
    }

    fn tree(&mut self, entry: &Entry) -> Result<(), MarkTreeError> {
        let top = TreeBlock::of_tree(entry, self.walk.blocks().empty_score());
        Ok(top.map_or(Ok(()), |top| self.walk.walk(top))?)
    }

    /// Adds a folder with everything in it. After an error, `path` is the place of the error.
    fn folder(&mut self, root: &Node, path: &mut Vec<u8>) -> Result<(), MarkTreeError> {
        let mut open: Vec<OpenFolder<'a>> = self.open_folder(root, 0)?.into_iter().collect();
        while let Some(last) = open.last_mut() {
            path.truncate(last.path_bytes);
            let Some(node) = last.list.next() else {
                // Everything in it was walked.
                self.walk.live().note_folder_walked(&last.entry);
                open.pop();
                continue;
            };
            let node = node?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&node.name);
            if node.kind == NodeKind::Folder {
                open.extend(self.open_folder(&node, path.len())?);
            } else if let Some(content) = &node.content {
                self.tree(content)?;
            }
            if open.len() > DEPTH_MAX {
                return Err(MarkTreeError::TooDeep);
            }
        }
        Ok(())
    }

    /// Adds the list of a folder. Returns `None` if everything in the folder was walked before.
    fn open_folder(
        &mut self,
        folder: &Node,
        path_bytes: usize,
    ) -> Result<Option<OpenFolder<'a>>, MarkTreeError> {
        let Some(content) = folder.content else { return Ok(None) };
        let entry = content.encode();
        if self.walk.live().is_folder_walked(&entry) {
            return Ok(None);
        }
        self.walk.check_cancelled()?;
        self.report.folder_count += 1;
        self.tree(&content)?;
        let list = NodeList::new(self.walk.blocks(), folder);
        Ok(Some(OpenFolder { entry, list, path_bytes }))
    }

    fn archive(&mut self, score: Score) -> Result<(), MarkTreeError> {
        self.report.archive_count += 1;
        Ok(self.walk.walk(TreeBlock::of_archive(score))?)
    }

    /// Adds an archive that no snapshot names.
    fn foreign_archive(&mut self, score: Score, foreign: &ForeignRoots) -> Result<(), MarkError> {
        if !self.is_score(&score) {
            return Err(MarkError::OtherScores { score });
        }
        let marked = match foreign {
            ForeignRoots::Named(_) => self.archive_and_earlier(score),
            _ => self.archive_if_it_is_one(score),
        };
        marked.map_err(|error| error.into_mark(|source| MarkError::Archive { score, source }))
    }

    /// Adds an archive and those before it, as far as they are in the store.
    fn archive_and_earlier(&mut self, score: Score) -> Result<(), MarkTreeError> {
        let mut next = Some(score);
        while let Some(root) = next.take().map(TreeBlock::of_archive) {
            let is_first = root.name.score == score;
            let bytes = match self.walk.blocks().get(&root.name) {
                Err(GetError::NotFound { .. }) if !is_first => break,
                read => read.map_err(WalkBlocksError::from)?,
            };
            if !self.walk.is_walked(&root) || is_first {
                next = previous_archive(&root, &bytes).map_err(WalkBlocksError::from)?;
                self.archive(root.name.score)?;
            }
        }
        Ok(())
    }

    /// Adds an archive. A block of type root with other contents leads to nothing, and is kept.
    fn archive_if_it_is_one(&mut self, score: Score) -> Result<(), MarkTreeError> {
        let root = TreeBlock::of_archive(score);
        let bytes = self.walk.blocks().get(&root.name).map_err(WalkBlocksError::from)?;
        if previous_archive(&root, &bytes).is_err() {
            self.walk.live().insert(&root.name);
            return Ok(());
        }
        self.archive(score)
    }

    fn is_score(&self, score: &Score) -> bool {
        let lengths = [self.walk.blocks().score_bytes(), score.as_bytes().len()];
        lengths == [VENTI_SCORE_BYTES; 2]
    }
}

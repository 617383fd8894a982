//! Takes the snapshots of a foreign archive, each once, the oldest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use varve_archive::folder::{
    ContentSink, DescribedTree, DescriptionError, FileContent, FileContents, TreeStep, Watch,
};
use varve_archive::{
    Archive, Node, NodeKind, NodeList, Snapshot, SnapshotContent, SnapshotRequest, TakenSnapshot,
};
use varve_block::BlockStore;
use varve_tree::Entry;

use crate::foreign::{
    ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree, ImportError,
};
use crate::seen_contents::{ContentId, SeenContents};

/// Upper bound on the folders that are compared inside each other. No file system has longer paths.
const DEPTH_MAX: usize = 4096;

/// The tag of an imported snapshot.
#[must_use]
pub fn import_tag(kind: &str, id: &str) -> String {
    format!("import={kind}:{id}")
}

/// The snapshots that are to be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportPlan {
    /// Their places among the foreign snapshots, the oldest first.
    pub places: Vec<usize>,
    /// The number of snapshots that were imported before.
    pub known_count: usize,
}

/// Imports snapshots of one foreign archive.
pub struct Importer<'a> {
    foreign: &'a dyn ForeignArchive,
    seen: Arc<Mutex<SeenContents>>,
    /// The sources whose last imported snapshot was looked at.
    recalled: BTreeSet<(String, Vec<u8>)>,
}

impl<'a> Importer<'a> {
    #[must_use]
    pub fn new(foreign: &'a dyn ForeignArchive) -> Self {
        Self { foreign, seen: Arc::default(), recalled: BTreeSet::new() }
    }

    /// The snapshots that `archive` does not have yet. A snapshot in the trash counts as imported.
    #[must_use]
    pub fn plan(&self, archive: &Archive, is_chosen: &dyn Fn(&ForeignSnapshot) -> bool) -> ImportPlan {
        let known = self.known(archive);
        let chosen: Vec<usize> = (0..self.foreign.snapshots().len())
            .filter(|place| self.foreign.snapshots().get(*place).is_some_and(is_chosen))
            .collect();
        let places: Vec<usize> = chosen.iter().copied().filter(|place| !known.contains_key(place)).collect();
        ImportPlan { known_count: chosen.len() - places.len(), places }
    }

    /// The foreign snapshots that were imported, by their places.
    #[must_use]
    pub fn known(&self, archive: &Archive) -> BTreeMap<usize, Snapshot> {
        let mut tagged = BTreeMap::new();
        for snapshot in archive.kept_snapshots().iter() {
            for tag in snapshot.tags.iter().filter(|tag| tag.starts_with("import=")) {
                tagged.insert(tag.clone(), snapshot.clone());
            }
        }
        let snapshots = self.foreign.snapshots().iter().enumerate();
        let known = snapshots.filter_map(|(place, snapshot)| {
            Some((place, tagged.get(&import_tag(self.foreign.kind(), &snapshot.id))?.clone()))
        });
        known.collect()
    }

    /// Imports the snapshot at this place, under a name. It is durable on return.
    ///
    /// # Errors
    /// [`ImportError`]. Unreadable files are reported and counted, and are no error.
    pub fn take(
        &mut self,
        archive: &mut Archive,
        place: usize,
        name: &str,
        name_is_given: bool,
        watch: Watch<'_>,
    ) -> Result<TakenSnapshot, ImportError> {
        let Some(snapshot) = self.foreign.snapshots().get(place) else {
            let source = "there is no such snapshot".into();
            return Err(ImportError::Tree { id: place.to_string(), source });
        };
        let unreadable = |source| ImportError::Tree { id: snapshot.id.clone(), source };
        let tag = import_tag(self.foreign.kind(), &snapshot.id);
        let request = SnapshotRequest {
            name: name.to_owned(),
            time: Some(snapshot.time),
            source: snapshot.source.clone(),
            host: snapshot.host.clone(),
            tags: snapshot.tags.iter().cloned().chain([tag]).collect(),
            name_is_given,
            ..SnapshotRequest::default()
        };
        archive.check_name(&request)?;
        self.recall(archive, place);
        let tree = self.foreign.tree(place).map_err(unreadable)?;
        let mut tree = KnownContents { tree, seen: Arc::clone(&self.seen) };
        Ok(archive.take_described(&mut tree, request, watch)?)
    }

    /// The number of contents that are known.
    #[must_use]
    pub fn content_count(&self) -> usize {
        self.seen.lock().len()
    }

    /// Finds the contents of the last imported snapshot of the same source, in case an earlier run
    /// imported it: the foreign tree has their ids, and the archived one has their entries.
    fn recall(&mut self, archive: &Archive, place: usize) {
        let snapshots = self.foreign.snapshots();
        let Some(next) = snapshots.get(place) else { return };
        let is_new = self.recalled.insert((next.host.clone(), next.source.clone()));
        // A lost block would be needed by one more snapshot.
        if !is_new || !self.foreign.trees_are_cheap() || !archive.store().lost_blocks().is_empty() {
            return;
        }
        let is_same = |place: &usize| {
            snapshots.get(*place).is_some_and(|one| one.host == next.host && one.source == next.source)
        };
        let known = self.known(archive);
        let last = known.iter().rev().find(|(earlier, _)| **earlier < place && is_same(earlier));
        let Some((earlier, archived)) = last.or_else(|| known.iter().rev().find(|(one, _)| is_same(one)))
        else {
            return;
        };
        let SnapshotContent::Folder(root) = &archived.content else { return };
        if let Ok(mut tree) = self.foreign.tree(*earlier) {
            let blocks = archive.blocks();
            recall_contents(&mut *tree, &*blocks, root, &mut self.seen.lock());
        }
    }
}

/// Walks a foreign tree and the archived one beside each other. Ends at the first error.
fn recall_contents(
    tree: &mut dyn ForeignTree,
    blocks: &dyn BlockStore,
    root: &Node,
    seen: &mut SeenContents,
) {
    let mut open: Vec<Option<ArchivedNames<'_>>> = Vec::new();
    while let Ok(Some(step)) = tree.next(None) {
        match step {
            ForeignStep::Tree(TreeStep::Open(node)) => {
                let folder = match open.last_mut() {
                    None => Some(root.clone()),
                    Some(names) => names.as_mut().and_then(|names| names.find(&node.name)),
                };
                let folder = folder.filter(|_| open.len() < DEPTH_MAX);
                open.push(folder.map(|folder| ArchivedNames::new(blocks, &folder)));
            }
            ForeignStep::Tree(TreeStep::Close) => {
                open.pop();
            }
            ForeignStep::File { node, id, .. } => {
                let names = open.last_mut().and_then(Option::as_mut);
                let found = names.and_then(|names| names.find(&node.name));
                let is_whole = |found: &Node| found.kind == NodeKind::File && found.problem.is_none();
                if let Some(found) = found.filter(is_whole) {
                    seen.add(id, found.content);
                }
            }
            ForeignStep::Tree(_) => {}
        }
    }
}

/// The nodes of an archived folder, requested in ascending order of their names.
struct ArchivedNames<'a> {
    nodes: std::iter::Peekable<NodeList<'a>>,
}

impl<'a> ArchivedNames<'a> {
    fn new(blocks: &'a dyn BlockStore, folder: &Node) -> Self {
        Self { nodes: NodeList::new(blocks, folder).peekable() }
    }

    fn find(&mut self, name: &[u8]) -> Option<Node> {
        let is_before =
            |node: &Result<Node, _>| node.as_ref().is_ok_and(|node: &Node| node.name.as_slice() < name);
        while self.nodes.next_if(is_before).is_some() {}
        let is_it = |node: &Result<Node, _>| node.as_ref().is_ok_and(|node: &Node| node.name == name);
        self.nodes.next_if(is_it)?.ok()
    }
}

/// A foreign tree whose files have their contents from earlier snapshots, as far as these are
/// known.
struct KnownContents<'a> {
    tree: Box<dyn ForeignTree + 'a>,
    seen: Arc<Mutex<SeenContents>>,
}

impl DescribedTree for KnownContents<'_> {
    fn next(&mut self, contents: &FileContents<'_>) -> Result<Option<TreeStep>, DescriptionError> {
        let step = match self.tree.next(Some(&ForeignContents::new(*contents, &self.seen)))? {
            Some(ForeignStep::Tree(step)) => step,
            Some(ForeignStep::File { node, id, content }) => match self.seen.lock().find(&id) {
                Some(known) => {
                    let size = known.map_or(0, |entry| entry.size());
                    TreeStep::Entry(Node { content: known, size, ..node })
                }
                None => {
                    let seen = Arc::clone(&self.seen);
                    TreeStep::File(node, Box::new(NewContent { id, content, seen }))
                }
            },
            None => return Ok(None),
        };
        Ok(Some(step))
    }
}

/// A content that will be known once it is stored.
struct NewContent {
    id: ContentId,
    content: Box<dyn FileContent>,
    seen: Arc<Mutex<SeenContents>>,
}

impl FileContent for NewContent {
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        self.content.write_to(into)
    }

    fn stored(&mut self, content: Option<Entry>) {
        self.seen.lock().add(self.id, content);
    }
}

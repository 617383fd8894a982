//! Takes the snapshots of a foreign archive, each once, the oldest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use varve_archive::{Archive, Snapshot, SnapshotContent, SnapshotRequest, TagChanges, TakenSnapshot};
use varve_block::BlockStore;
use varve_content::folder::{
    ContentSink, DescribedTree, DescriptionError, FOLDER_DEPTH_MAX, FileContent, FileContents, TreeStep,
    Watch,
};
use varve_content::{Node, NodeKind, NodeList};
use varve_tree::Entry;
use varve_world::Timestamp;

use crate::foreign::{
    ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree, ImportError,
};
use crate::seen_contents::{ContentId, SeenContents};
use crate::series_names::ForeignSource;

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
    recalled: BTreeSet<ForeignSource>,
    /// The snapshots that were imported under another id, by their places.
    renamed: BTreeMap<usize, Snapshot>,
}

impl<'a> Importer<'a> {
    #[must_use]
    pub fn new(foreign: &'a dyn ForeignArchive) -> Self {
        Self { foreign, seen: Arc::default(), recalled: BTreeSet::new(), renamed: BTreeMap::new() }
    }

    /// The snapshots that `archive` does not have yet. A snapshot in the trash counts as imported.
    #[must_use]
    pub fn plan(&mut self, archive: &Archive, is_chosen: &dyn Fn(&ForeignSnapshot) -> bool) -> ImportPlan {
        let mut known = self.known(archive);
        self.find_renamed(archive, &known);
        known.extend(self.renamed.clone());
        let snapshots = self.foreign.snapshots();
        let chosen: Vec<usize> =
            (0..snapshots.len()).filter(|place| snapshots.get(*place).is_some_and(is_chosen)).collect();
        // The foreign archive may have a snapshot under its earlier id, too.
        let mut planned = BTreeSet::new();
        let mut is_new = |place: &usize| {
            let ids: Vec<&String> = snapshots.get(*place).into_iter().flat_map(all_ids).collect();
            let is_new = !known.contains_key(place) && ids.iter().all(|id| !planned.contains(*id));
            planned.extend(ids);
            is_new
        };
        let places: Vec<usize> = chosen.iter().copied().filter(&mut is_new).collect();
        ImportPlan { known_count: chosen.len() - places.len(), places }
    }

    /// The foreign snapshots that were imported, by their places. A lesser key may claim to have
    /// imported one, and is not believed.
    #[must_use]
    pub fn known(&self, archive: &Archive) -> BTreeMap<usize, Snapshot> {
        let mut tagged = BTreeMap::new();
        for snapshot in archive.kept_snapshots().iter().filter(|one| !archive.is_of_lesser_key(one)) {
            for tag in snapshot.tags.iter().filter(|tag| tag.starts_with("import=")) {
                tagged.insert(tag.clone(), snapshot.clone());
            }
        }
        let kind = self.foreign.kind();
        let snapshots = self.foreign.snapshots().iter().enumerate();
        let known = snapshots.filter_map(|(place, snapshot)| {
            let mut ids = all_ids(snapshot);
            let found = ids.find_map(|id| tagged.get(&import_tag(kind, id)))?;
            Some((place, found.clone()))
        });
        known.chain(self.renamed.clone()).collect()
    }

    /// The names of the sources that were imported before, those of their newest snapshots.
    #[must_use]
    pub fn known_series(&self, archive: &Archive) -> BTreeMap<ForeignSource, String> {
        let mut newest: BTreeMap<ForeignSource, (Timestamp, String)> = BTreeMap::new();
        for snapshot in archive.snapshots().iter().filter(|one| !self.imported_ids(one).is_empty()) {
            let found = (snapshot.time, snapshot.name.clone());
            let known =
                newest.entry((snapshot.host.clone(), snapshot.source.clone())).or_insert(found.clone());
            if known.0 < found.0 {
                *known = found;
            }
        }
        newest.into_iter().map(|(source, (_, name))| (source, name)).collect()
    }

    /// The ids of the foreign snapshot that a snapshot was imported from.
    fn imported_ids<'s>(&self, snapshot: &'s Snapshot) -> Vec<&'s str> {
        let prefix = import_tag(self.foreign.kind(), "");
        snapshot.tags.iter().filter_map(|tag| tag.strip_prefix(&prefix)).collect()
    }

    /// Finds snapshots that have only got a new id since they were imported: the earlier id is
    /// gone, and the time, the host and the whole tree are the same.
    fn find_renamed(&mut self, archive: &Archive, known: &BTreeMap<usize, Snapshot>) {
        if !self.foreign.trees_are_cheap() {
            return;
        }
        let foreign = self.foreign.snapshots();
        let ids: BTreeSet<&str> = foreign.iter().flat_map(all_ids).map(String::as_str).collect();
        let mut gone: BTreeMap<(Timestamp, &str), Vec<&Snapshot>> = BTreeMap::new();
        let kept = archive.kept_snapshots();
        for snapshot in kept.iter() {
            let imported = self.imported_ids(snapshot);
            if !imported.is_empty() && imported.iter().all(|id| !ids.contains(id)) {
                gone.entry((snapshot.time, &snapshot.host)).or_default().push(snapshot);
            }
        }
        let mut renamed = BTreeMap::new();
        for (place, snapshot) in foreign.iter().enumerate().filter(|(place, _)| !known.contains_key(place)) {
            let candidates = gone.get(&(snapshot.time, snapshot.host.as_str())).into_iter().flatten();
            let is_it = |candidate: &&&Snapshot| {
                let SnapshotContent::Folder(root) = &candidate.content else { return false };
                let tree = self.foreign.tree(place);
                tree.is_ok_and(|mut tree| is_same_tree(&mut *tree, &*archive.blocks(), root))
            };
            renamed.extend(candidates.copied().find(|one| is_it(&one)).map(|one| (place, one.clone())));
        }
        self.renamed = renamed;
    }

    /// Notes the new ids of snapshots that were imported under another id, so that they need not be
    /// compared again. A key that may not change tags notes nothing.
    pub fn note_renamed(&self, archive: &mut Archive) {
        for (place, known) in &self.renamed {
            let Some(foreign) = self.foreign.snapshots().get(*place) else { continue };
            let add = vec![import_tag(self.foreign.kind(), &foreign.id)];
            if archive.snapshots().iter().any(|one| one.id == known.id) {
                drop(archive.change(&[known.id], &TagChanges { add, ..TagChanges::default() }));
            }
        }
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
        let ids = all_ids(snapshot).map(|id| import_tag(self.foreign.kind(), id));
        let request = SnapshotRequest {
            name: name.to_owned(),
            time: Some(snapshot.time),
            source: snapshot.source.clone(),
            host: snapshot.host.clone(),
            tags: snapshot.tags.iter().cloned().chain(ids).collect(),
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
        if !archive.believes(archived) {
            return;
        }
        if let Ok(mut tree) = self.foreign.tree(*earlier) {
            let blocks = archive.blocks();
            recall_contents(&mut *tree, &*blocks, root, &mut self.seen.lock());
        }
    }
}

/// The ids of a snapshot, the present one first.
fn all_ids(snapshot: &ForeignSnapshot) -> impl Iterator<Item = &String> {
    std::iter::once(&snapshot.id).chain(&snapshot.earlier_ids)
}

/// Returns true if a foreign tree can be read to its end, and the archived one has all nodes of it,
/// with the same kinds, sizes, times and targets. Contents are not read.
fn is_same_tree(tree: &mut dyn ForeignTree, blocks: &dyn BlockStore, root: &Node) -> bool {
    let mut open: Vec<ArchivedNames<'_>> = Vec::new();
    loop {
        let step = match tree.next(None) {
            Ok(Some(ForeignStep::Tree(step))) => step,
            Ok(Some(ForeignStep::File { node, .. })) => TreeStep::Entry(node),
            Ok(None) => return true,
            Err(_) => return false,
        };
        match step {
            TreeStep::Open(_) if open.is_empty() => open.push(ArchivedNames::new(blocks, root)),
            TreeStep::Open(node) | TreeStep::Entry(node) | TreeStep::Link(node) | TreeStep::File(node, _) => {
                let Some(found) = open.last_mut().and_then(|names| names.find(&node.name)) else {
                    return false;
                };
                let state = |node: &Node| (node.kind, node.mtime, node.target.clone());
                // The first name of a file has its size, and a file with a problem may lack it.
                let is_other_size = node.kind == NodeKind::File
                    && node.size != found.size
                    && (node.link_group, found.problem) == (None, None);
                if state(&found) != state(&node) || is_other_size || open.len() >= FOLDER_DEPTH_MAX {
                    return false;
                }
                if node.kind == NodeKind::Folder {
                    open.push(ArchivedNames::new(blocks, &found));
                }
            }
            TreeStep::Close => drop(open.pop()),
            TreeStep::Lost { .. } | TreeStep::Harmed { .. } => {}
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
                let folder = folder.filter(|_| open.len() < FOLDER_DEPTH_MAX);
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

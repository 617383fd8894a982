//! The events of the walk, in order, which wait until they can be written.
//!
//! The contents of files become known in any order. A folder lists its nodes in the order of their
//! names, and is written once everything in it is known. The events of the walk are therefore kept
//! in a queue, and leave it at the front:
//!
//! ```text
//! front │ Node a │ Awaited │ Node c │ Open d/ │ Awaited │ Close │ …   <─ the walker
//!   └> written to the open folders
//! ```
//!
//! Invariant: each folder's content is written up to the front of the queue, and no further. A node
//! that no reader would take is reported, and left out.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_block::{BlockStore, PutError, to_usize};

use super::news::NewsCounts;
use super::remembered::{ContentOrigin, RememberedFiles};
use crate::folder::watch::Watch;
use crate::records::node::{Node, NodeKind, NodeProblem};
use crate::records::node_list_writer::{NodeListWriter, WriteNodeError};
use crate::vac::{ArchivedVac, VacOptions, VacTreeWriter};

/// An event of the walk.
pub(super) enum WalkEvent {
    /// A complete node. Not a folder whose contents follow.
    Node(Node),
    /// The same, with its content from an earlier snapshot.
    Unchanged(Node),
    /// A file that is still being read.
    Awaited,
    /// Another name of an earlier file, whose content and attributes it has.
    Link(Node),
    /// A folder. The following events are in it, up to its `Close`.
    Open(Node),
    /// The end of the innermost open folder.
    Close,
}

/// The counts of an archived folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FolderCounts {
    /// Nodes that are not folders.
    pub file_count: u64,
    /// Folders, including the source itself.
    pub folder_count: u64,
    /// Bytes in files. A file with several names counts once.
    pub bytes: u64,
    /// Nodes with a problem.
    pub problem_count: u64,
    /// Files that are unchanged since the previous snapshot, and were not opened.
    pub unchanged_count: u64,
    /// Files that were opened and read.
    pub read_count: u64,
    /// Bytes that were read from them, without holes.
    pub read_bytes: u64,
    /// The states of the nodes relative to the previous snapshot.
    pub news: NewsCounts,
}

pub(super) struct NodeSequence<'a> {
    blocks: &'a dyn BlockStore,
    watch: Watch<'a>,
    events: VecDeque<WalkEvent>,
    /// The number of events that have left the queue.
    passed_count: u64,
    open: Vec<FolderInProgress<'a>>,
    /// The first node of each link group.
    linked: BTreeMap<u64, (Node, ContentOrigin)>,
    root: Option<Node>,
    counts: FolderCounts,
    remembered: Option<&'a dyn RememberedFiles>,
    /// The writer of the archive for vac's tools, until it is done.
    vac: Option<VacTreeWriter<'a>>,
    vac_done: Option<ArchivedVac>,
}

struct FolderInProgress<'a> {
    node: Node,
    list: NodeListWriter<'a>,
}

impl<'a> NodeSequence<'a> {
    pub(crate) fn new(
        blocks: &'a dyn BlockStore,
        watch: Watch<'a>,
        remembered: Option<&'a dyn RememberedFiles>,
        vac: Option<&'a VacOptions>,
    ) -> Self {
        Self {
            blocks,
            watch,
            events: VecDeque::new(),
            passed_count: 0,
            open: Vec::new(),
            linked: BTreeMap::new(),
            root: None,
            counts: FolderCounts::default(),
            remembered,
            vac: vac.map(|options| VacTreeWriter::new(blocks, options)),
            vac_done: None,
        }
    }

    /// The number of waiting events.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Appends an event. Returns its number for [`settle`](Self::settle).
    pub(crate) fn push(&mut self, event: WalkEvent) -> u64 {
        self.events.push_back(event);
        self.passed_count + self.events.len() as u64 - 1
    }

    /// Replaces an awaited event by its finished node.
    pub(crate) fn settle(&mut self, number: u64, node: Node) {
        let place = to_usize(number - self.passed_count);
        self.events[place] = WalkEvent::Node(node);
    }

    /// Writes the complete events at the front of the queue.
    pub(crate) fn advance(&mut self) -> Result<(), PutError> {
        while self.events.front().is_some_and(|event| !matches!(event, WalkEvent::Awaited)) {
            self.passed_count += 1;
            match self.events.pop_front() {
                Some(WalkEvent::Node(node)) => self.write_node(&node, ContentOrigin::Read)?,
                Some(WalkEvent::Unchanged(node)) => self.write_node(&node, ContentOrigin::Earlier)?,
                Some(WalkEvent::Link(name)) => self.write_link(name)?,
                Some(WalkEvent::Open(node)) => {
                    if let Some(vac) = &mut self.vac {
                        vac.open(&node);
                    }
                    self.open.push(FolderInProgress { node, list: NodeListWriter::new(self.blocks) });
                }
                Some(WalkEvent::Close) => self.close_folder()?,
                Some(WalkEvent::Awaited) | None => unreachable!("the front was looked at"),
            }
        }
        Ok(())
    }

    /// Returns the root, the counts, and the archive for vac's tools. Everything must be written.
    pub(crate) fn finish(self) -> (Node, FolderCounts, Option<ArchivedVac>) {
        (self.root.expect("the root was opened, closed, and written"), self.counts, self.vac_done)
    }

    fn write_node(&mut self, node: &Node, origin: ContentOrigin) -> Result<(), PutError> {
        let is_first_name = match node.link_group {
            Some(group) => match self.linked.entry(group) {
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    vacant.insert((node.clone(), origin));
                    true
                }
                std::collections::btree_map::Entry::Occupied(_) => false,
            },
            None => true,
        };
        self.write_leaf(node, is_first_name, origin)
    }

    fn write_link(&mut self, name: Node) -> Result<(), PutError> {
        let first = name.link_group.and_then(|group| self.linked.get(&group));
        let (node, origin) = match first {
            Some((first, origin)) => (Node { name: name.name, ..first.clone() }, *origin),
            // Before it was read, the first name came to lead to another file.
            None => {
                let problem = Some(NodeProblem::Changed);
                (Node { link_group: None, problem, ..name }, ContentOrigin::Read)
            }
        };
        self.write_leaf(&node, false, origin)
    }

    /// Writes a node that is not an open folder.
    fn write_leaf(&mut self, node: &Node, counts_bytes: bool, origin: ContentOrigin) -> Result<(), PutError> {
        if !self.write_record(node, counts_bytes)? {
            return Ok(());
        }
        if let Some(vac) = &mut self.vac {
            vac.node(node)?;
        }
        if let Some(remembered) = self.remembered {
            remembered.remember(&self.path_of(node), node, origin);
        }
        Ok(())
    }

    fn close_folder(&mut self) -> Result<(), PutError> {
        let FolderInProgress { mut node, list } =
            self.open.pop().expect("a folder is closed once, after it was opened");
        node.content = list.finish()?;
        if let Some(vac) = &mut self.vac {
            vac.close(&node)?;
        }
        if self.open.is_empty() {
            if let Some(vac) = self.vac.take() {
                self.vac_done = vac.finish()?;
            }
            self.count(&node, false);
            self.root = Some(node);
        } else {
            self.write_record(&node, false)?;
        }
        Ok(())
    }

    /// Returns false if the node was reported and left out: a reader would not take it.
    fn write_record(&mut self, node: &Node, counts_bytes: bool) -> Result<bool, PutError> {
        let folder = self.open.last_mut().expect("all but the root is in a folder");
        match folder.list.push(node) {
            Ok(()) => {
                self.count(node, counts_bytes);
                Ok(true)
            }
            Err(WriteNodeError::Put(error)) => Err(error),
            Err(error) => {
                self.watch.report(Path::new(OsStr::from_bytes(&self.path_of(node))), error);
                self.counts.problem_count += 1;
                Ok(false)
            }
        }
    }

    /// The path from the root of the source.
    fn path_of(&self, node: &Node) -> Vec<u8> {
        let folders = self.open.iter().skip(1).map(|folder| folder.node.name.as_slice());
        folders.chain([node.name.as_slice()]).collect::<Vec<_>>().join(&b'/')
    }

    fn count(&mut self, node: &Node, counts_bytes: bool) {
        match node.kind {
            NodeKind::Folder => self.counts.folder_count += 1,
            _ => self.counts.file_count += 1,
        }
        if counts_bytes && node.content.is_some() {
            self.counts.bytes += node.size;
        }
        self.counts.problem_count += u64::from(node.problem.is_some());
    }
}

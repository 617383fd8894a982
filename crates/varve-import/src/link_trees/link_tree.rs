//! The walk over one tree of hard links.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use varve_content::folder::{
    ContentSink, DescriptionError, FOLDER_DEPTH_MAX, FileContent, HostAttributes, HostFolder, HostListing,
    HostStatus, TreeStep,
};
use varve_content::{Node, NodeKind, NodeProblem};

use super::seen_inodes::{LinkedFileId, SeenInodes};
use super::several_names::{InodesFrom, files_with_several_names};
use super::walk_ahead::StopSign;
use crate::foreign::ForeignStep;
use crate::seen_contents::ContentId;

/// The knowledge that the trees of one run share.
#[derive(Debug, Default)]
pub(super) struct SharedByTrees {
    inodes: Mutex<SeenInodes>,
    /// A listing has reported another inode than the status of the name.
    are_listings_wrong: AtomicBool,
}

impl SharedByTrees {
    fn several_names(&self, root: &HostFolder, stop: &StopSign) -> io::Result<BTreeSet<LinkedFileId>> {
        if !self.are_listings_wrong.load(Ordering::Relaxed) {
            if let Some(several) = files_with_several_names(root, InodesFrom::Listings, stop)? {
                return Ok(several);
            }
            self.are_listings_wrong.store(true, Ordering::Relaxed);
        }
        Ok(files_with_several_names(root, InodesFrom::Statuses, stop)?.unwrap_or_default())
    }

    /// The attributes of an entry that its status does not show. An entry that was seen in the same
    /// state is not opened.
    fn attributes(
        &self,
        folder: &HostFolder,
        name: &[u8],
        status: &HostStatus,
    ) -> io::Result<Arc<HostAttributes>> {
        let is_folder = status.kind() == Some(NodeKind::Folder);
        let (id, state) = (status.file_id(), status.state());
        if !is_folder && let Some(seen) = self.inodes.lock().find(&id, &state) {
            return Ok(seen);
        }
        let read = Arc::new(folder.attributes(name, status)?);
        // A file with one name is in no other tree.
        if !is_folder && status.link_count() > 1 {
            self.inodes.lock().add(id, state, &read);
        }
        Ok(read)
    }
}

/// A step through a tree.
pub(super) enum LinkStep {
    Tree(TreeStep),
    /// A file with content.
    File {
        node: Node,
        id: ContentId,
        folder: Arc<LinkFolder>,
    },
}

impl LinkStep {
    pub(super) fn into_foreign(self) -> ForeignStep {
        match self {
            Self::Tree(step) => ForeignStep::Tree(step),
            Self::File { node, id, folder } => {
                let content = Box::new(LinkedContent { folder, name: node.name.clone() });
                ForeignStep::File { node, id, content }
            }
        }
    }
}

/// The place of a folder.
pub(super) struct LinkFolder {
    root: Arc<Path>,
    /// The names from the root of the tree to the folder.
    path: Vec<Vec<u8>>,
}

/// A walk over a tree.
pub(super) struct LinkTree {
    folder: Arc<Path>,
    shared: Arc<SharedByTrees>,
    stop: StopSign,
    begin: Option<(HostFolder, Node)>,
    open: Vec<OpenLinkFolder>,
    waiting: Option<TreeStep>,
    several: BTreeSet<LinkedFileId>,
    /// The files of the link groups that have begun.
    begun: BTreeMap<u64, LinkedFileId>,
}

struct OpenLinkFolder {
    folder: HostFolder,
    names: Option<HostListing>,
    place: Arc<LinkFolder>,
}

impl LinkTree {
    /// Opens a tree, and lists all its folders once.
    pub(super) fn open(folder: Arc<Path>, shared: Arc<SharedByTrees>, stop: StopSign) -> io::Result<Self> {
        let (root, node) = HostFolder::open(&folder)?;
        let several = shared.several_names(&root, &stop)?;
        shared.inodes.lock().begin_tree();
        Ok(Self {
            folder,
            shared,
            stop,
            begin: Some((root, node)),
            open: Vec::new(),
            waiting: None,
            several,
            begun: BTreeMap::new(),
        })
    }

    fn enter(&mut self, folder: HostFolder, mut node: Node) -> LinkStep {
        let names = folder.list();
        if let Err(error) = &names {
            node.problem = Some(NodeProblem::Unreadable);
            let error = io::Error::new(error.kind(), error.to_string());
            self.waiting = Some(TreeStep::Harmed { name: Vec::new(), error: error.into() });
        }
        let path = match self.open.last() {
            Some(above) => above.place.path.iter().cloned().chain([node.name.clone()]).collect(),
            None => Vec::new(),
        };
        let place = Arc::new(LinkFolder { root: Arc::clone(&self.folder), path });
        self.open.push(OpenLinkFolder { folder, names: names.ok(), place });
        LinkStep::Tree(TreeStep::Open(node))
    }

    fn step(
        &mut self,
        name: &[u8],
        listed_inode: u64,
        status: io::Result<HostStatus>,
    ) -> Result<LinkStep, DescriptionError> {
        let Some(OpenLinkFolder { folder, place, .. }) = self.open.last() else {
            return Err("no folder is open".into());
        };
        let status = status?;
        let attributes = self.shared.attributes(folder, name, &status)?;
        let mut node = status.node(name.to_vec(), &attributes)?;
        // The inode is that of the copy, and not of the archived file.
        node.inode = 0;
        if node.kind == NodeKind::Folder {
            if self.open.len() >= FOLDER_DEPTH_MAX {
                return Err("the folders are nested too deeply".into());
            }
            let below = folder.folder(name)?;
            return Ok(self.enter(below, node));
        }
        let place = Arc::clone(place);
        let id = status.file_id();
        if id.2 != listed_inode && !self.shared.are_listings_wrong.swap(true, Ordering::Relaxed) {
            // No name that was compared before has shown it.
            let (root, _) = HostFolder::open(&self.folder)?;
            self.several = self.shared.several_names(&root, &self.stop)?;
        }
        if status.link_count() > 1 && self.several.contains(&id) {
            let (group, is_first) = link_group(&mut self.begun, id);
            node.link_group = Some(group);
            if !is_first {
                return Ok(LinkStep::Tree(TreeStep::Link(node)));
            }
        }
        if node.kind != NodeKind::File || node.size == 0 {
            return Ok(LinkStep::Tree(TreeStep::Entry(node)));
        }
        Ok(LinkStep::File { node, id: content_id(id, &status), folder: place })
    }
}

impl Iterator for LinkTree {
    type Item = LinkStep;

    fn next(&mut self) -> Option<LinkStep> {
        if let Some((folder, node)) = self.begin.take() {
            let node = Node { inode: 0, ..node };
            return Some(self.enter(folder, node));
        }
        if let Some(step) = self.waiting.take() {
            return Some(LinkStep::Tree(step));
        }
        let OpenLinkFolder { folder, names, .. } = self.open.last_mut()?;
        let next = names.as_mut().and_then(|names| names.next_with_status(folder));
        let Some((name, listed_inode, status)) = next else {
            self.open.pop();
            return Some(LinkStep::Tree(TreeStep::Close));
        };
        let step = self.step(&name, listed_inode, status);
        Some(step.unwrap_or_else(|error| LinkStep::Tree(TreeStep::Lost { name, error })))
    }
}

/// The link group of a file, and whether this is its first name: the number of its inode, or the
/// next number that no file of another device has.
fn link_group(begun: &mut BTreeMap<u64, LinkedFileId>, id: LinkedFileId) -> (u64, bool) {
    let mut group = id.2;
    loop {
        match begun.get(&group) {
            None => {
                begun.insert(group, id);
                return (group, true);
            }
            Some(begun) if *begun == id => return (group, false),
            Some(_) => group = group.wrapping_add(1),
        }
    }
}

/// The same inode with the same size and time has the same content. Ids of neighbouring inodes are
/// neighbours, so that those of one folder are found in the same part of a map.
fn content_id((major, minor, inode): LinkedFileId, status: &HostStatus) -> ContentId {
    let state = status.state();
    // The kernel's device numbers have 12 bits and 20 bits.
    let device = major.rotate_left(20) ^ minor;
    let mut id = [0; 32];
    let parts = [
        &device.to_be_bytes()[..],
        &inode.to_be_bytes(),
        &state.size.to_be_bytes(),
        &state.mtime.seconds().to_be_bytes(),
        &state.mtime.subsecond_nanoseconds().to_be_bytes(),
    ];
    let bytes = parts.into_iter().flatten();
    id.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
    id
}

/// The content of a file, which is opened only when it is read, so that few files are open.
struct LinkedContent {
    folder: Arc<LinkFolder>,
    name: Vec<u8>,
}

impl FileContent for LinkedContent {
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        let (mut folder, _) = HostFolder::open(&self.folder.root)?;
        for name in &self.folder.path {
            folder = folder.folder(name)?;
        }
        folder.file(&self.name)?.write_to(into)
    }
}

//! An archived folder as a file system that many clients can read in place at the same time.
//!
//! The number of a file is a keyed hash of its name and the number of its folder. The key belongs
//! to the snapshot. The number is therefore the same on every machine and at any time, and a user
//! who chooses names cannot give two files one number. All names of a file with several names (hard
//! links) have a number that is made from their link group instead.
//!
//! The place of a numbered file is recorded when the file is shown, which takes about 50 bytes. It
//! is forgotten when the client reports that the number is no longer in use. Everything else is
//! read again on request.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::{BlockStore, to_usize};
use varve_image::{FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr};
use varve_tree::{Entry, TreeReader};

use super::pages::{FolderPages, NodeInPage};
use crate::files::allocated_bytes::{allocated_bytes, next_data};
use crate::records::node::{Node, NodeKind};

/// The number of the root folder.
pub const ROOT: FileId = FileId(1);

/// Hash prefix for the number of a file with one name.
const BY_NAME: u8 = 0;
/// Hash prefix for the number of a file with several names.
const BY_GROUP: u8 = 1;

/// The files of a folder snapshot.
pub struct FolderFiles {
    blocks: Arc<dyn BlockStore>,
    pages: Arc<FolderPages>,
    root: Node,
    root_folder: Arc<ShownFolder>,
    key: [u8; 32],
    places: Mutex<BTreeMap<FileId, NodePosition>>,
}

/// A folder of which children were shown.
struct ShownFolder {
    id: FileId,
    content: Option<Entry>,
    name: Vec<u8>,
    parent: Option<Arc<ShownFolder>>,
}

/// The position of a node in its folder.
#[derive(Clone)]
struct NodePosition {
    folder: Arc<ShownFolder>,
    number: u64,
    /// Set if the node is a folder of which children were shown.
    opened: Option<Arc<ShownFolder>>,
}

/// A node, in the root field or in a page.
enum FoundNode<'a> {
    Root(&'a Node),
    Kept(NodeInPage),
}

impl FoundNode<'_> {
    fn node(&self) -> Result<&Node, FileSystemError> {
        match self {
            Self::Root(node) => Ok(node),
            Self::Kept(kept) => kept.get().ok_or_else(|| absent("file")),
        }
    }
}

impl FolderFiles {
    /// The files of the snapshot with the id `snapshot`, whose root folder is `root`.
    #[must_use]
    pub fn new(blocks: Arc<dyn BlockStore>, pages: Arc<FolderPages>, snapshot: [u8; 16], root: Node) -> Self {
        let key = blake3::derive_key("varve 1 numbers of files", &snapshot);
        let root_folder =
            Arc::new(ShownFolder { id: ROOT, content: root.content, name: Vec::new(), parent: None });
        Self { blocks, pages, root, root_folder, key, places: Mutex::default() }
    }

    fn place(&self, file: FileId) -> Result<NodePosition, FileSystemError> {
        self.places.lock().get(&file).cloned().ok_or_else(|| absent("file of this number"))
    }

    fn found(&self, file: FileId) -> Result<(FoundNode<'_>, Option<NodePosition>), FileSystemError> {
        if file == ROOT {
            return Ok((FoundNode::Root(&self.root), None));
        }
        let place = self.place(file)?;
        let content = place.folder.content.ok_or_else(|| absent("file of this number"))?;
        let found = self.pages.node(&*self.blocks, &content, place.number);
        let found = found.map_err(|error| unreadable(format!("folder {}", place.folder.path()), error))?;
        Ok((FoundNode::Kept(found.ok_or_else(|| absent("file of this number"))?), Some(place)))
    }

    /// The folder with this number, opened for listing.
    fn folder(&self, file: FileId) -> Result<Arc<ShownFolder>, FileSystemError> {
        if file == ROOT {
            return Ok(Arc::clone(&self.root_folder));
        }
        if let Some(opened) = self.place(file)?.opened {
            return Ok(opened);
        }
        let (found, place) = self.found(file)?;
        let node = found.node()?;
        let parent = place.map(|place| place.folder);
        let opened =
            Arc::new(ShownFolder { id: file, content: node.content, name: node.name.clone(), parent });
        if node.kind != NodeKind::Folder {
            return Err(FileSystemError::Absent { what: format!("folder {}", opened.path()) });
        }
        if let Some(place) = self.places.lock().get_mut(&file) {
            place.opened = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn id_of(&self, folder: &ShownFolder, node: &Node) -> FileId {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        match node.link_group {
            Some(group) if node.kind != NodeKind::Folder => {
                hasher.update(&[BY_GROUP]).update(&group.to_le_bytes());
            }
            _ => {
                hasher.update(&[BY_NAME]).update(&folder.id.0.to_le_bytes()).update(&node.name);
            }
        }
        let mut number = [0; 8];
        hasher.finalize_xof().fill(&mut number);
        // No file has the number of the root, or 0.
        FileId(u64::from_le_bytes(number).max(ROOT.0.saturating_add(1)))
    }

    /// Records the place of a node that is about to be shown.
    fn show(&self, folder: &Arc<ShownFolder>, number: u64, node: &Node) -> FolderChild {
        let id = self.id_of(folder, node);
        let place = || NodePosition { folder: Arc::clone(folder), number, opened: None };
        self.places.lock().entry(id).or_insert_with(place);
        FolderChild { name: node.name.clone(), id, kind: kind_of(node.kind) }
    }

    fn what(&self, place: Option<&NodePosition>, node: &Node) -> String {
        let folder = place.map_or_else(String::new, |place| place.folder.path());
        let slash = if folder.is_empty() { "" } else { "/" };
        format!("{} {folder}{slash}{}", node.kind, String::from_utf8_lossy(&node.name))
    }
}

impl ShownFolder {
    /// The path from the root of the snapshot, for messages.
    fn path(&self) -> String {
        let mut names = vec![String::from_utf8_lossy(&self.name)];
        let mut above = self.parent.as_ref();
        while let Some(folder) = above.filter(|folder| folder.parent.is_some()) {
            names.push(String::from_utf8_lossy(&folder.name));
            above = folder.parent.as_ref();
        }
        names.reverse();
        names.join("/")
    }
}

impl Drop for ShownFolder {
    fn drop(&mut self) {
        // Drops the ancestors in a loop: recursion could overflow the stack with a deep path.
        let mut above = self.parent.take();
        while let Some(mut folder) = above.and_then(Arc::into_inner) {
            above = folder.parent.take();
        }
    }
}

fn absent(what: &str) -> FileSystemError {
    FileSystemError::Absent { what: what.to_owned() }
}

fn unreadable(what: String, error: impl std::error::Error + Send + Sync + 'static) -> FileSystemError {
    FileSystemError::Read { what, source: io::Error::other(error) }
}

fn kind_of(kind: NodeKind) -> FileKind {
    match kind {
        NodeKind::File => FileKind::File,
        NodeKind::Folder => FileKind::Folder,
        NodeKind::SymbolicLink => FileKind::SymbolicLink,
        NodeKind::CharacterDevice => FileKind::CharacterDevice,
        NodeKind::BlockDevice => FileKind::BlockDevice,
        NodeKind::Fifo => FileKind::Fifo,
        NodeKind::Socket => FileKind::Socket,
    }
}

impl FileSystem for FolderFiles {
    fn root(&self) -> FileId {
        ROOT
    }

    /// The number of links of a file with several names is unknown. It is reported as 2, so that
    /// programs look for the other names. Folders report 1, which tells programs to count for
    /// themselves.
    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        let (found, _) = self.found(file)?;
        let node = found.node()?;
        let size = if node.kind == NodeKind::SymbolicLink { node.target.len() as u64 } else { node.size };
        let is_linked = node.link_group.is_some() && node.kind != NodeKind::Folder;
        Ok(FileStatus {
            uid: node.uid,
            gid: node.gid,
            links: if is_linked { 2 } else { 1 },
            allocated: match (&node.content, node.kind) {
                (Some(content), NodeKind::File) => allocated_bytes(&*self.blocks, content),
                _ => 0,
            },
            modified: node.mtime,
            changed: node.ctime,
            device: node.device,
            ..FileStatus::new(kind_of(node.kind), node.mode, size)
        })
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        let folder = self.folder(folder)?;
        let Some(content) = folder.content else { return Ok(()) };
        self.pages
            .visit(&*self.blocks, &content, first, &mut |number, node| {
                visit(self.show(&folder, number, node)).is_continue()
            })
            .map_err(|error| unreadable(format!("folder {}", folder.path()), error))
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        let folder = self.folder(folder)?;
        let Some(content) = folder.content else { return Ok(None) };
        let found = self.pages.find(&*self.blocks, &content, name);
        let found = found.map_err(|error| unreadable(format!("folder {}", folder.path()), error))?;
        let shown =
            |(number, kept): (u64, NodeInPage)| kept.get().map(|node| self.show(&folder, number, node));
        Ok(found.and_then(shown))
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let (found, place) = self.found(file)?;
        let node = found.node()?;
        if node.kind != NodeKind::File {
            return Err(FileSystemError::Absent {
                what: format!("file {}", self.what(place.as_ref(), node)),
            });
        }
        let Some(content) = node.content.filter(|content| offset < content.size()) else { return Ok(0) };
        let left = to_usize(content.size().saturating_sub(offset));
        let length = left.min(into.len());
        let into = into.get_mut(..length).unwrap_or_default();
        match TreeReader::new(&*self.blocks, &content).read_at(offset, into) {
            Ok(()) => Ok(length),
            Err(error) => Err(unreadable(self.what(place.as_ref(), node), error)),
        }
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let (found, place) = self.found(file)?;
        let node = found.node()?;
        let Some(content) = node.content.filter(|_| node.kind == NodeKind::File) else { return Ok(None) };
        next_data(&*self.blocks, &content, offset)
            .map_err(|error| unreadable(self.what(place.as_ref(), node), error))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let (found, place) = self.found(link)?;
        let node = found.node()?;
        if node.kind != NodeKind::SymbolicLink {
            let what = format!("symbolic link {}", self.what(place.as_ref(), node));
            return Err(FileSystemError::Absent { what });
        }
        Ok(node.target.clone())
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        let (found, _) = self.found(file)?;
        Ok(found.node()?.xattrs.clone())
    }

    fn forget(&self, file: FileId) {
        let forgotten = self.places.lock().remove(&file);
        drop(forgotten);
    }
}

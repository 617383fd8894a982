//! Shows the files of one volume as nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::to_usize;
use varve_image::{FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild};

use super::VOLUME_SHIFT;
use crate::files::{ContentKey, Nodes, ReadProblem};
use crate::image::{ImagePart, RestoreImageError};
use crate::progress::Progress;
use crate::reading_content::{OnLoss, ReadContentError, TakeBytes};
use crate::records::node::{MODE_MASK, Node, NodeKind, NodeProblem, is_component};
use crate::records::node_list::ReadFolderError;

/// Bytes of a file that are read at a time.
const READ_BYTES: u64 = 1 << 20;
/// Bytes that are read at a time around damage. Almost all supported file systems have data blocks
/// of at least this size.
const AROUND_BYTES: u64 = 4096;
/// Upper bound on the names of one folder that are held in memory.
const CHILD_COUNT_MAX: usize = 4 << 20;
/// Upper bound on the problems that are reported for one folder.
const TROUBLE_COUNT_MAX: usize = 100;

/// The files of one volume, and the known position of its folders.
pub(super) struct VolumeFiles {
    files: Arc<dyn FileSystem>,
    /// The bits of the volume in the numbers of its files.
    tag: u64,
    /// The parent of each folder that was visited, at a cost of some bytes per folder. Without this
    /// map, a damaged volume could lead in circles, or to one folder by a million paths.
    places: Mutex<BTreeMap<FileId, Option<FileId>>>,
}

impl VolumeFiles {
    pub(super) fn new(files: Arc<dyn FileSystem>, tag: u64) -> Result<Self, FileSystemError> {
        files.status(files.root())?;
        let places = Mutex::new(BTreeMap::from([(files.root(), None)]));
        Ok(Self { files, tag, places })
    }

    pub(super) fn warning(&self) -> Option<String> {
        self.files.warning()
    }

    pub(super) fn root(&self, name: Vec<u8>) -> Node {
        self.node(name, self.files.root(), FileKind::Folder)
    }

    pub(super) fn is_root(&self, id: FileId) -> bool {
        id == self.files.root()
    }

    pub(super) fn nodes(&self, folder: FileId) -> Nodes<'_> {
        let (mut children, mut trouble) = (Vec::new(), Vec::new());
        let listed = self.files.children(folder, 0, &mut |child| {
            if children.len() == CHILD_COUNT_MAX {
                trouble.push(ReadFolderError::TooMany { count: CHILD_COUNT_MAX });
                return ControlFlow::Break(());
            }
            children.push(child);
            ControlFlow::Continue(())
        });
        trouble.extend(listed.err().map(ReadFolderError::from));
        children.sort_by(|one, other| one.name.cmp(&other.name));
        Box::new(VolumeNodes {
            files: self,
            folder,
            children: children.into_iter(),
            last: Vec::new(),
            folders: BTreeSet::new(),
            trouble: trouble.into(),
        })
    }

    pub(super) fn find(&self, folder: FileId, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        let found = self.files.child(folder, name)?;
        let Some(node) = found.map(|child| self.node(child.name, child.id, child.kind)) else {
            return Ok(None);
        };
        let id = FileId(node.inode & !self.tag);
        if node.kind == NodeKind::Folder && !self.lies_in(id, folder) {
            return Err(ReadFolderError::Elsewhere { name: node.name });
        }
        Ok(Some(node))
    }

    /// Records the parent of a folder. Returns false if the folder has another parent already.
    fn lies_in(&self, folder: FileId, parent: FileId) -> bool {
        *self.places.lock().entry(folder).or_insert(Some(parent)) == Some(parent)
    }

    pub(super) fn problem(&self, id: FileId) -> Option<ReadProblem> {
        let status = match self.files.status(id) {
            Ok(status) => status,
            Err(error) => {
                return Some(ReadProblem { error: Box::new(error), lacks_all: true, is_damage: true });
            }
        };
        let target = match status.kind {
            FileKind::SymbolicLink => self.files.link_target(id).err(),
            _ => None,
        };
        let lacks_all = target.is_some();
        let error = target.or_else(|| self.files.xattrs(id).err())?;
        Some(ReadProblem { error: Box::new(error), lacks_all, is_damage: true })
    }

    /// The key of a file. It lists the ranges of the volume that hold the file, if its bytes are
    /// there as they are.
    pub(super) fn content_key(&self, id: FileId, node: &Node, volume: ImagePart) -> ContentKey {
        let Ok(Some(places)) = self.files.places(id) else { return ContentKey::Unknown };
        let placed_bytes: u64 = places.iter().map(|place| place.end.saturating_sub(place.start)).sum();
        let has_holes = placed_bytes < node.size;
        match (has_holes, node.ctime) {
            (true, None) => ContentKey::Unknown,
            (true, changed) => ContentKey::Placed { volume, places, changed },
            (false, _) => ContentKey::Placed { volume, places, changed: None },
        }
    }

    /// Passes the data of a file to `take`, without its holes. Its status claims `size` bytes.
    /// `lost` decides whether damage ends the read. Damage is skipped in steps of [`AROUND_BYTES`].
    /// If the file's data ranges are unreadable, the rest of the range is lost.
    pub(super) fn read_with(
        &self,
        id: FileId,
        size: u64,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError> {
        let end = range.end.min(size);
        let mut offset = range.start;
        let mut buffer = Vec::new();
        // Small steps around damage end here.
        let mut careful_until = 0;
        while offset < end {
            let data = match self.files.next_data(id, offset) {
                Ok(Some(data)) => data,
                Ok(None) => return Ok(()),
                Err(damage) => return lost(offset..end, damage.into()),
            };
            offset = offset.max(data.start);
            let data_end = data.end.min(end);
            if data_end <= offset && offset < end {
                return lost(
                    offset..end,
                    damaged(format!("its data at {offset} has an end before its start")),
                );
            }
            while offset < data_end {
                let is_careful = offset < careful_until;
                let step = if is_careful { AROUND_BYTES - offset % AROUND_BYTES } else { READ_BYTES };
                let length = (data_end - offset).min(step);
                buffer.resize(to_usize(length), 0);
                match self.files.read_at(id, offset, &mut buffer) {
                    Ok(count) => {
                        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                            let what = format!("it has {size} bytes, but its data ends at {offset}");
                            return lost(offset..end, damaged(what));
                        };
                        take(offset, bytes).map_err(ReadContentError::Take)?;
                        offset += bytes.len() as u64;
                    }
                    Err(damage) if is_careful => {
                        lost(offset..offset + length, damage.into())?;
                        offset += length;
                    }
                    Err(damage) => {
                        // An empty range is no loss. The call lets the caller end the read.
                        lost(offset..offset, damage.into())?;
                        careful_until = offset + length;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_to(
        &self,
        id: FileId,
        size: u64,
        into: &mut (dyn Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError> {
        progress.set_total(0, size);
        let mut written = 0;
        let mut take = |offset: u64, bytes: &[u8]| {
            io::copy(&mut io::Read::take(io::repeat(0), offset - written), into)?;
            into.write_all(bytes)?;
            written = offset + bytes.len() as u64;
            Ok(())
        };
        let read = self.read_with(id, size, 0..size, &mut take, &mut |_, damage| Err(damage));
        let output = |source| RestoreImageError::Write { path: Path::new("the output").into(), source };
        match read {
            Ok(()) => {
                io::copy(&mut io::Read::take(io::repeat(0), size - written), into).map_err(output)?;
                Ok(())
            }
            Err(ReadContentError::Take(source)) => Err(output(source)),
            Err(source) => Err(RestoreImageError::ReadFile(Box::new(source))),
        }
    }

    /// Builds the node of a file. Unreadable fields stay empty, and the node then records a
    /// problem.
    fn node(&self, name: Vec<u8>, id: FileId, kind: FileKind) -> Node {
        let blank = Node { inode: self.tag | id.0, ..Node::new(name, node_kind(kind)) };
        let unreadable = Some(NodeProblem::Unreadable);
        let Ok(status) = self.files.status(id) else { return Node { problem: unreadable, ..blank } };
        let mut node = with_status(blank, &status);
        if status.kind == FileKind::SymbolicLink {
            match self.files.link_target(id) {
                Ok(target) => node.target = target,
                Err(_) => node.problem = unreadable,
            }
        }
        match self.files.xattrs(id) {
            Ok(xattrs) => node.xattrs = xattrs,
            Err(_) => node.problem = unreadable,
        }
        node
    }
}

/// The nodes of a folder, followed by its problems.
struct VolumeNodes<'a> {
    files: &'a VolumeFiles,
    folder: FileId,
    children: std::vec::IntoIter<FolderChild>,
    last: Vec<u8>,
    /// The folders that were returned so far.
    folders: BTreeSet<u64>,
    trouble: VecDeque<ReadFolderError>,
}

impl Iterator for VolumeNodes<'_> {
    type Item = Result<Node, ReadFolderError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(child) = self.children.next() {
            if let Some(problem) = self.problem_with_name(&child) {
                self.note(problem);
                continue;
            }
            self.last.clone_from(&child.name);
            let node = self.files.node(child.name, child.id, child.kind);
            if node.kind == NodeKind::Folder && !self.belongs_here(child.id) {
                self.note(ReadFolderError::Elsewhere { name: node.name });
                continue;
            }
            return Some(Ok(node));
        }
        self.trouble.pop_front().map(Err)
    }
}

impl VolumeNodes<'_> {
    fn problem_with_name(&self, child: &FolderChild) -> Option<ReadFolderError> {
        let name = child.name.clone();
        if !is_component(&name) {
            return Some(ReadFolderError::Name { name });
        }
        if name == self.last {
            return Some(ReadFolderError::Order { previous: name.clone(), name });
        }
        (child.id.0 >= 1 << VOLUME_SHIFT).then(|| ReadFolderError::Number { name, number: child.id.0 })
    }

    fn belongs_here(&mut self, id: FileId) -> bool {
        self.folders.insert(id.0) && self.files.lies_in(id, self.folder)
    }

    fn note(&mut self, problem: ReadFolderError) {
        // If a folder contains nothing but garbage, the first problems suffice.
        if self.trouble.len() < TROUBLE_COUNT_MAX {
            self.trouble.push_back(problem);
        }
    }
}

fn with_status(node: Node, status: &FileStatus) -> Node {
    let is_file = status.kind == FileKind::File;
    let has_names = status.links > 1 && status.kind != FileKind::Folder;
    Node {
        kind: node_kind(status.kind),
        mode: status.mode & MODE_MASK,
        uid: status.uid,
        gid: status.gid,
        mtime: status.modified,
        ctime: status.changed,
        link_group: has_names.then_some(node.inode),
        size: if is_file { status.size } else { 0 },
        device: status.device,
        ..node
    }
}

fn damaged(problem: String) -> ReadContentError {
    FileSystemError::Damaged { what: "file".into(), problem }.into()
}

fn node_kind(kind: FileKind) -> NodeKind {
    match kind {
        FileKind::File => NodeKind::File,
        FileKind::Folder => NodeKind::Folder,
        FileKind::SymbolicLink => NodeKind::SymbolicLink,
        FileKind::CharacterDevice => NodeKind::CharacterDevice,
        FileKind::BlockDevice => NodeKind::BlockDevice,
        FileKind::Fifo => NodeKind::Fifo,
        FileKind::Socket => NodeKind::Socket,
    }
}

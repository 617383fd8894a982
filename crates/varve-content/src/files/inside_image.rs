//! Shows an archived disk as one tree of folders, with the files of its volumes.
//!
//! ```text
//! image ─┬─ p1/        the files of a volume
//!        ├─ p2         a volume whose files are unreadable: its bytes, as one file
//!        ├─ p1.raw     the bytes of any volume      ┐ found by name, but not listed,
//!        └─ disk.raw   the bytes of the whole disk  ┘ because they repeat other files
//! ```
//!
//! Invariants:
//! - Every name is one path component, whatever a file system contains. No folder is reachable in
//!   two ways, so every walk ends.
//! - Data is read only on request, through one bounded cache.

mod volume;

use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use varve_block::{BlockStore, to_usize};
use varve_image::{Disk, DiskProblem, FileId, FileSystem, FileSystemError, Volume, VolumeContent};
use varve_tree::Entry;
use varve_world::Workers;

use self::volume::VolumeFiles;
use crate::files::{ContentKey, Files, Nodes, ReadProblem};
use crate::image::{CachedBlocks, ImagePart, ImageReader, RestoreImageError, write_image};
use crate::progress::Progress;
use crate::reading_content::{OnLoss, ReadContentError, TakeBytes};
use crate::records::node::{Node, NodeKind, NodeProblem};
use crate::records::node_list::ReadFolderError;

/// The name of the file with all bytes of the disk.
const DISK_RAW: &[u8] = b"disk.raw";
/// The suffix that turns the name of a volume into the name of the file with its bytes.
const RAW_ENDING: &str = ".raw";
/// The node number is the volume's number shifted left by this many bits, plus the file's number in
/// its volume.
const VOLUME_SHIFT: u32 = 56;
/// Upper bound on the volumes whose files are shown. Further volumes are shown as their bytes.
const VOLUME_COUNT_MAX: usize = 255;
/// The files inside an archived disk.
pub struct ImageFiles {
    blocks: Arc<CachedBlocks>,
    entry: Entry,
    disk: Disk,
    /// The files of the volumes, each opened at the first request.
    opened: Vec<OnceLock<Result<VolumeFiles, FileSystemError>>>,
}

/// A volume in a listing.
pub struct ListedVolume<'a> {
    pub volume: &'a Volume,
    /// The reason why it shows no files, if it shows none.
    pub unreadable: Option<&'a FileSystemError>,
}

/// The volume has a file system, and none of its files is readable.
#[derive(Debug, thiserror::Error)]
#[error("{reason}; it is shown as raw bytes")]
struct UnreadableVolume {
    reason: String,
}

/// The decoded number of a node.
enum ImageNode<'a> {
    Disk,
    Raw(ImagePart),
    File(&'a VolumeFiles, FileId),
}

impl ImageFiles {
    /// Opens the disk that `entry` leads to. Its contents cannot make this fail.
    #[must_use]
    pub fn open(blocks: Arc<CachedBlocks>, entry: &Entry) -> Self {
        let disk = Disk::open(Arc::new(ImageReader::new(Arc::clone(&blocks), entry)));
        let opened = disk.volumes().iter().map(|_| OnceLock::new()).collect();
        Self { blocks, entry: *entry, disk, opened }
    }

    /// The folder that holds the volumes.
    #[must_use]
    pub fn root(&self) -> Node {
        Node { mode: 0o555, ..Node::new(Vec::new(), NodeKind::Folder) }
    }

    /// All bytes of the disk.
    #[must_use]
    pub fn raw(&self) -> ImagePart {
        ImagePart::whole(&self.entry)
    }

    /// The part of the disk that a node shows as raw bytes. `None` for a file or a folder of a
    /// volume.
    #[must_use]
    pub fn raw_of(&self, node: &Node) -> Option<ImagePart> {
        match self.place(node) {
            Some(ImageNode::Raw(part)) => Some(part),
            _ => None,
        }
    }

    /// The volumes of the disk, in disk order.
    pub fn volumes(&self) -> impl Iterator<Item = ListedVolume<'_>> {
        let listed = |(index, volume)| ListedVolume { volume, unreadable: self.volume_files(index).err() };
        self.disk.volumes().iter().enumerate().map(listed)
    }

    /// The size of the sectors in which the partition table of the disk counts, if the disk shows
    /// it.
    #[must_use]
    pub fn sector_bytes(&self) -> Option<u64> {
        self.disk.sector_bytes()
    }

    /// The problems of the disk that were found so far.
    #[must_use]
    pub fn problems(&self) -> &[DiskProblem] {
        self.disk.problems()
    }

    /// Warnings about the volumes that were opened, each with the name of its volume.
    pub fn warnings(&self) -> impl Iterator<Item = (&str, String)> {
        let opened = self.disk.volumes().iter().zip(&self.opened);
        opened.filter_map(|(volume, opened)| Some((volume.name(), opened.get()?.as_ref().ok()?.warning()?)))
    }

    /// The content type of a volume that is shown as its bytes.
    #[must_use]
    pub fn content_of(&self, node: &Node) -> Option<VolumeContent> {
        let index = to_usize(node.inode.checked_sub(2)?);
        self.disk.volumes().get(index).map(Volume::content)
    }

    /// The files of a volume.
    fn volume_files(&self, index: usize) -> Result<&VolumeFiles, &FileSystemError> {
        let open = || {
            let tag = u64::try_from(index + 1).ok().filter(|_| index < VOLUME_COUNT_MAX);
            let Some(tag) = tag else {
                let what = format!("volume {}", self.disk.volumes()[index].name());
                return Err(FileSystemError::Unsupported { what, feature: "so many volumes".into() });
            };
            let files: Arc<dyn FileSystem> = self.disk.volumes()[index].open_file_system()?;
            VolumeFiles::new(files, tag << VOLUME_SHIFT)
        };
        self.opened[index].get_or_init(open).as_ref()
    }

    /// The node of a volume: the folder with its files, or a file with its bytes.
    fn volume_node(&self, index: usize) -> Node {
        let name = self.disk.volumes()[index].name().as_bytes().to_vec();
        match self.volume_files(index) {
            Ok(files) => files.root(name),
            Err(FileSystemError::Unsupported { .. }) => self.raw_node(name, index),
            // The volume has files, so a user who looks for them must see that there is a problem.
            Err(_) => Node { problem: Some(NodeProblem::Unreadable), ..self.raw_node(name, index) },
        }
    }

    fn raw_node(&self, name: Vec<u8>, index: usize) -> Node {
        let size = self.disk.volumes()[index].size();
        Node { inode: index as u64 + 2, ..self.bytes_node(name, size) }
    }

    fn bytes_node(&self, name: Vec<u8>, size: u64) -> Node {
        Node { mode: 0o400, size, inode: 1, ..Node::new(name, NodeKind::File) }
    }

    fn find_volume(&self, name: &[u8]) -> Option<Node> {
        if name == DISK_RAW {
            return Some(self.bytes_node(name.to_vec(), self.entry.size()));
        }
        let name = std::str::from_utf8(name).ok()?;
        let index_of = |name| self.disk.volumes().iter().position(|volume| volume.name() == name);
        let raw = || Some(self.raw_node(name.into(), index_of(name.strip_suffix(RAW_ENDING)?)?));
        index_of(name).map(|index| self.volume_node(index)).or_else(raw)
    }

    /// The volume that holds a file.
    fn part_of(&self, node: &Node) -> Option<ImagePart> {
        self.part(to_usize(node.inode >> VOLUME_SHIFT).checked_sub(1)?)
    }

    fn part(&self, index: usize) -> Option<ImagePart> {
        Some(ImagePart::of(&self.entry, self.disk.volumes().get(index)?.pieces()))
    }

    fn place(&self, node: &Node) -> Option<ImageNode<'_>> {
        let tag = to_usize(node.inode >> VOLUME_SHIFT);
        match (tag, node.inode) {
            (0, 0) => Some(ImageNode::Disk),
            (0, 1) => Some(ImageNode::Raw(self.raw())),
            (0, number) => Some(ImageNode::Raw(self.part(to_usize(number - 2))?)),
            (tag, number) => {
                let files = self.opened.get(tag - 1)?.get()?.as_ref().ok()?;
                Some(ImageNode::File(files, FileId(number & ((1 << VOLUME_SHIFT) - 1))))
            }
        }
    }
}

impl Files for ImageFiles {
    fn blocks(&self) -> &dyn BlockStore {
        &*self.blocks
    }

    fn nodes(&self, folder: &Node) -> Nodes<'_> {
        match self.place(folder) {
            Some(ImageNode::Disk) => {
                let mut volumes: Vec<_> =
                    (0..self.opened.len()).map(|index| self.volume_node(index)).collect();
                volumes.sort_by(|one, other| one.name.cmp(&other.name));
                Box::new(volumes.into_iter().map(Ok))
            }
            Some(ImageNode::File(files, id)) if folder.kind == NodeKind::Folder => files.nodes(id),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        match self.place(folder) {
            Some(ImageNode::Disk) => Ok(self.find_volume(name)),
            Some(ImageNode::File(files, id)) if folder.kind == NodeKind::Folder => files.find(id, name),
            _ => Ok(None),
        }
    }

    fn problem(&self, node: &Node) -> Option<ReadProblem> {
        node.problem?;
        if let Some(ImageNode::File(files, id)) = self.place(node) {
            return files.problem(id);
        }
        let index = to_usize(node.inode.checked_sub(2)?);
        let error =
            Box::new(UnreadableVolume { reason: self.opened.get(index)?.get()?.as_ref().err()?.to_string() });
        // The bytes of the volume are readable.
        Some(ReadProblem { error, lacks_all: false, is_damage: true })
    }

    fn read_with(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError> {
        match self.place(file) {
            Some(ImageNode::File(files, id)) => files.read_with(id, file.size, range, take, lost),
            Some(ImageNode::Raw(part)) => part.read_with(&*self.blocks, range, take, lost),
            _ => Ok(()),
        }
    }

    fn write_to(
        &self,
        workers: &dyn Workers,
        file: &Node,
        into: &mut (dyn Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError> {
        match self.place(file) {
            Some(ImageNode::Raw(part)) => write_image(&*self.blocks, workers, &part, into, progress),
            Some(ImageNode::File(files, id)) => files.write_to(id, file.size, into, progress),
            _ => Ok(()),
        }
    }

    fn content_key(&self, node: &Node) -> ContentKey {
        match (self.place(node), node.kind) {
            (Some(ImageNode::Raw(part)), _) => ContentKey::Image(part),
            _ if node.problem.is_some() => ContentKey::Lost,
            (Some(ImageNode::File(files, id)), kind) => {
                let Some(volume) = self.part_of(node) else { return ContentKey::Unknown };
                match kind {
                    NodeKind::Folder if files.is_root(id) => ContentKey::Image(volume),
                    NodeKind::File => files.content_key(id, node, volume),
                    _ => ContentKey::Unknown,
                }
            }
            _ => ContentKey::Unknown,
        }
    }
}

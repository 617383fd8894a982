//! A place: a file or folder in a snapshot, or inside a disk in a snapshot.

use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_archive::{Snapshot, SnapshotContent};
use varve_block::to_usize;
use varve_content::folder::{LookupError, lookup};
use varve_content::{Files, Node, NodeKind};

use super::open_files::{FileOpener, OpenFiles};
use super::picture::{HEAD_BYTES, MAGIC_BYTES, PICTURE_BYTES_MAX, Picture, has_magic, recognise};

/// A path with more disks inside disks is not followed.
const DISKS_MAX: usize = 3;
/// A smaller file is not opened as a disk.
pub(crate) const DISK_BYTES_MIN: u64 = 64 << 10;

/// A file or folder, with the files that it is read from.
pub(crate) struct Place {
    pub(crate) files: OpenFiles,
    pub(crate) node: Node,
    /// True if the place is inside an archived disk.
    pub(crate) is_in_disk: bool,
}

/// Why there is no such place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{0}")]
    Absent(#[source] LookupError),
    #[error("{0}")]
    Unreadable(#[source] LookupError),
    #[error("the path leads into too many disks")]
    Depth,
}

impl Place {
    /// Finds a path in a snapshot. A path that goes on behind a file goes on in the disk that this
    /// file holds; a slash at its end means the disk itself.
    pub(crate) fn find(opener: &FileOpener, snapshot: &Snapshot, path: &[u8]) -> Result<Self, PlaceError> {
        let is_into_disk = path.ends_with(b"/");
        let mut path = Path::new(OsStr::from_bytes(path)).to_owned();
        let mut place = Self::root(opener, snapshot);
        for _ in 0..DISKS_MAX {
            let found = place.files.with(|files| lookup(files, &place.node, &path));
            let error = match found {
                Ok(node) => return place.end_at(opener, node, is_into_disk),
                Err(error) => error,
            };
            let LookupError::NotAFolder { path: file, kind: NodeKind::File } = &error else {
                return Err(match error {
                    LookupError::Folder { .. } => PlaceError::Unreadable(error),
                    error => PlaceError::Absent(error),
                });
            };
            let node =
                place.files.with(|files| lookup(files, &place.node, file)).map_err(PlaceError::Absent)?;
            let Some(disk) = place.files.disk_in(opener, &node) else {
                return Err(PlaceError::Absent(error));
            };
            let rest = path.strip_prefix(file).unwrap_or(Path::new("")).to_owned();
            let OpenFiles::Disk(files) = &disk else { return Err(PlaceError::Absent(error)) };
            place = Self { node: files.root(), files: disk, is_in_disk: true };
            path = rest;
        }
        Err(PlaceError::Depth)
    }

    fn end_at(self, opener: &FileOpener, node: Node, is_into_disk: bool) -> Result<Self, PlaceError> {
        let place = Self { node, ..self };
        if !is_into_disk || place.node.kind != NodeKind::File {
            return Ok(place);
        }
        let Some(OpenFiles::Disk(disk)) = place.disk(opener) else {
            let path = Path::new(OsStr::from_bytes(&place.node.name)).to_owned();
            return Err(PlaceError::Absent(LookupError::NotAFolder { path, kind: NodeKind::File }));
        };
        Ok(Self { node: disk.root(), files: OpenFiles::Disk(disk), is_in_disk: true })
    }

    /// The root of a snapshot.
    pub(crate) fn root(opener: &FileOpener, snapshot: &Snapshot) -> Self {
        match &snapshot.content {
            SnapshotContent::Folder(root) => {
                Self { files: opener.folder(), node: (**root).clone(), is_in_disk: false }
            }
            SnapshotContent::Image(entry) => {
                let disk = opener.disk(entry);
                Self { node: disk.root(), files: OpenFiles::Disk(disk), is_in_disk: true }
            }
        }
    }

    /// The disk that this file holds, with at least one volume of files. `None` for other files.
    pub(crate) fn disk(&self, opener: &FileOpener) -> Option<OpenFiles> {
        let disk = self.files.disk_in(opener, &self.node)?;
        let OpenFiles::Disk(files) = &disk else { return None };
        let has_files = files.volumes().any(|volume| volume.unreadable.is_none());
        has_files.then_some(disk)
    }
}

impl OpenFiles {
    /// The disk in a file that was archived in a folder.
    fn disk_in(&self, opener: &FileOpener, file: &Node) -> Option<OpenFiles> {
        let Self::Stored(_) = self else { return None };
        let is_large = file.kind == NodeKind::File && file.size >= DISK_BYTES_MIN;
        let content = file.content.filter(|_| is_large)?;
        Some(Self::Disk(opener.disk(&content)))
    }
}

impl Place {
    /// The picture that this file is, if a page may show it.
    pub(crate) fn picture(&self) -> Option<Picture> {
        let is_small = self.node.kind == NodeKind::File && self.node.size <= PICTURE_BYTES_MAX;
        let read = |count| self.files.with(|files| read_start(files, &self.node, count)).ok();
        // Most files are none, and their first bytes tell.
        let magic = is_small.then(|| read(MAGIC_BYTES))??;
        recognise(&has_magic(&magic).then(|| read(HEAD_BYTES))??, self.node.size)
    }
}

/// The beginning of a file.
pub(crate) fn read_start(
    files: &dyn Files,
    node: &Node,
    bytes_max: u64,
) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let length = node.size.min(bytes_max);
    let mut bytes = vec![0; to_usize(length)];
    files.read(node, 0..length, &mut |offset, piece| {
        let at = to_usize(offset);
        let room = bytes.get_mut(at..).unwrap_or_default();
        let count = piece.len().min(room.len());
        room[..count].copy_from_slice(&piece[..count]);
        Ok(())
    })?;
    Ok(bytes)
}

//! A published disk as a folder: the whole disk in `disk.raw`, and the files of its volumes.
//!
//! ```text
//! disk.raw         the whole disk
//! p1/ p2/ …        the files of its volumes
//! p3.raw           a volume whose files cannot be read
//! ```
//!
//! The volumes are looked for when the folder is listed for the first time, or when one of them is
//! named. So a program that reads only `disk.raw` fetches nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use varve_attach::PublishedDisk;
use varve_block::to_usize;
use varve_image::{
    Disk, FileId, FileKind, FileStatus, FileSystem, FileSystemError, FileTime, FolderChild, OnChild, ReadAt,
    Xattr,
};

use crate::ServedFileSystem;
use crate::days::{ROOT, number, safe_name};

const WHOLE_NAME: &[u8] = b"disk.raw";
const WHOLE: FileId = FileId(ROOT.0 + 1);
/// The raw bytes of volume 0; those of volume 1 follow.
const FIRST_RAW: u64 = WHOLE.0 + 1;

/// A published disk as a file system.
pub struct PublishedFolder {
    disk: Arc<PublishedDisk>,
    owner: (u32, u32),
    /// Mixed into the numbers of the volumes' files.
    key: [u8; 32],
    volumes: OnceLock<Vec<ShownVolume>>,
    /// The files of volumes that the front end knows.
    places: Mutex<BTreeMap<FileId, VolumeFile>>,
}

struct ShownVolume {
    name: Vec<u8>,
    bytes: Arc<dyn ReadAt>,
    files: Option<Arc<dyn FileSystem>>,
}

#[derive(Debug, Clone, Copy)]
struct VolumeFile {
    volume: u32,
    file: FileId,
}

enum FolderPlace {
    Root,
    Raw(Arc<dyn ReadAt>),
    Inside(VolumeFile, Arc<dyn FileSystem>),
}

impl PublishedFolder {
    /// Shows a disk. `owner` is the user and the group that own the raw files.
    #[must_use]
    pub fn new(disk: Arc<PublishedDisk>, owner: (u32, u32)) -> Self {
        let root = disk.image().root.name;
        let key = blake3::derive_key("varve 1 numbers of files in a published disk", root.as_bytes());
        Self { disk, owner, key, volumes: OnceLock::new(), places: Mutex::default() }
    }

    fn volumes(&self) -> &[ShownVolume] {
        self.volumes.get_or_init(|| {
            let disk = Disk::open(Arc::clone(&self.disk) as Arc<dyn ReadAt>);
            for problem in disk.problems() {
                tracing::warn!(%problem, "the disk has a problem");
            }
            let shown = disk.volumes().iter().map(|volume| {
                let files = volume.open_file_system();
                if let Err(error) = &files {
                    tracing::info!(volume = volume.name(), %error, "a volume is shown as raw bytes");
                }
                if let Some(warning) = files.as_ref().ok().and_then(|files| files.warning()) {
                    tracing::warn!(volume = volume.name(), "{warning}");
                }
                let (files, mut name) = (files.ok(), safe_name(volume.name()));
                if files.is_none() {
                    name.extend(b".raw");
                }
                ShownVolume { name, bytes: volume.read(), files }
            });
            shown.collect()
        })
    }

    fn place(&self, file: FileId) -> Result<FolderPlace, FileSystemError> {
        let absent = || FileSystemError::Absent { what: "file of this number".into() };
        match file {
            ROOT => return Ok(FolderPlace::Root),
            WHOLE => return Ok(FolderPlace::Raw(Arc::clone(&self.disk) as _)),
            _ => {}
        }
        let raw = file.0.checked_sub(FIRST_RAW).map(to_usize);
        if let Some(volume) = raw.and_then(|number| self.volumes().get(number)) {
            return Ok(FolderPlace::Raw(Arc::clone(&volume.bytes)));
        }
        let inside = *self.places.lock().get(&file).ok_or_else(absent)?;
        let files = self.files(inside.volume).ok_or_else(absent)?;
        Ok(FolderPlace::Inside(inside, files))
    }

    fn files(&self, volume: u32) -> Option<Arc<dyn FileSystem>> {
        self.volumes().get(to_usize(volume))?.files.clone()
    }

    /// Registers a file of a volume, and returns it with its number here.
    fn show(&self, volume: u32, child: FolderChild) -> FolderChild {
        let id = number(&self.key, &[&volume.to_le_bytes(), &child.id.0.to_le_bytes()]);
        self.places.lock().insert(id, VolumeFile { volume, file: child.id });
        FolderChild { id, ..child }
    }

    fn top(&self) -> Vec<FolderChild> {
        let whole = FolderChild { name: WHOLE_NAME.to_vec(), id: WHOLE, kind: FileKind::File };
        let volumes = (0_u32..).zip(self.volumes()).map(|(volume, shown)| {
            let name = shown.name.clone();
            match &shown.files {
                Some(files) => {
                    self.show(volume, FolderChild { name, id: files.root(), kind: FileKind::Folder })
                }
                None => {
                    let id = FileId(FIRST_RAW.saturating_add(volume.into()));
                    FolderChild { name, id, kind: FileKind::File }
                }
            }
        });
        volumes.chain([whole]).collect()
    }

    fn own_status(&self, kind: FileKind, mode: u16, size: u64) -> FileStatus {
        FileStatus {
            uid: self.owner.0,
            gid: self.owner.1,
            allocated: size,
            modified: FileTime::from_nanoseconds(self.disk.image().time.0),
            ..FileStatus::new(kind, mode, size)
        }
    }
}

impl ServedFileSystem for PublishedFolder {
    fn is_settled(&self, _file: FileId) -> bool {
        true
    }

    fn root_of(&self, file: FileId) -> Option<FileId> {
        let FolderPlace::Inside(inside, files) = self.place(file).ok()? else { return None };
        let root = FolderChild { name: Vec::new(), id: files.root(), kind: FileKind::Folder };
        Some(self.show(inside.volume, root).id)
    }

    fn read_ahead(&self, _file: FileId) {
        self.disk.read_ahead();
    }
}

impl FileSystem for PublishedFolder {
    fn root(&self) -> FileId {
        ROOT
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        Ok(match self.place(file)? {
            FolderPlace::Root => self.own_status(FileKind::Folder, 0o555, 0),
            // A raw disk holds every file on it, so only the owner may read it.
            FolderPlace::Raw(bytes) => self.own_status(FileKind::File, 0o400, bytes.size()),
            FolderPlace::Inside(inside, files) => files.status(inside.file)?,
        })
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        match self.place(folder)? {
            FolderPlace::Raw(_) => Err(FileSystemError::Absent { what: "folder of this number".into() }),
            FolderPlace::Inside(inside, files) => {
                let mut show = |child: FolderChild| visit(self.show(inside.volume, child));
                files.children(inside.file, first, &mut show)
            }
            FolderPlace::Root => {
                for child in self.top().into_iter().skip(to_usize(first)) {
                    if visit(child).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        if folder == ROOT && name == WHOLE_NAME {
            return Ok(Some(FolderChild { name: name.to_vec(), id: WHOLE, kind: FileKind::File }));
        }
        match self.place(folder)? {
            FolderPlace::Raw(_) => Err(FileSystemError::Absent { what: "folder of this number".into() }),
            FolderPlace::Root => Ok(self.top().into_iter().find(|child| child.name == name)),
            FolderPlace::Inside(inside, files) => {
                let found = files.child(inside.file, name)?;
                Ok(found.map(|child| self.show(inside.volume, child)))
            }
        }
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        match self.place(file)? {
            FolderPlace::Root => Err(FileSystemError::Absent { what: "file of this number".into() }),
            FolderPlace::Inside(inside, files) => files.read_at(inside.file, offset, into),
            FolderPlace::Raw(bytes) => {
                let left = bytes.size().saturating_sub(offset);
                let length = to_usize(left).min(into.len());
                bytes
                    .read_at(offset, &mut into[..length])
                    .map_err(|source| FileSystemError::Read { what: "published disk".into(), source })?;
                Ok(length)
            }
        }
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        match self.place(file)? {
            FolderPlace::Root => Err(FileSystemError::Absent { what: "file of this number".into() }),
            FolderPlace::Inside(inside, files) => files.next_data(inside.file, offset),
            FolderPlace::Raw(bytes) if file == WHOLE => {
                self.disk.next_data_in(offset..bytes.size()).map_err(|error| FileSystemError::Read {
                    what: "map of the published disk".into(),
                    source: error.into(),
                })
            }
            FolderPlace::Raw(bytes) => Ok((offset < bytes.size()).then(|| offset..bytes.size())),
        }
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        match self.place(link)? {
            FolderPlace::Inside(inside, files) => files.link_target(inside.file),
            _ => Err(FileSystemError::Absent { what: "symbolic link of this number".into() }),
        }
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        match self.place(file)? {
            FolderPlace::Inside(inside, files) => files.xattrs(inside.file),
            _ => Ok(Vec::new()),
        }
    }

    fn forget(&self, file: FileId) {
        let forgotten = self.places.lock().remove(&file);
        if let Some(inside) = forgotten
            && let Some(files) = self.files(inside.volume)
        {
            files.forget(inside.file);
        }
    }
}

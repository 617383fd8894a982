//! The tree of days as a file system, composed of the file systems of the snapshots.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use varve_archive::{CollectedError, Snapshot, SnapshotContent, SnapshotId, SnapshotList, lacks_block};
use varve_block::{BlockStore, to_usize};
use varve_content::allocated_bytes_in;
use varve_content::folder::{FOLDER_ROOT, FolderPages};
use varve_content::image::CachedBlocks;
use varve_image::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FileTime, FolderChild, OnChild, ReadAt, Xattr,
};
use varve_world::Timestamp;

use super::calendar::{Calendar, CivilTime};
use super::disk::{DiskChild, OpenDisk};
use super::number::{ROOT, number};
use super::open_snapshot::OpenSnapshot;
use super::order::ListOrders;
use crate::ServedFileSystem;

/// Disk images that are open at a time. Others are reopened when they are accessed.
const DISKS_MAX: usize = 32;
/// The list of snapshots is refreshed at most this often.
const BELIEVED: Duration = Duration::from_secs(1);
/// Refreshing takes at most 1/20 of the time: the next refresh waits at least 20 times as long as
/// the last one took.
const LOOKING_SHARE: u32 = 20;

/// Converts a time to local time.
type ToCivilTime = Box<dyn Fn(Timestamp) -> CivilTime + Send + Sync>;

/// All snapshots of a store, as a file system.
pub struct Days {
    list: Mutex<Box<dyn SnapshotList>>,
    blocks: Arc<CachedBlocks>,
    civil: ToCivilTime,
    owner: (u32, u32),
    calendar: RwLock<Arc<Calendar>>,
    look_again_at: Mutex<Timestamp>,
    pages: Arc<FolderPages>,
    open_snapshots: Mutex<BTreeMap<SnapshotId, Arc<OpenSnapshot>>>,
    disks: Cache<SnapshotId, Arc<OpenDisk>>,
    places: Mutex<BTreeMap<FileId, CalendarPlace>>,
    orders: Mutex<ListOrders>,
}

/// The object that a file number stands for.
#[derive(Clone)]
enum CalendarPlace {
    Root,
    Year(i16),
    Month(i16, u8),
    Day(i16, u8, u8),
    Latest,
    ById,
    /// A link to a snapshot, with the path that the snapshot had when the link was shown. The
    /// kernel caches the target of a link by its number, so a link with another target has another
    /// number.
    Link(SnapshotId, Arc<[u8]>),
    /// The folder of a disk image.
    Disk(Arc<OpenSnapshot>),
    /// The bytes of a volume, or of the whole disk if `None`.
    Raw(Arc<OpenSnapshot>, Option<u32>),
    /// A file of a snapshot: in the archived folder, or in one of the volumes.
    Inside {
        opened: Arc<OpenSnapshot>,
        part: u32,
        file: FileId,
    },
}

impl CalendarPlace {
    fn id(&self) -> FileId {
        let fixed = |kind: u8, what: &[u8]| number(&[0x76; 32], &[&[kind], what]);
        match self {
            Self::Root => ROOT,
            Self::Year(year) => fixed(1, &year.to_le_bytes()),
            Self::Month(year, month) => fixed(2, &[&year.to_le_bytes()[..], &[*month]].concat()),
            Self::Day(year, month, day) => fixed(3, &[&year.to_le_bytes()[..], &[*month, *day]].concat()),
            Self::Latest => fixed(4, b""),
            Self::ById => fixed(5, b""),
            Self::Link(id, path) => fixed(6, &[&id.0[..], path].concat()),
            Self::Disk(opened) => fixed(7, &opened.snapshot.id.0),
            Self::Raw(opened, part) => {
                let part = part.map_or(0, |part| u64::from(part) + 1).to_le_bytes();
                fixed(8, &[&opened.snapshot.id.0[..], &part].concat())
            }
            Self::Inside { opened, part, file } => opened.outer_id(*part, *file),
        }
    }

    fn kind(&self) -> FileKind {
        match self {
            Self::Link(..) => FileKind::SymbolicLink,
            Self::Raw(..) => FileKind::File,
            // A snapshot of a single file shows that file alone, or its folder if the folder is
            // damaged.
            Self::Inside { opened, file, .. } if opened.snapshot.file.is_some() && *file != FOLDER_ROOT => {
                FileKind::File
            }
            _ => FileKind::Folder,
        }
    }
}

impl Days {
    /// Shows the snapshots of `list`, and reads their blocks from `blocks`. `civil` converts a time
    /// to local time. `owner` is the user and the group that own the folders of the tree.
    #[must_use]
    pub fn new(
        list: impl SnapshotList + 'static,
        blocks: Arc<dyn BlockStore>,
        civil: ToCivilTime,
        owner: (u32, u32),
    ) -> Self {
        let calendar = Arc::new(Calendar::new(list.snapshots(), &civil));
        Self {
            list: Mutex::new(Box::new(list)),
            blocks: Arc::new(CachedBlocks::new(blocks)),
            civil,
            owner,
            calendar: RwLock::new(calendar),
            look_again_at: Mutex::new(Timestamp(i64::MIN)),
            pages: Arc::default(),
            open_snapshots: Mutex::default(),
            disks: Cache::new(DISKS_MAX),
            places: Mutex::default(),
            orders: Mutex::default(),
        }
    }

    /// The current list of snapshots.
    fn calendar(&self) -> Arc<Calendar> {
        self.look_again();
        Arc::clone(&self.calendar.read())
    }

    /// Adds snapshots that were taken since the last refresh. If another thread is refreshing,
    /// returns at once.
    fn look_again(&self) {
        let Some(mut look_again_at) = self.look_again_at.try_lock() else { return };
        let Some(mut list) = self.list.try_lock() else { return };
        let clock = list.clock();
        let began = clock.now();
        if began < *look_again_at {
            return;
        }
        self.refresh(&mut **list);
        let now = clock.now();
        *look_again_at = now.plus(BELIEVED.max(now.since(began).saturating_mul(LOOKING_SHARE)));
    }

    /// Reads the list of snapshots again. Returns whether it could be read.
    fn refresh(&self, list: &mut dyn SnapshotList) -> bool {
        match list.follow() {
            Ok(true) => {
                let calendar = Arc::new(Calendar::new(list.snapshots(), &self.civil));
                *self.calendar.write() = calendar;
                true
            }
            Ok(false) => true,
            Err(error) => {
                let error: &dyn std::error::Error = &*error;
                tracing::warn!(error, "the search for new snapshots failed");
                false
            }
        }
    }

    /// Replaces the error of a block that is gone because the snapshot was collected while it was
    /// in use. Every other error stays as it is.
    fn explain(&self, opened: &OpenSnapshot, error: FileSystemError) -> FileSystemError {
        if !lacks_block(&error) {
            return error;
        }
        let mut list = self.list.lock();
        if !self.refresh(&mut **list) || list.is_in_catalog(&opened.snapshot.id) {
            return error;
        }
        let what = match error {
            FileSystemError::Read { what, .. } | FileSystemError::Damaged { what, .. } => what,
            FileSystemError::Absent { .. } | FileSystemError::Unsupported { .. } => "data".into(),
        };
        FileSystemError::Read { what, source: CollectedError::new(&opened.snapshot).into() }
    }

    fn place(&self, file: FileId) -> Result<CalendarPlace, FileSystemError> {
        if file == ROOT {
            return Ok(CalendarPlace::Root);
        }
        let unknown = || FileSystemError::Absent { what: "file of this number".into() };
        self.places.lock().get(&file).cloned().ok_or_else(unknown)
    }

    /// Registers an object under its number, before it is shown.
    fn show(&self, name: &[u8], kind: FileKind, place: CalendarPlace) -> FolderChild {
        let id = place.id();
        self.places.lock().entry(id).or_insert(place);
        FolderChild { name: name.to_vec(), id, kind }
    }

    fn opened(&self, snapshot: &Snapshot) -> Arc<OpenSnapshot> {
        let mut open_snapshots = self.open_snapshots.lock();
        let open = || Arc::new(OpenSnapshot::new(snapshot.clone()));
        Arc::clone(open_snapshots.entry(snapshot.id).or_insert_with(open))
    }

    /// The disk image of a snapshot, opened if necessary.
    fn disk(&self, opened: &OpenSnapshot) -> Result<Arc<OpenDisk>, FileSystemError> {
        let SnapshotContent::Image(entry) = &opened.snapshot.content else {
            return Err(FileSystemError::Absent { what: format!("disk in {}", opened.name()) });
        };
        let open = || Ok(Arc::new(OpenDisk::open(&opened.name(), &self.blocks, entry)));
        self.disks.get_or_insert_with(&opened.snapshot.id, open)
    }

    /// Applies `act` to the file system of one part of a snapshot.
    fn inside<T>(
        &self,
        opened: &OpenSnapshot,
        part: u32,
        act: impl FnOnce(&dyn FileSystem) -> Result<T, FileSystemError>,
    ) -> Result<T, FileSystemError> {
        let blocks: Arc<dyn BlockStore> = Arc::clone(&self.blocks) as _;
        if let Some(folder) = opened.folder(&blocks, &self.pages) {
            return act(folder).map_err(|error| self.explain(opened, opened.name_error("", error)));
        }
        let disk = self.disk(opened)?;
        let absent = || FileSystemError::Absent { what: format!("volume {part} in {}", opened.name()) };
        act(&**disk.files(part).ok_or_else(absent)?)
            .map_err(|error| self.explain(opened, opened.name_error(&format!(" {}", disk.name(part)), error)))
    }

    /// The object that stands for a snapshot: its files, or the folder of a disk image.
    fn place_of(&self, snapshot: &Snapshot) -> Result<CalendarPlace, FileSystemError> {
        let opened = self.opened(snapshot);
        if matches!(snapshot.content, SnapshotContent::Image(_)) {
            return Ok(CalendarPlace::Disk(opened));
        }
        let file = self.inside(&opened, 0, |files| {
            let Some(name) = &snapshot.file else { return Ok(files.root()) };
            // If the file cannot be found, show its folder: opening the folder then reports the
            // error.
            let found = files.child(files.root(), name).ok().flatten();
            let found = found.filter(|child| child.kind == FileKind::File);
            Ok(found.map_or(files.root(), |child| child.id))
        })?;
        Ok(CalendarPlace::Inside { opened, part: 0, file })
    }

    /// The entries of a folder of the tree, in order.
    fn listed(&self, place: &CalendarPlace) -> Result<Vec<(Vec<u8>, CalendarPlace)>, FileSystemError> {
        let calendar = self.calendar();
        let two = |number: u8| format!("{number:02}").into_bytes();
        let links = |(name, snapshot): (&[u8], &Snapshot)| {
            let path = calendar.path(&snapshot.id).unwrap_or_default();
            (name.to_vec(), CalendarPlace::Link(snapshot.id, path.into()))
        };
        Ok(match place {
            CalendarPlace::Root => {
                let fixed =
                    [(b"by-id".to_vec(), CalendarPlace::ById), (b"latest".to_vec(), CalendarPlace::Latest)];
                let years = calendar
                    .years()
                    .map(|year| (format!("{year:04}").into_bytes(), CalendarPlace::Year(year)));
                fixed.into_iter().chain(years).collect()
            }
            CalendarPlace::Year(year) => {
                calendar.months(*year).map(|month| (two(month), CalendarPlace::Month(*year, month))).collect()
            }
            CalendarPlace::Month(year, month) => calendar
                .days(*year, *month)
                .map(|day| (two(day), CalendarPlace::Day(*year, *month, day)))
                .collect(),
            CalendarPlace::Day(year, month, day) => {
                let place =
                    |(name, snapshot): (&[u8], &Snapshot)| Ok((name.to_vec(), self.place_of(snapshot)?));
                calendar.day(*year, *month, *day).map(place).collect::<Result<_, FileSystemError>>()?
            }
            CalendarPlace::Latest => calendar.latest().map(links).collect(),
            CalendarPlace::ById => calendar.by_id().map(links).collect(),
            CalendarPlace::Disk(opened) => self.listed_disk(opened)?,
            CalendarPlace::Link(..) | CalendarPlace::Raw(..) | CalendarPlace::Inside { .. } => {
                return Err(FileSystemError::Absent { what: "folder of this number".into() });
            }
        })
    }

    fn listed_disk(
        &self,
        opened: &Arc<OpenSnapshot>,
    ) -> Result<Vec<(Vec<u8>, CalendarPlace)>, FileSystemError> {
        let disk = self.disk(opened)?;
        let place = |(name, child): (&[u8], DiskChild)| {
            let opened = Arc::clone(opened);
            let place = match child {
                DiskChild::Files(part) => {
                    let file = disk.files(part).map_or(ROOT, |files| files.root());
                    CalendarPlace::Inside { opened, part, file }
                }
                DiskChild::Raw(part) => CalendarPlace::Raw(opened, Some(part)),
                DiskChild::Whole => CalendarPlace::Raw(opened, None),
            };
            (name.to_vec(), place)
        };
        Ok(disk.children().map(place).collect())
    }

    /// The status of an object outside of all snapshots.
    fn own_status(&self, kind: FileKind, mode: u16, size: u64, modified: Timestamp) -> FileStatus {
        FileStatus {
            uid: self.owner.0,
            gid: self.owner.1,
            allocated: size,
            modified: FileTime::from_nanoseconds(modified.0),
            ..FileStatus::new(kind, mode, size)
        }
    }

    /// The target of a link from `latest` or `by-id` to the snapshot.
    fn target(&self, id: &SnapshotId) -> Result<Vec<u8>, FileSystemError> {
        let calendar = self.calendar();
        let path = calendar.path(id);
        let path = path.ok_or_else(|| FileSystemError::Absent { what: format!("snapshot {id}") })?;
        Ok([b"../", path].concat())
    }

    /// The bytes of a volume, or of the whole disk.
    fn raw(&self, opened: &OpenSnapshot, part: Option<u32>) -> Result<Arc<dyn ReadAt>, FileSystemError> {
        let disk = self.disk(opened)?;
        let Some(part) = part else { return Ok(Arc::clone(&disk.image) as _) };
        let absent = || FileSystemError::Absent { what: format!("volume {part} in {}", opened.name()) };
        disk.bytes(part).cloned().ok_or_else(absent)
    }
}

/// The time of the newest of these snapshots; the epoch if there are none.
fn newest<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Timestamp {
    snapshots.map(|snapshot| snapshot.time).max().unwrap_or(Timestamp(0))
}

impl ServedFileSystem for Days {
    fn is_settled(&self, file: FileId) -> bool {
        match self.place(file) {
            Ok(CalendarPlace::Disk(_) | CalendarPlace::Raw(..) | CalendarPlace::Inside { .. }) => true,
            Ok(_) | Err(_) => false,
        }
    }

    fn root_of(&self, file: FileId) -> Option<FileId> {
        let Ok(CalendarPlace::Inside { opened, part, .. }) = self.place(file) else { return None };
        let file = self.inside(&opened, part, |files| Ok(files.root())).ok()?;
        let root = CalendarPlace::Inside { opened, part, file };
        let id = root.id();
        self.places.lock().entry(id).or_insert(root);
        Some(id)
    }

    fn read_ahead(&self, file: FileId) {
        let Ok(CalendarPlace::Inside { opened, .. } | CalendarPlace::Raw(opened, _)) = self.place(file)
        else {
            return;
        };
        // A disk that has been closed meanwhile is not being read.
        if let Some(disk) = self.disks.get(&opened.snapshot.id) {
            disk.image.read_ahead();
        }
    }
}

impl FileSystem for Days {
    fn root(&self) -> FileId {
        ROOT
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        let place = self.place(file)?;
        let kind = place.kind();
        Ok(match &place {
            CalendarPlace::Inside { opened, part, file } => {
                return self.inside(opened, *part, |files| files.status(*file));
            }
            CalendarPlace::Link(id, _) => {
                let target = self.target(id)?;
                let time = self.calendar().snapshot(id).map_or(Timestamp(0), |snapshot| snapshot.time);
                self.own_status(kind, 0o777, target.len() as u64, time)
            }
            CalendarPlace::Disk(opened) => self.own_status(kind, 0o555, 0, opened.snapshot.time),
            // A raw disk holds every file on it, so only the owner may read it.
            CalendarPlace::Raw(opened, part) => {
                let size = self.raw(opened, *part)?.size();
                let mut status = self.own_status(kind, 0o400, size, opened.snapshot.time);
                let disk = self.disk(opened)?;
                let whole = std::slice::from_ref(&(0..size)).to_vec();
                let pieces = part.and_then(|part| disk.pieces(part)).unwrap_or(&whole);
                status.allocated = allocated_bytes_in(&*self.blocks, disk.image.entry(), pieces);
                status
            }
            CalendarPlace::Root | CalendarPlace::Latest | CalendarPlace::ById => {
                let time = newest(self.calendar().snapshots().iter());
                self.own_status(kind, 0o555, 0, time)
            }
            CalendarPlace::Year(_) | CalendarPlace::Month(..) | CalendarPlace::Day(..) => {
                let calendar = self.calendar();
                let is_below = |snapshot: &&Snapshot| {
                    let civil = (self.civil)(snapshot.time);
                    match place {
                        CalendarPlace::Year(year) => civil.year == year,
                        CalendarPlace::Month(year, month) => (civil.year, civil.month) == (year, month),
                        CalendarPlace::Day(year, month, day) => {
                            (civil.year, civil.month, civil.day) == (year, month, day)
                        }
                        _ => true,
                    }
                };
                let time = newest(calendar.snapshots().iter().filter(is_below));
                self.own_status(kind, 0o555, 0, time)
            }
        })
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        let place = self.place(folder)?;
        if let CalendarPlace::Inside { opened, part, file } = &place {
            let mut show = |child: FolderChild| {
                let place = CalendarPlace::Inside { opened: Arc::clone(opened), part: *part, file: child.id };
                visit(self.show(&child.name, child.kind, place))
            };
            return self.inside(opened, *part, |files| files.children(*file, first, &mut show));
        }
        let first = to_usize(first);
        let listed = self.orders.lock().arrange(folder, self.listed(&place)?);
        for (name, place) in listed.into_iter().skip(first) {
            if visit(self.show(&name, place.kind(), place)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        let place = self.place(folder)?;
        if let CalendarPlace::Inside { opened, part, file } = &place {
            let found = self.inside(opened, *part, |files| files.child(*file, name))?;
            return Ok(found.map(|child| {
                let place = CalendarPlace::Inside { opened: Arc::clone(opened), part: *part, file: child.id };
                self.show(&child.name, child.kind, place)
            }));
        }
        let found = self.listed(&place)?.into_iter().find(|(listed, _)| listed == name);
        Ok(found.map(|(name, place)| self.show(&name, place.kind(), place)))
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        match self.place(file)? {
            CalendarPlace::Inside { opened, part, file } => {
                self.inside(&opened, part, |files| files.read_at(file, offset, into))
            }
            CalendarPlace::Raw(opened, part) => {
                let raw = self.raw(&opened, part)?;
                let Some(left) = raw.size().checked_sub(offset).filter(|left| *left > 0) else {
                    return Ok(0);
                };
                let left = to_usize(left);
                let length = left.min(into.len());
                match raw.read_at(offset, &mut into[..length]) {
                    Ok(()) => Ok(length),
                    Err(source) => Err(self.explain(&opened, unreadable(&opened, source))),
                }
            }
            _ => Err(FileSystemError::Absent { what: "file of this number".into() }),
        }
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        match self.place(file)? {
            CalendarPlace::Inside { opened, part, file } => {
                self.inside(&opened, part, |files| files.next_data(file, offset))
            }
            CalendarPlace::Raw(opened, part) => {
                let disk = self.disk(&opened)?;
                let found = match part {
                    None => disk.image.next_data(offset),
                    Some(part) => disk.next_data(part, offset),
                };
                found.map_err(|error| self.explain(&opened, unreadable(&opened, io::Error::other(error))))
            }
            _ => Err(FileSystemError::Absent { what: "file of this number".into() }),
        }
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        match self.place(link)? {
            CalendarPlace::Inside { opened, part, file } => {
                self.inside(&opened, part, |files| files.link_target(file))
            }
            CalendarPlace::Link(id, _) => self.target(&id),
            _ => Err(FileSystemError::Absent { what: "symbolic link of this number".into() }),
        }
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        match self.place(file)? {
            CalendarPlace::Inside { opened, part, file } => {
                self.inside(&opened, part, |files| files.xattrs(file))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn forget(&self, file: FileId) {
        let forgotten = self.places.lock().remove(&file);
        let Some(CalendarPlace::Inside { opened, part, file }) = forgotten else { return };
        let blocks: Arc<dyn BlockStore> = Arc::clone(&self.blocks) as _;
        if let Some(folder) = opened.folder(&blocks, &self.pages) {
            folder.forget(file);
        } else if let Some(files) =
            self.disks.get(&opened.snapshot.id).as_ref().and_then(|disk| disk.files(part))
        {
            files.forget(file);
        }
    }
}

fn unreadable(opened: &OpenSnapshot, source: io::Error) -> FileSystemError {
    FileSystemError::Read { what: format!("disk in {}", opened.name()), source }
}

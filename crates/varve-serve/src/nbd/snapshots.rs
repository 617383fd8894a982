//! The disks of an archive: every snapshot of a disk image, under each of its names.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use varve_archive::{
    CollectedError, SelectError, Snapshot, SnapshotContent, SnapshotFilter, SnapshotId, SnapshotList,
    lacks_block, select,
};
use varve_content::image::{CachedBlocks, ImageReader, SectorSizes};
use varve_image::ReadAt;
use varve_world::Timestamp;

use super::disk::{DiskExtent, ServedDisk, push};
use super::disks::{FindDiskError, FoundDisk, ListedDisk, ServedDisks};

/// The size of the sectors of most disks.
const USUAL_SECTOR_BYTES: u32 = 512;

/// Conversions between times and text, supplied by the caller.
#[derive(Clone, Copy)]
pub struct TimeText {
    /// The last moment that a text can mean.
    pub parse_last: fn(&str) -> Option<Timestamp>,
    /// Formats a time, as in `2026-05-01 23:15:07`.
    pub show: fn(Timestamp) -> String,
}

/// All snapshots of disk images in a store, including those that are taken while it is served.
pub struct SnapshotDisks {
    blocks: Arc<CachedBlocks>,
    moments: TimeText,
    known: Arc<Mutex<KnownImages>>,
}

struct KnownImages {
    /// Polled for new snapshots.
    list: Box<dyn SnapshotList>,
    moments: TimeText,
    images: Vec<KnownImage>,
    /// The disks in use. All clients of a disk share its read-ahead state.
    open: BTreeMap<SnapshotId, Weak<ArchivedDisk>>,
}

struct KnownImage {
    snapshot: Snapshot,
    /// The shortest name that will always stand for this snapshot.
    name: String,
}

impl SnapshotDisks {
    /// Offers the disks of these snapshots, and reads them through `blocks`.
    #[must_use]
    pub fn new(list: impl SnapshotList + 'static, blocks: Arc<CachedBlocks>, moments: TimeText) -> Self {
        let images = images_of(list.snapshots(), moments);
        let known = KnownImages { list: Box::new(list), moments, images, open: BTreeMap::new() };
        Self { blocks, moments, known: Arc::new(Mutex::new(known)) }
    }

    /// Finds the disk of a name among the snapshots that pass a filter. Also returns its snapshot.
    ///
    /// # Errors
    /// [`FindDiskError`]
    pub fn find_snapshot(
        &self,
        name: &str,
        filter: &SnapshotFilter,
    ) -> Result<(Snapshot, FoundDisk), FindDiskError> {
        let mut known = self.current().map_err(FindDiskError::Failed)?;
        let text = if name.is_empty() { "latest" } else { name };
        let snapshots = filter.apply(known.images.iter().map(|image| &image.snapshot));
        let snapshot = match select(&snapshots, text, &self.moments.parse_last) {
            Ok(found) => found.snapshot.clone(),
            Err(SelectError::Empty) => {
                return Err(FindDiskError::Unknown("the store has no snapshot of a disk image yet".into()));
            }
            Err(error) => {
                return Err(FindDiskError::Unknown(format!("{error} (only disk images are served)")));
            }
        };
        let disk = self.open(&mut known, &snapshot);
        let name = known.images.iter().find(|image| image.snapshot.id == snapshot.id);
        let name = name.map_or_else(|| snapshot.id.to_string(), |image| image.name.clone());
        let description = self.describe(&snapshot);
        Ok((snapshot, FoundDisk { name, description, disk }))
    }

    fn open(&self, known: &mut KnownImages, snapshot: &Snapshot) -> Arc<dyn ServedDisk> {
        known.open.retain(|_, disk| disk.strong_count() > 0);
        if let Some(disk) = known.open.get(&snapshot.id).and_then(Weak::upgrade) {
            return disk;
        }
        let SnapshotContent::Image(entry) = &snapshot.content else {
            unreachable!("only snapshots of images are known")
        };
        let disk = Arc::new(ArchivedDisk {
            reader: ImageReader::new(Arc::clone(&self.blocks), entry),
            snapshot: snapshot.clone(),
            known: Arc::clone(&self.known),
            _in_use: known.list.note_use(&snapshot.id),
        });
        known.open.insert(snapshot.id, Arc::downgrade(&disk));
        disk
    }

    /// The known snapshots, after a check for new ones.
    fn current(&self) -> Result<MutexGuard<'_, KnownImages>, Box<dyn Error + Send + Sync>> {
        let mut known = self.known.lock();
        known.follow()?;
        Ok(known)
    }

    fn describe(&self, snapshot: &Snapshot) -> String {
        described(snapshot, &(self.moments.show)(snapshot.time))
    }
}

/// Describes a disk for people. The protocol has no field for the size of its sectors, which a
/// client needs to know if it is not the usual one.
fn described(snapshot: &Snapshot, time: &str) -> String {
    let sectors = match snapshot.sectors.map(SectorSizes::logical) {
        None | Some(USUAL_SECTOR_BYTES) => String::new(),
        Some(bytes) => format!(", sectors of {bytes} bytes"),
    };
    let firmware = if snapshot.firmware_of().is_some() { ", UEFI variables" } else { "" };
    format!("{} as it was {time} ({}){sectors}{firmware}", snapshot.name, snapshot.id)
}

impl KnownImages {
    /// Looks for new snapshots.
    fn follow(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.list.follow()? {
            self.images = images_of(self.list.snapshots(), self.moments);
        }
        Ok(())
    }
}

/// Selects the snapshots of disk images.
fn images_of(snapshots: &[Snapshot], moments: TimeText) -> Vec<KnownImage> {
    let is_image = |snapshot: &&Snapshot| matches!(snapshot.content, SnapshotContent::Image(_));
    let snapshots: Vec<&Snapshot> = snapshots.iter().filter(is_image).collect();
    let image = |snapshot: &&Snapshot| KnownImage {
        name: stable_name(&snapshots, snapshot, moments),
        snapshot: (*snapshot).clone(),
    };
    snapshots.iter().map(image).collect()
}

/// The name with the day if that identifies the snapshot; otherwise with the minute; otherwise the
/// id.
fn stable_name(snapshots: &[&Snapshot], wanted: &Snapshot, moments: TimeText) -> String {
    let time = (moments.show)(wanted.time);
    let names = [10, 16].map(|length| {
        let when = time.get(..length).unwrap_or(&time).replace(' ', "T");
        format!("{}@{when}", wanted.name)
    });
    let is_wanted = |name: &String| {
        select(snapshots, name, &moments.parse_last).is_ok_and(|found| found.snapshot.id == wanted.id)
    };
    names.into_iter().find(is_wanted).unwrap_or_else(|| wanted.id.to_string())
}

impl ServedDisks for SnapshotDisks {
    fn list(&self) -> Vec<ListedDisk> {
        let known = self.current().unwrap_or_else(|error| {
            tracing::error!(%error, "new snapshots cannot be read; only the known ones are listed");
            self.known.lock()
        });
        // Sort by name and age. Before the snapshots of each name comes the plain name, which
        // stands for the newest.
        let mut images: Vec<&KnownImage> = known.images.iter().collect();
        images.sort_by(|one, other| {
            let key = |image: &&KnownImage| (image.snapshot.name.clone(), image.snapshot.time);
            key(one).cmp(&key(other))
        });
        let mut listed = Vec::new();
        for of_one_name in images.chunk_by(|one, other| one.snapshot.name == other.snapshot.name) {
            let newest = of_one_name.last().map(|image| &image.snapshot);
            listed.extend(
                newest.map(|newest| ListedDisk {
                    name: newest.name.clone(),
                    description: self.describe(newest),
                }),
            );
            listed.extend(of_one_name.iter().map(|image| ListedDisk {
                name: image.name.clone(),
                description: self.describe(&image.snapshot),
            }));
        }
        listed
    }

    fn find(&self, name: &str) -> Result<FoundDisk, FindDiskError> {
        self.find_snapshot(name, &SnapshotFilter::default()).map(|(_, served)| served)
    }
}

/// A single disk, under each of its names.
pub struct OneDisk {
    names: Vec<String>,
    description: String,
    disk: Arc<dyn ServedDisk>,
}

impl OneDisk {
    /// Offers one disk under these names. The first one is listed, and is the default.
    #[must_use]
    pub fn new(names: Vec<String>, description: String, disk: Arc<dyn ServedDisk>) -> Self {
        Self { names, description, disk }
    }
}

impl ServedDisks for OneDisk {
    fn list(&self) -> Vec<ListedDisk> {
        let first = self.names.first().into_iter();
        first.map(|name| ListedDisk { name: name.clone(), description: self.description.clone() }).collect()
    }

    fn find(&self, name: &str) -> Result<FoundDisk, FindDiskError> {
        if !name.is_empty() && !self.names.iter().any(|known| known == name) {
            let known = self.names.first().map_or("", String::as_str);
            return Err(FindDiskError::Unknown(format!("only {known} is served here")));
        }
        Ok(FoundDisk {
            name: self.names.first().cloned().unwrap_or_default(),
            description: self.description.clone(),
            disk: Arc::clone(&self.disk),
        })
    }
}

/// A fixed set of disks.
pub struct FewDisks(pub Vec<OneDisk>);

impl ServedDisks for FewDisks {
    fn list(&self) -> Vec<ListedDisk> {
        self.0.iter().flat_map(ServedDisks::list).collect()
    }

    fn find(&self, name: &str) -> Result<FoundDisk, FindDiskError> {
        let unknown = || FindDiskError::Unknown("no such disk is served here".into());
        self.0.iter().find_map(|disk| disk.find(name).ok()).ok_or_else(unknown)
    }
}

/// The disk image of a snapshot.
struct ArchivedDisk {
    reader: ImageReader,
    snapshot: Snapshot,
    known: Arc<Mutex<KnownImages>>,
    _in_use: Arc<()>,
}

impl ArchivedDisk {
    /// Replaces the error of a block that is gone because the snapshot was collected while the disk
    /// was in use. Every other error stays as it is.
    fn explain(&self, error: io::Error) -> io::Error {
        if !lacks_block(&error) {
            return error;
        }
        let mut known = self.known.lock();
        match known.follow() {
            Ok(()) if !known.list.is_in_catalog(&self.snapshot.id) => {
                CollectedError::new(&self.snapshot).into()
            }
            Ok(()) => error,
            Err(unread) => {
                tracing::warn!(error = %unread, "the search for new snapshots failed");
                error
            }
        }
    }
}

impl ServedDisk for ArchivedDisk {
    fn size(&self) -> u64 {
        self.reader.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reader.read_at(offset, into).map_err(|error| self.explain(error))
    }

    fn read_ahead(&self) {
        self.reader.read_ahead();
    }

    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
        let mut extents = Vec::new();
        let mut place = range.start;
        while place < range.end {
            let data = self.reader.next_data_in(place..range.end);
            let Some(data) = data.map_err(|error| self.explain(io::Error::other(error)))? else {
                push(&mut extents, DiskExtent { length: range.end - place, is_hole: true });
                break;
            };
            push(&mut extents, DiskExtent { length: data.start - place, is_hole: true });
            push(&mut extents, DiskExtent { length: data.end - data.start, is_hole: false });
            place = data.end;
        }
        Ok(extents)
    }
}

//! The disks of an archive: every snapshot of an image, by every name that it has.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use varve_archive::{
    CachedBlocks, Catalog, ImageReader, LoadCatalogError, SelectError, Snapshot, SnapshotContent, SnapshotId,
    select,
};
use varve_block::BlockStore;
use varve_image::ReadAt;
use varve_store::{OpenError, Store};
use varve_world::Timestamp;

use super::disk::{Disk, Stretch, push};
use super::server::{Disks, FindDiskError, ListedDisk, Served};

/// How people write moments, which is not known here.
#[derive(Clone, Copy)]
pub struct Moments {
    /// The last moment that a text means.
    pub parse_last: fn(&str) -> Option<Timestamp>,
    /// A moment, as `2026-05-01 23:15:07`.
    pub show: fn(Timestamp) -> String,
}

/// Every snapshot of an image that a store has, and gets while it is served.
pub struct SnapshotDisks {
    /// Followed, to learn of new snapshots.
    store: Arc<Store>,
    /// What disks are read from.
    blocks: Arc<CachedBlocks>,
    moments: Moments,
    known: Mutex<Known>,
}

struct Known {
    images: Vec<Image>,
    /// Those that somebody uses: all of them share what is known of who reads where.
    open: BTreeMap<SnapshotId, Weak<ArchivedDisk>>,
}

struct Image {
    snapshot: Snapshot,
    /// A name that will mean the same snapshot tomorrow, the shortest that there is.
    name: String,
}

/// Why the snapshots could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The log could not be read.
    #[error("what was added to the store cannot be read")]
    Log(#[from] OpenError),
    /// The catalog could not be read.
    #[error(transparent)]
    Catalog(#[from] LoadCatalogError),
}

impl SnapshotDisks {
    /// The disks of a store, read through `blocks`.
    ///
    /// # Errors
    /// [`FollowError`]
    pub fn new(store: Arc<Store>, blocks: Arc<CachedBlocks>, moments: Moments) -> Result<Self, FollowError> {
        let known = Mutex::new(Known { images: Vec::new(), open: BTreeMap::new() });
        let disks = Self { store, blocks, moments, known };
        disks.load(&mut disks.lock())?;
        Ok(disks)
    }

    /// The disk of a name, with the snapshot that it shows.
    ///
    /// # Errors
    /// [`FindDiskError`]
    pub fn find_snapshot(&self, name: &str) -> Result<(Snapshot, Served), FindDiskError> {
        let mut known = self.current().map_err(|error| FindDiskError::Failed(error.into()))?;
        let text = if name.is_empty() { "latest" } else { name };
        let snapshots: Vec<Snapshot> = known.images.iter().map(|image| image.snapshot.clone()).collect();
        let snapshot = match select(&snapshots, text, &self.moments.parse_last) {
            Ok(found) => found.clone(),
            Err(SelectError::Empty) => {
                return Err(FindDiskError::Unknown("the store has no snapshot of a disk image yet".into()));
            }
            Err(error) => {
                return Err(FindDiskError::Unknown(format!("{error} (only disk images are meant)")));
            }
        };
        let disk = self.open(&mut known, &snapshot);
        let name = known.images.iter().find(|image| image.snapshot.id == snapshot.id);
        let name = name.map_or_else(|| snapshot.id.to_string(), |image| image.name.clone());
        let description = self.describe(&snapshot);
        Ok((snapshot, Served { name, description, disk }))
    }

    fn open(&self, known: &mut Known, snapshot: &Snapshot) -> Arc<dyn Disk> {
        known.open.retain(|_, disk| disk.strong_count() > 0);
        if let Some(disk) = known.open.get(&snapshot.id).and_then(Weak::upgrade) {
            return disk;
        }
        let SnapshotContent::Image(entry) = &snapshot.content else {
            unreachable!("only snapshots of images are known")
        };
        let disk = Arc::new(ArchivedDisk { reader: ImageReader::new(Arc::clone(&self.blocks), entry) });
        known.open.insert(snapshot.id, Arc::downgrade(&disk));
        disk
    }

    /// What is known, after a look at what is new.
    fn current(&self) -> Result<MutexGuard<'_, Known>, FollowError> {
        let mut known = self.lock();
        if self.store.follow()? {
            self.load(&mut known)?;
        }
        Ok(known)
    }

    fn load(&self, known: &mut Known) -> Result<(), FollowError> {
        let blocks: &dyn BlockStore = self.blocks.as_ref();
        let catalog = Catalog::load_all(blocks, &self.store.catalogs())?;
        let is_image = |snapshot: &&Snapshot| matches!(snapshot.content, SnapshotContent::Image(_));
        let snapshots: Vec<Snapshot> = catalog.snapshots().iter().filter(is_image).cloned().collect();
        let name = |snapshot: &Snapshot| stable_name(&snapshots, snapshot, self.moments);
        known.images = snapshots
            .iter()
            .map(|snapshot| Image { name: name(snapshot), snapshot: snapshot.clone() })
            .collect();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, snapshot: &Snapshot) -> String {
        let time = (self.moments.show)(snapshot.time);
        format!("{} as it was {time} ({})", snapshot.name, snapshot.id)
    }
}

/// The name and the day, if that says which one is meant; else with the minute; else the id.
fn stable_name(snapshots: &[Snapshot], wanted: &Snapshot, moments: Moments) -> String {
    let time = (moments.show)(wanted.time);
    let names = [10, 16].map(|length| {
        let when = time.get(..length).unwrap_or(&time).replace(' ', "T");
        format!("{}@{when}", wanted.name)
    });
    let is_wanted =
        |name: &String| select(snapshots, name, &moments.parse_last).is_ok_and(|found| found.id == wanted.id);
    names.into_iter().find(is_wanted).unwrap_or_else(|| wanted.id.to_string())
}

impl Disks for SnapshotDisks {
    fn list(&self) -> Vec<ListedDisk> {
        let known = self.current().unwrap_or_else(|error| {
            tracing::error!(%error, "only the snapshots that were known before are listed");
            self.lock()
        });
        // By name and age, and before those of a name, the name itself: the newest of them.
        let mut images: Vec<&Image> = known.images.iter().collect();
        images.sort_by(|one, other| {
            let key = |image: &&Image| (image.snapshot.name.clone(), image.snapshot.time);
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

    fn find(&self, name: &str) -> Result<Served, FindDiskError> {
        self.find_snapshot(name).map(|(_, served)| served)
    }
}

/// One disk and no other, by any name that it was given.
pub struct OneDisk {
    names: Vec<String>,
    description: String,
    disk: Arc<dyn Disk>,
}

impl OneDisk {
    /// A disk that is meant by these names, the first of which is listed, and where no name is given.
    #[must_use]
    pub fn new(names: Vec<String>, description: String, disk: Arc<dyn Disk>) -> Self {
        Self { names, description, disk }
    }
}

impl Disks for OneDisk {
    fn list(&self) -> Vec<ListedDisk> {
        let first = self.names.first().into_iter();
        first.map(|name| ListedDisk { name: name.clone(), description: self.description.clone() }).collect()
    }

    fn find(&self, name: &str) -> Result<Served, FindDiskError> {
        if !name.is_empty() && !self.names.iter().any(|known| known == name) {
            let known = self.names.first().map_or("", String::as_str);
            return Err(FindDiskError::Unknown(format!("only {known} is served here")));
        }
        Ok(Served {
            name: self.names.first().cloned().unwrap_or_default(),
            description: self.description.clone(),
            disk: Arc::clone(&self.disk),
        })
    }
}

/// A few disks and no others.
pub struct FewDisks(pub Vec<OneDisk>);

impl Disks for FewDisks {
    fn list(&self) -> Vec<ListedDisk> {
        self.0.iter().flat_map(Disks::list).collect()
    }

    fn find(&self, name: &str) -> Result<Served, FindDiskError> {
        let unknown = || FindDiskError::Unknown("no such disk is served here".into());
        self.0.iter().find_map(|disk| disk.find(name).ok()).ok_or_else(unknown)
    }
}

/// A disk image of a snapshot.
struct ArchivedDisk {
    reader: ImageReader,
}

impl Disk for ArchivedDisk {
    fn size(&self) -> u64 {
        self.reader.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reader.read_at(offset, into)
    }

    fn read_ahead(&self) {
        self.reader.read_ahead();
    }

    fn map(&self, range: Range<u64>) -> io::Result<Vec<Stretch>> {
        let mut stretches = Vec::new();
        let mut place = range.start;
        while place < range.end {
            let Some(data) = self.reader.next_data_in(place..range.end).map_err(io::Error::other)? else {
                push(&mut stretches, Stretch { length: range.end - place, is_hole: true });
                break;
            };
            push(&mut stretches, Stretch { length: data.start - place, is_hole: true });
            push(&mut stretches, Stretch { length: data.end - data.start, is_hole: false });
            place = data.end;
        }
        Ok(stretches)
    }
}

//! The status of files, and safe ways to open them.
//!
//! Everything is reached from its open folder by one path component, and never through a symbolic
//! link. Nothing outside the folder is opened, even if entries are renamed or replaced meanwhile.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use varve_image::{DeviceNumber, FileTime};
use varve_world::Timestamp;

use super::status_flags::StatusFlags;
use crate::records::node::{MODE_MASK, Node, NodeKind};

/// Bytes of names per system call.
const NAMES_BUFFER_BYTES: usize = 32 << 10;
/// Statuses of a folder's entries that are read at a time.
const STATUS_COUNT: usize = 4096;
const NANOSECONDS: i64 = 1_000_000_000;
/// The time resolution of most file systems: the kernel's ticks, which are at most this long.
const STEP_NANOSECONDS: i64 = 50_000_000;
/// The time resolution of file systems without fractions of a second: ext2, ext3, and ext4 with
/// small inodes count seconds, and FAT counts in units of two seconds. The kernel's clock that they
/// round may be a tick behind.
const COARSE_STEP_NANOSECONDS: i64 = 2 * NANOSECONDS + STEP_NANOSECONDS;

/// Identifies a file among all files of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostFileId {
    pub(crate) file_system: DeviceNumber,
    pub(crate) inode: u64,
}

/// The status of a file at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// `None` for a kind that this program does not know.
    pub(crate) kind: Option<NodeKind>,
    pub(crate) id: HostFileId,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: FileTime,
    pub(super) ctime: FileTime,
    pub(crate) size: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) link_count: u32,
    pub(crate) device: DeviceNumber,
    pub(crate) flags: StatusFlags,
}

/// The settings for describing a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeSettings {
    /// The time at which the run began. A change time that is not well before it is omitted: see
    /// [`NodeSettings::trusts`].
    pub(crate) began_at: Timestamp,
    /// See [`FolderOptions::adjust`](crate::folder::FolderOptions::adjust).
    pub(crate) adjust: fn(&mut Node),
}

impl NodeSettings {
    /// Returns whether another change of a file with this change time would show a different time.
    /// The clock of a file system moves in steps, and a second change within one step is invisible.
    fn trusts(self, ctime: FileTime) -> bool {
        if self.began_at == Timestamp(i64::MAX) {
            return true;
        }
        // A file system does not report the length of its steps. If it counts seconds, the
        // nanoseconds are 0. On other file systems they are 0 by chance for very few files, which
        // are then read once too often.
        let step =
            if ctime.subsecond_nanoseconds() == 0 { COARSE_STEP_NANOSECONDS } else { STEP_NANOSECONDS };
        ctime < FileTime::from_nanoseconds(self.began_at.0.saturating_sub(step))
    }
}

impl Status {
    /// The status of the entry `name` in `folder`. A symbolic link is not followed.
    pub(crate) fn of_name(folder: impl AsFd, name: &[u8]) -> io::Result<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        Ok(Self::new(&rustix::fs::statx(folder, name, flags, StatxFlags::BASIC_STATS)?))
    }

    /// The status of an open file.
    pub(crate) fn of_open(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::new(&rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?))
    }

    fn new(statx: &Statx) -> Self {
        Self {
            kind: kind_of(FileType::from_raw_mode(u32::from(statx.stx_mode))),
            id: HostFileId {
                file_system: DeviceNumber { major: statx.stx_dev_major, minor: statx.stx_dev_minor },
                inode: statx.stx_ino,
            },
            mode: statx.stx_mode & MODE_MASK,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            mtime: time(&statx.stx_mtime),
            ctime: time(&statx.stx_ctime),
            size: statx.stx_size,
            allocated_bytes: statx.stx_blocks.saturating_mul(512),
            link_count: statx.stx_nlink,
            device: DeviceNumber { major: statx.stx_rdev_major, minor: statx.stx_rdev_minor },
            flags: StatusFlags::new(statx),
        }
    }

    /// Returns whether the file did not change between the two statuses.
    pub(crate) fn is_still(&self, earlier: &Self) -> bool {
        let state = |status: &Self| (status.id, status.size, status.mtime, status.ctime);
        state(self) == state(earlier)
    }

    /// Copies the status into a node of the same kind. Leaves the node's content unchanged.
    pub(crate) fn describe(&self, node: &mut Node, description: NodeSettings) {
        node.mode = self.mode;
        node.uid = self.uid;
        node.gid = self.gid;
        node.mtime = self.mtime;
        node.ctime = Some(self.ctime).filter(|ctime| description.trusts(*ctime));
        node.last_change = Some(self.ctime);
        node.inode = self.id.inode;
        node.size = if node.kind == NodeKind::File { self.size } else { 0 };
        node.device = node.kind.is_device().then_some(self.device);
        (description.adjust)(node);
    }
}

fn time(time: &StatxTimestamp) -> FileTime {
    FileTime::new(time.tv_sec, time.tv_nsec)
}

/// The kind of a file; `None` if it is none of the seven.
pub(crate) fn kind_of(file_type: FileType) -> Option<NodeKind> {
    match file_type {
        FileType::RegularFile => Some(NodeKind::File),
        FileType::Directory => Some(NodeKind::Folder),
        FileType::Symlink => Some(NodeKind::SymbolicLink),
        FileType::CharacterDevice => Some(NodeKind::CharacterDevice),
        FileType::BlockDevice => Some(NodeKind::BlockDevice),
        FileType::Fifo => Some(NodeKind::Fifo),
        FileType::Socket => Some(NodeKind::Socket),
        FileType::Unknown => None,
    }
}

/// Opens the file with this name for reading. Does not block if it has become a fifo.
pub(crate) fn open_file(folder: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(folder, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// Opens the folder with this name.
pub(crate) fn open_folder(folder: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(folder, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY)
}

/// Opens without changing the access time where permitted, which is for the owner and for root.
fn open(folder: impl AsFd, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    match rustix::fs::openat(&folder, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => Ok(rustix::fs::openat(&folder, name, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// The names in a folder, in ascending order of their bytes.
#[derive(Debug, Default)]
pub(crate) struct FolderNames {
    bytes: Vec<u8>,
    places: Vec<NameRange>,
    next: usize,
    /// The statuses that were read for the names from `statuses_start` on. Each is taken once.
    statuses: Vec<Option<io::Result<Status>>>,
    statuses_start: usize,
}

#[derive(Debug, Clone, Copy)]
struct NameRange {
    start: usize,
    length: usize,
    kind: Option<NodeKind>,
    /// As the folder reports it; 0 if the name was not read from a folder.
    inode: u64,
}

/// A name of a folder with its status.
pub(crate) struct NameWithStatus {
    /// Its place among the names.
    pub(crate) place: usize,
    pub(crate) name: Vec<u8>,
    /// As the folder reports it.
    pub(crate) kind: Option<NodeKind>,
    pub(crate) status: io::Result<Status>,
}

impl FolderNames {
    /// A single name.
    pub(crate) fn one(name: &[u8]) -> Self {
        Self::listed(std::iter::once(name))
    }

    /// Reads all names. On an error, also returns the names before it.
    pub(crate) fn read(folder: impl AsFd) -> (Self, io::Result<()>) {
        let mut names = Self::default();
        let read = names.read_unsorted(folder);
        let Self { bytes, places, .. } = &mut names;
        places.sort_unstable_by(|a, b| name_at(bytes, a).cmp(name_at(bytes, b)));
        // A name that is moved during the listing may be listed twice.
        places.dedup_by(|a, b| name_at(bytes, a) == name_at(bytes, b));
        (names, read)
    }

    fn read_unsorted(&mut self, folder: impl AsFd) -> io::Result<()> {
        // The folder may have been listed before, through this descriptor or a copy of it.
        rustix::fs::seek(&folder, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); NAMES_BUFFER_BYTES];
        let mut listing = RawDir::new(folder, &mut buffer);
        while let Some(listed) = listing.next() {
            let listed = listed?;
            let name = listed.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                let (start, length) = (self.bytes.len(), name.len());
                self.bytes.extend_from_slice(name);
                let (kind, inode) = (kind_of(listed.file_type()), listed.ino());
                self.places.push(NameRange { start, length, kind, inode });
            }
        }
        Ok(())
    }

    /// These names, which must be in ascending order, whether they exist or not.
    pub(crate) fn listed<'a>(listed: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut names = Self::default();
        for name in listed {
            let place = NameRange { start: names.bytes.len(), length: name.len(), kind: None, inode: 0 };
            names.bytes.extend_from_slice(name);
            names.places.push(place);
        }
        names
    }

    /// The number of names.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Removes all names but this one.
    pub(crate) fn retain_only(&mut self, name: &[u8]) {
        let Self { bytes, places, .. } = &mut *self;
        places.retain(|place| name_at(bytes, place) == name);
        self.statuses.clear();
    }

    /// All names, with their kinds and inodes as the folder reports them.
    pub(crate) fn listed_names(&self) -> impl Iterator<Item = (&[u8], Option<NodeKind>, u64)> {
        self.places.iter().map(|place| (name_at(&self.bytes, place), place.kind, place.inode))
    }

    /// The inode of the name at this place, as the folder reports it.
    pub(crate) fn listed_inode(&self, place: usize) -> u64 {
        self.places.get(place).map_or(0, |place| place.inode)
    }

    /// Returns whether this name is present.
    pub(crate) fn contain(&self, name: &[u8]) -> bool {
        self.places.binary_search_by(|place| name_at(&self.bytes, place).cmp(name)).is_ok()
    }

    /// The next name, and its kind as the folder reports it.
    pub(crate) fn next(&mut self) -> Option<(&[u8], Option<NodeKind>)> {
        let place = self.places.get(self.next)?;
        self.next += 1;
        Some((name_at(&self.bytes, place), place.kind))
    }

    /// The next name, with its status. Statuses are read for many names at a time.
    pub(crate) fn next_with_status(&mut self, folder: impl AsFd) -> Option<NameWithStatus> {
        if self.statuses_start + self.statuses.len() <= self.next {
            self.read_statuses(&folder);
        }
        let place = self.next;
        let NameRange { kind, .. } = *self.places.get(place)?;
        self.next += 1;
        let name = name_at(&self.bytes, &self.places[place]).to_vec();
        let known = self.statuses.get_mut(place - self.statuses_start).and_then(Option::take);
        let status = known.unwrap_or_else(|| Status::of_name(folder, &name));
        Some(NameWithStatus { place, name, kind, status })
    }

    /// Reads the statuses of the next names, in the order of their inodes. That is mostly their
    /// order on the disk.
    pub(crate) fn read_statuses(&mut self, folder: impl AsFd) {
        let end = self.places.len().min(self.next + STATUS_COUNT);
        let mut order: Vec<usize> = (self.next..end).collect();
        order.sort_by_key(|place| self.places[*place].inode);
        self.statuses_start = self.next;
        self.statuses.clear();
        self.statuses.resize_with(order.len(), || None);
        for place in order {
            let status = Status::of_name(&folder, name_at(&self.bytes, &self.places[place]));
            self.statuses[place - self.statuses_start] = Some(status);
        }
    }

    /// The name at this place, if its status was read, and the status, if it was not taken and is
    /// no error.
    pub(crate) fn known_status(&self, place: usize) -> Option<(&[u8], Option<&Status>)> {
        let status = self.statuses.get(place.checked_sub(self.statuses_start)?)?;
        let name = name_at(&self.bytes, self.places.get(place)?);
        Some((name, status.as_ref().and_then(|status| status.as_ref().ok())))
    }
}

fn name_at<'a>(bytes: &'a [u8], place: &NameRange) -> &'a [u8] {
    &bytes[place.start..place.start + place.length]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that changes after a run has begun shows another time than one that the run trusts,
    /// at any resolution of its clock.
    #[test]
    fn a_trusted_time_is_never_that_of_a_later_change() {
        for step in [1, 100, 4_000_000, 10_000_000, NANOSECONDS, 2 * NANOSECONDS] {
            for began_at in (0..4).map(|quarter| 1_000_000_007_000_000_001 + quarter * 499_999_999) {
                let description = NodeSettings { began_at: Timestamp(began_at), adjust: |_| {} };
                let time_of_change = |at: i64| at - at.rem_euclid(step);
                // The clock of file systems lags behind the clock of the program.
                let later = time_of_change(began_at - 10_000_000);
                for before in (0..60).map(|tick| began_at - tick * 50_000_000) {
                    let seen = time_of_change(before);
                    assert!(
                        !(description.trusts(FileTime::from_nanoseconds(seen)) && seen == later),
                        "step {step}, {before}, {began_at}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_time_that_is_long_past_is_trusted() {
        let description = NodeSettings { began_at: Timestamp(100 * NANOSECONDS), adjust: |_| {} };
        for trusted in [97 * NANOSECONDS, 99 * NANOSECONDS + 1, 0, -5] {
            assert!(description.trusts(FileTime::from_nanoseconds(trusted)), "{trusted}");
        }
        assert!(!description.trusts(FileTime::new(98, 0)));
        assert!(!description.trusts(FileTime::new(99, 960_000_000)));
        assert!(
            description.trusts(FileTime::new(i64::MIN, 1)),
            "long before what 64 bits of nanoseconds can hold"
        );
        assert!(!description.trusts(FileTime::new(i64::MAX, 1)), "the future");
    }
}

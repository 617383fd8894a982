//! Reads exFAT.
//!
//! ```text
//! boot region │ its copy │ … │ table │ … │ clusters: folders, files
//! ```
//!
//! Structures with a wrong checksum are not shown: neither copy of the boot region, nor the entries
//! of a file. A file whose clusters are contiguous has no chain in the table. A file's number is
//! made of the position of its folder and the index of the file's first entry there; the root's
//! number is 0.

mod boot;
mod entries;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use varve_block::to_usize;

use self::boot::ExfatBootSector;
use self::entries::{ENTRY_BYTES, EntrySet, IN_USE, SET_ENTRIES_MAX};
use crate::bytes::fields::u8_at;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::clusters::{ClusterChain, ClusterRun, Clusters, FIRST_CLUSTER, TableWidth, damaged};
use crate::file_systems::fat::entry_status;
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild,
};

const ROOT: FileId = FileId(0);
/// The bytes of a folder that are read at a time.
const FOLDER_READ_BYTES: u64 = 4096;
/// The largest size of a folder.
const FOLDER_BYTES_MAX: u64 = 256 << 20;
/// The number of bits of a file's number that hold the index of its entry.
const INDEX_BITS: u32 = 23;

/// An exFAT file system.
pub(crate) struct ExFat {
    volume: Arc<dyn ReadAt>,
    clusters: Clusters,
    boot: ExfatBootSector,
}

/// The position of a folder's entries, and the largest number of their bytes.
struct ExfatFolder {
    place: FolderStart,
    chain: ClusterChain,
    bytes: u64,
}

/// The first cluster of a folder; `is_contiguous` is true if its clusters follow each other.
#[derive(Clone, Copy)]
struct FolderStart {
    cluster: u32,
    is_contiguous: bool,
}

impl FolderStart {
    /// Returns the number of the file whose first entry has the given index.
    fn number(self, index: u64) -> FileId {
        let folder = u64::from(self.cluster) << 1 | u64::from(self.is_contiguous);
        FileId(folder << INDEX_BITS | index)
    }

    fn of(file: FileId) -> Option<(Self, u64)> {
        let folder = file.0 >> INDEX_BITS;
        let cluster = u32::try_from(folder >> 1).ok()?;
        let index = file.0 & (1_u64 << INDEX_BITS).saturating_sub(1);
        Some((Self { cluster, is_contiguous: folder & 1 == 1 }, index))
    }
}

impl ExFat {
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let boot = ExfatBootSector::read(&*volume)?;
        let clusters = Clusters::new(
            Arc::clone(&volume),
            TableWidth::ThirtyTwo,
            boot.table_start,
            boot.heap_start,
            boot.cluster_bytes,
            boot.cluster_count,
        );
        Ok(Self { volume, clusters, boot })
    }

    /// Returns a chain of as many contiguous clusters as hold `bytes`.
    fn contiguous(&self, first: u32, bytes: u64, what: &str) -> Result<ClusterChain, FileSystemError> {
        let count = bytes.div_ceil(self.boot.cluster_bytes.max(1));
        let count = u32::try_from(count).ok().filter(|count| *count > 0);
        let last = count.and_then(|count| first.checked_add(count)?.checked_sub(1));
        match (count, last.and_then(|last| self.clusters.position(last))) {
            (Some(count), Some(_)) if first >= FIRST_CLUSTER => {
                Ok(Arc::new([ClusterRun { before: 0, cluster: first, count }]))
            }
            _ => Err(damaged(what, format!("it lies in clusters from {first} on, which do not exist"))),
        }
    }

    fn entry(&self, file: FileId) -> Result<EntrySet, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("file number {}", file.0) };
        let (place, index) = FolderStart::of(file).filter(|_| file != ROOT).ok_or_else(absent)?;
        self.clusters.position(place.cluster).ok_or_else(absent)?;
        let chain = if place.is_contiguous {
            // The length of the folder is in its own entry. Here it is enough to stay within the
            // heap.
            let count = self.boot.cluster_count.saturating_sub(place.cluster.saturating_sub(FIRST_CLUSTER));
            Arc::new([ClusterRun { before: 0, cluster: place.cluster, count }]) as ClusterChain
        } else {
            self.clusters.chain(place.cluster, "folder")?
        };
        let offset = index.saturating_mul(ENTRY_BYTES);
        let mut first = [0; 32];
        self.clusters.read(&chain, offset, &mut first, "entry of a file").map_err(|_| absent())?;
        let count = EntrySet::count(&first).ok_or_else(absent)?;
        let mut bytes = vec![0; count.saturating_mul(32)];
        self.clusters.read(&chain, offset, &mut bytes, "entry of a file")?;
        EntrySet::decode(&bytes).map_err(|problem| damaged("entry of a file", problem))
    }

    /// Returns the clusters with the content of a file or folder; none if it is empty.
    fn chain(&self, entry: &EntrySet, what: &str) -> Result<ClusterChain, FileSystemError> {
        let heap_bytes = u64::from(self.boot.cluster_count).saturating_mul(self.boot.cluster_bytes);
        if entry.size == 0 {
            return Ok(Arc::new([]));
        }
        if entry.size > heap_bytes {
            let problem = format!("it has {} bytes, more than the {heap_bytes} of all clusters", entry.size);
            return Err(damaged(what, problem));
        }
        if entry.is_contiguous {
            self.contiguous(entry.first_cluster, entry.size, what)
        } else {
            self.clusters.chain(entry.first_cluster, what)
        }
    }

    fn entries(&self, folder: FileId) -> Result<ExfatFolder, FileSystemError> {
        if folder == ROOT {
            let place = FolderStart { cluster: self.boot.root, is_contiguous: false };
            let chain = self.clusters.chain(self.boot.root, "folder")?;
            return Ok(ExfatFolder { place, chain, bytes: FOLDER_BYTES_MAX });
        }
        let entry = self.entry(folder)?;
        if !entry.is_folder {
            return Err(FileSystemError::Absent { what: format!("folder of number {}", folder.0) });
        }
        if entry.size > FOLDER_BYTES_MAX {
            return Err(damaged("folder", "it exceeds the maximum size of a folder".into()));
        }
        let place = FolderStart { cluster: entry.first_cluster, is_contiguous: entry.is_contiguous };
        Ok(ExfatFolder { place, chain: self.chain(&entry, "folder")?, bytes: entry.size })
    }

    /// Passes every entry in use and its index to `visit`, up to the folder's end.
    fn slots(
        &self,
        entries: &ExfatFolder,
        visit: &mut dyn FnMut(u64, &[u8; 32]) -> ControlFlow<()>,
    ) -> Result<(), FileSystemError> {
        let (mut offset, mut buffer) = (0_u64, Vec::new());
        while offset < entries.bytes {
            let Some((position, left)) = self.clusters.run_at(&entries.chain, offset) else { break };
            let length = left.min(FOLDER_READ_BYTES).min(entries.bytes.saturating_sub(offset));
            buffer.resize(to_usize(length), 0);
            let read = self.volume.read_at(position, &mut buffer);
            read.map_err(|source| FileSystemError::Read { what: "folder".into(), source })?;
            let first = offset.checked_div(ENTRY_BYTES).unwrap_or(0);
            for (index, slot) in (first..).zip(buffer.as_chunks::<32>().0) {
                if u8_at(slot, 0) == 0 || visit(index, slot).is_break() {
                    return Ok(());
                }
            }
            offset = offset.saturating_add(length);
        }
        Ok(())
    }
}

/// Collects the entries of a file as they are read.
#[derive(Default)]
struct EntrySetBuilder {
    first: u64,
    wanted: usize,
    bytes: Vec<u8>,
}

impl EntrySetBuilder {
    /// Takes another entry. Returns the file once its entries are complete, or the problem of
    /// entries that form no file.
    fn push(&mut self, index: u64, slot: &[u8; 32]) -> Option<Result<(u64, EntrySet), String>> {
        let is_secondary = u8_at(slot, 0) & (IN_USE | 0x40) == IN_USE | 0x40;
        if self.wanted > 0 && !is_secondary {
            self.wanted = 0;
            let cut_off = "the entries of a file are cut off".to_owned();
            // This entry begins a new file.
            let _ = self.push(index, slot);
            return Some(Err(cut_off));
        }
        if self.wanted == 0 {
            self.wanted = EntrySet::count(slot)?;
            self.first = index;
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(slot);
        if self.bytes.len() < self.wanted.min(SET_ENTRIES_MAX).saturating_mul(32) {
            return None;
        }
        self.wanted = 0;
        Some(EntrySet::decode(&self.bytes).map(|entry| (self.first, entry)))
    }
}

impl FileSystem for ExFat {
    fn root(&self) -> FileId {
        ROOT
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        if file == ROOT {
            return Ok(entry_status(true, false));
        }
        let entry = self.entry(file)?;
        let allocated = entry.size.checked_next_multiple_of(self.boot.cluster_bytes.max(1));
        Ok(entry.status(allocated.unwrap_or(entry.size)))
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        let entries = self.entries(folder)?;
        let (mut gathered, mut number, mut trouble) = (EntrySetBuilder::default(), 0_u64, None);
        self.slots(&entries, &mut |index, slot| {
            match gathered.push(index, slot) {
                None => {}
                // The other files of the folder are still valid.
                Some(Err(problem)) => drop(trouble.get_or_insert(problem)),
                Some(Ok((index, entry))) => {
                    number = number.saturating_add(1);
                    if number > first {
                        let kind = if entry.is_folder { FileKind::Folder } else { FileKind::File };
                        let id = entries.place.number(index);
                        return visit(FolderChild { name: entry.name, id, kind });
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        trouble.map_or(Ok(()), |problem| Err(damaged("folder", problem)))
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let entry = if file == ROOT { None } else { Some(self.entry(file)?) };
        let Some(entry) = entry.filter(|entry| !entry.is_folder) else {
            return Err(FileSystemError::Absent {
                what: format!("content of the folder of number {}", file.0),
            });
        };
        let left = entry.size.saturating_sub(offset);
        let length = to_usize(left).min(into.len());
        let Some(wanted) = into.get_mut(..length).filter(|wanted| !wanted.is_empty()) else { return Ok(0) };
        // Bytes that were never written read as zeros, regardless of the bytes on the disk.
        let written = to_usize(entry.written.saturating_sub(offset));
        let (written, rest) = wanted.split_at_mut(written.min(length));
        rest.fill(0);
        if !written.is_empty() {
            self.clusters.read(&self.chain(&entry, "file")?, offset, written, "file")?;
        }
        Ok(length)
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let end = if file == ROOT { 0 } else { self.entry(file)?.written };
        Ok((offset < end).then_some(offset..end))
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        if file == ROOT || self.boot.is_dirty {
            return Ok(None);
        }
        let entry = self.entry(file)?;
        if entry.is_folder {
            return Ok(None);
        }
        Ok(Some(self.clusters.places(&self.chain(&entry, "file")?, entry.written)))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        Err(FileSystemError::Absent { what: format!("symbolic link of number {}", link.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_where_a_file_is_and_leave_room_for_the_volume() {
        for (cluster, is_contiguous, index) in [(2, false, 0), (u32::MAX - 11, true, (1 << INDEX_BITS) - 1)] {
            let number = FolderStart { cluster, is_contiguous }.number(index);
            let (place, found) = FolderStart::of(number).unwrap();
            assert_eq!((place.cluster, place.is_contiguous, found), (cluster, is_contiguous, index));
            assert!(number.0 < 1 << 56);
        }
        assert!(FolderStart::of(FileId(u64::MAX)).is_none());
    }

    #[test]
    fn entries_that_belong_to_no_file_are_told_and_passed() {
        let file = |count: u8| {
            let mut slot = [0; 32];
            (slot[0], slot[1]) = (0x85, count);
            slot
        };
        let mut gathered = EntrySetBuilder::default();
        assert!(gathered.push(0, &file(2)).is_none());
        assert!(gathered.push(1, &file(2)).is_some_and(|found| found.is_err()), "the first is cut off");
        assert_eq!((gathered.first, gathered.wanted), (1, 3));
        let mut deleted = [0; 32];
        deleted[0] = 0x40;
        assert!(gathered.push(2, &deleted).is_some_and(|found| found.is_err()));
        assert_eq!(gathered.wanted, 0);
        let mut bitmap = [0; 32];
        bitmap[0] = 0x81;
        assert!(gathered.push(3, &bitmap).is_none());
    }
}

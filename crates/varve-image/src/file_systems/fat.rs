//! Reads FAT with 12, 16 and 32 bits, with long names.
//!
//! ```text
//! boot sector │ … reserved │ table │ table │ root folder (12 and 16 bits) │ clusters
//! ```
//!
//! A file's number is the position of its short entry in the volume, in units of entries; the
//! root's is 0. Times are in the unknown local time of their writer; they are shown as if they were
//! UTC.

mod boot;
mod entry;

pub(crate) use self::entry::entry_status;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use varve_block::to_usize;

use self::boot::{FatBootSector, FatRootFolder};
use self::entry::{ENTRY_BYTES, FatEntry, FatSlot, LongName};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::clusters::{ClusterChain, Clusters, FIRST_CLUSTER, damaged};
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild,
};

const ROOT: FileId = FileId(0);
/// The bytes of a folder that are read at a time.
const FOLDER_READ_BYTES: u64 = 4096;
/// A folder has at most 65536 entries, so that their numbers fit into 16 bits. A longer folder is
/// damaged.
const FOLDER_BYTES_MAX: u64 = 65536 * ENTRY_BYTES;

/// A FAT file system.
pub(crate) struct Fat {
    volume: Arc<dyn ReadAt>,
    clusters: Clusters,
    root: FatRootFolder,
}

/// The position of a folder's entries.
enum FatFolder {
    Range(Range<u64>),
    Chain(ClusterChain),
}

impl Fat {
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let FatBootSector { width, table_start, heap_start, cluster_bytes, cluster_count, root } =
            FatBootSector::read(&*volume)?;
        let clusters =
            Clusters::new(Arc::clone(&volume), width, table_start, heap_start, cluster_bytes, cluster_count);
        Ok(Self { volume, clusters, root })
    }

    /// Reads the entry of a file that is not the root.
    fn entry(&self, file: FileId) -> Result<FatEntry, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("file number {}", file.0) };
        let position = file.0.checked_mul(ENTRY_BYTES).ok_or_else(absent)?;
        let is_in_root = matches!(&self.root, FatRootFolder::Range(range) if range.contains(&position));
        if !is_in_root && self.clusters.locate(position).is_none() {
            return Err(absent());
        }
        let mut bytes = [0; 32];
        let read = self.volume.read_at(position, &mut bytes);
        read.map_err(|source| FileSystemError::Read { what: format!("entry of file {}", file.0), source })?;
        match self.decode(&bytes) {
            FatSlot::File(entry) => Ok(entry),
            _ => Err(absent()),
        }
    }

    fn decode(&self, slot: &[u8; 32]) -> FatSlot {
        // Only with 32 bits is the root stored in clusters like any other folder.
        FatSlot::decode(slot, matches!(self.root, FatRootFolder::Cluster(_)))
    }

    fn entries(&self, folder: FileId) -> Result<FatFolder, FileSystemError> {
        let what = "folder";
        let first = if folder == ROOT {
            match &self.root {
                FatRootFolder::Range(range) => return Ok(FatFolder::Range(range.clone())),
                FatRootFolder::Cluster(cluster) => *cluster,
            }
        } else {
            let entry = self.entry(folder)?;
            if !entry.is_folder {
                return Err(FileSystemError::Absent { what: format!("folder of number {}", folder.0) });
            }
            entry.first_cluster
        };
        self.clusters.chain(first, what).map(FatFolder::Chain)
    }

    fn chain(&self, entry: &FatEntry) -> Result<ClusterChain, FileSystemError> {
        if entry.first_cluster < FIRST_CLUSTER {
            return if entry.size == 0 {
                Ok(Arc::new([]))
            } else {
                Err(damaged("file", format!("it has {} bytes and no clusters", entry.size)))
            };
        }
        self.clusters.chain(entry.first_cluster, "file")
    }

    /// Returns the position of the entry at an offset of a folder, and the number of bytes that
    /// follow contiguously.
    fn place(&self, entries: &FatFolder, offset: u64) -> Option<(u64, u64)> {
        match entries {
            FatFolder::Range(range) => {
                let position = range.start.checked_add(offset)?;
                let left = range.end.checked_sub(position)?;
                (left > 0).then_some((position, left))
            }
            FatFolder::Chain(chain) => self.clusters.run_at(chain, offset),
        }
    }

    /// Passes every slot of a folder and its position in the volume to `visit`, up to the folder's
    /// end.
    fn slots(
        &self,
        folder: FileId,
        visit: &mut dyn FnMut(u64, &[u8; 32]) -> ControlFlow<()>,
    ) -> Result<(), FileSystemError> {
        let entries = self.entries(folder)?;
        let (mut offset, mut buffer) = (0_u64, Vec::new());
        while let Some((position, left)) = self.place(&entries, offset) {
            if offset >= FOLDER_BYTES_MAX {
                return Err(damaged("folder", "it exceeds the maximum size of a folder".into()));
            }
            let length = left.min(FOLDER_READ_BYTES);
            buffer.resize(to_usize(length), 0);
            let read = self.volume.read_at(position, &mut buffer);
            read.map_err(|source| FileSystemError::Read { what: "folder".into(), source })?;
            for (slot, at) in buffer.as_chunks::<32>().0.iter().zip((position..).step_by(32)) {
                if slot.first() == Some(&0) || visit(at, slot).is_break() {
                    return Ok(());
                }
            }
            offset = offset.saturating_add(length);
        }
        Ok(())
    }
}

impl FileSystem for Fat {
    fn root(&self) -> FileId {
        ROOT
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        if file == ROOT {
            return Ok(entry_status(true, false));
        }
        let entry = self.entry(file)?;
        let cluster_bytes = self.clusters.cluster_bytes();
        Ok(entry.status(u64::from(entry.size).next_multiple_of(cluster_bytes.max(1))))
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        let mut long = LongName::default();
        let mut number = 0_u64;
        self.slots(folder, &mut |at, slot| {
            match self.decode(slot) {
                FatSlot::LongName(part) => long.push(&part),
                FatSlot::Other => long = LongName::default(),
                FatSlot::File(entry) => {
                    let name = std::mem::take(&mut long).finish(&entry).unwrap_or_else(|| entry.name());
                    let is_itself = matches!(&entry.short_name, b".          " | b"..         ");
                    if !is_itself {
                        number = number.saturating_add(1);
                        if number > first {
                            let kind = if entry.is_folder { FileKind::Folder } else { FileKind::File };
                            return visit(FolderChild { name, id: FileId(at >> 5), kind });
                        }
                    }
                }
            }
            ControlFlow::Continue(())
        })
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let entry = if file == ROOT { None } else { Some(self.entry(file)?) };
        let Some(entry) = entry.filter(|entry| !entry.is_folder) else {
            return Err(FileSystemError::Absent {
                what: format!("content of the folder of number {}", file.0),
            });
        };
        let left = u64::from(entry.size).saturating_sub(offset);
        let length = to_usize(left).min(into.len());
        let Some(wanted) = into.get_mut(..length).filter(|wanted| !wanted.is_empty()) else { return Ok(0) };
        self.clusters.read(&self.chain(&entry)?, offset, wanted, "file")?;
        Ok(length)
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        if file == ROOT {
            return Ok(None);
        }
        let entry = self.entry(file)?;
        if entry.is_folder {
            return Ok(None);
        }
        Ok(Some(self.clusters.places(&self.chain(&entry)?, u64::from(entry.size))))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        Err(FileSystemError::Absent { what: format!("symbolic link of number {}", link.0) })
    }
}

//! Reads ISO 9660, with Rock Ridge or Joliet where present.
//!
//! ```text
//! 16 sectors │ descriptors: primary, Joliet, end │ … folders and files, in one or more extents
//! ```
//!
//! A file's number is the position of its record in the volume. With Rock Ridge, names, modes,
//! owners, times and links are those of the source system. Otherwise names are shown as Linux shows
//! them: in lower case and without versions.

mod descriptor;
mod record;
mod rock_ridge;

use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

use self::descriptor::VolumeDescriptor;
use self::record::{IsoRecord, NameEncoding};
use self::rock_ridge::RockRidge;
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild,
};

/// No record of a folder crosses a boundary of this size.
const SECTOR_BYTES: u64 = 2048;
/// The limit of a folder's size. Known tools make less than a hundredth of it.
const FOLDER_BYTES_MAX: u64 = 64 << 20;
/// A file with more extents than this is damaged: one extent has up to 4 GiB.
const EXTENT_COUNT_MAX: usize = 4096;

/// An ISO 9660 file system.
pub(crate) struct Iso {
    volume: Arc<dyn ReadAt>,
    block_bytes: u64,
    root: u64,
    naming: NameEncoding,
}

/// A file: its record, its Rock Ridge fields, and the position of its bytes.
struct IsoFile {
    record: IsoRecord,
    rock_ridge: RockRidge,
    /// The extents, each with the number of bytes before it.
    extents: Vec<(u64, Range<u64>)>,
    size: u64,
}

impl Iso {
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let primary = VolumeDescriptor::primary(&*volume)?;
        let mut iso = Self {
            volume,
            block_bytes: primary.block_bytes,
            root: primary.root,
            naming: NameEncoding::Plain,
        };
        let root = iso.record(primary.root)?;
        let start =
            iso.position(&root).ok_or_else(|| damaged("root folder", "its position is invalid".into()))?;
        // The first record of the root tells the offset at which the Rock Ridge fields begin in
        // other records.
        if let Ok(first) = iso.record(start)
            && let Some(skipped) = rock_ridge::announced(&first.system_use)
        {
            let fields = RockRidge::read(&*iso.volume, iso.block_bytes, &first.system_use, skipped);
            if fields.is_ok_and(|fields| fields.has_any) {
                iso.naming = NameEncoding::RockRidge { skipped };
                iso.root = start;
                return Ok(iso);
            }
        }
        if let Some(joliet) = VolumeDescriptor::joliet(&*iso.volume)? {
            iso.naming = NameEncoding::Joliet;
            iso.block_bytes = joliet.block_bytes;
            iso.root = joliet.root;
        }
        Ok(iso)
    }

    /// Reads the record at a position of the volume.
    fn record(&self, position: u64) -> Result<IsoRecord, FileSystemError> {
        let mut bytes = [0; 256];
        let left = self.volume.size().saturating_sub(position);
        let length = to_usize(left.min(256));
        let what = || format!("record at {position}");
        let Some(there) = bytes.get_mut(..length) else {
            return Err(FileSystemError::Absent { what: what() });
        };
        let read = self.volume.read_at(position, there);
        read.map_err(|source| FileSystemError::Read { what: what(), source })?;
        IsoRecord::decode(&bytes).ok_or_else(|| FileSystemError::Absent { what: what() })
    }

    /// Returns the position of a record's content.
    fn position(&self, record: &IsoRecord) -> Option<u64> {
        let block = u64::from(record.block).checked_add(u64::from(record.attribute_blocks))?;
        block.checked_mul(self.block_bytes)
    }

    fn rock_ridge(&self, record: &IsoRecord) -> Result<RockRidge, FileSystemError> {
        match self.naming {
            NameEncoding::RockRidge { skipped } => {
                RockRidge::read(&*self.volume, self.block_bytes, &record.system_use, skipped)
            }
            _ => Ok(RockRidge::default()),
        }
    }

    fn file(&self, id: FileId) -> Result<IsoFile, FileSystemError> {
        let record = self.record(id.0)?;
        let rock_ridge = self.rock_ridge(&record)?;
        let (mut extents, mut size) = (Vec::new(), 0_u64);
        let (mut part, mut place) = (record.clone(), id.0);
        loop {
            if part.is_interleaved {
                let what = format!("record at {place}");
                return Err(FileSystemError::Unsupported { what, feature: "an interleaved file".into() });
            }
            let what = "file";
            let start =
                self.position(&part).ok_or_else(|| damaged(what, "its position is invalid".into()))?;
            extents.push((size, start..start.saturating_add(u64::from(part.size))));
            size = size.saturating_add(u64::from(part.size));
            if !part.goes_on {
                return Ok(IsoFile { record, rock_ridge, extents, size });
            }
            if extents.len() == EXTENT_COUNT_MAX {
                return Err(damaged(what, format!("it has more than {EXTENT_COUNT_MAX} extents")));
            }
            place = place.saturating_add(u64::from(part.length));
            part = match self.record(place) {
                Ok(part) => part,
                // The rest of a sector is empty if the next record does not fit.
                Err(FileSystemError::Absent { .. }) => {
                    place = place.next_multiple_of(SECTOR_BYTES);
                    self.record(place)?
                }
                Err(error) => return Err(error),
            };
        }
    }

    /// Returns the child that a record of a folder describes; `None` if the record is not shown.
    fn child_of(&self, position: u64, record: &IsoRecord) -> Result<Option<FolderChild>, FileSystemError> {
        let rock_ridge = self.rock_ridge(record)?;
        if rock_ridge.is_relocated {
            return Ok(None);
        }
        let name = match (&rock_ridge.name, &self.naming) {
            (Some(name), _) => crate::file_systems::wide_names::from_bytes(name),
            (None, naming) => record.name(naming),
        };
        // A folder that was nested too deeply was moved; the first record at its new position
        // stands for it.
        let moved = rock_ridge.child_block.and_then(|block| u64::from(block).checked_mul(self.block_bytes));
        if let Some(place) = moved {
            return Ok(Some(FolderChild { name, id: FileId(place), kind: FileKind::Folder }));
        }
        Ok(Some(FolderChild { name, id: FileId(position), kind: kind_of(record, &rock_ridge) }))
    }
}

fn kind_of(record: &IsoRecord, rock_ridge: &RockRidge) -> FileKind {
    rock_ridge.kind.unwrap_or(if record.is_folder { FileKind::Folder } else { FileKind::File })
}

fn damaged(what: &str, problem: String) -> FileSystemError {
    FileSystemError::Damaged { what: what.into(), problem }
}

impl FileSystem for Iso {
    fn root(&self) -> FileId {
        FileId(self.root)
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        let IsoFile { record, rock_ridge, size, .. } = self.file(file)?;
        let kind = if file.0 == self.root { FileKind::Folder } else { kind_of(&record, &rock_ridge) };
        let size = match kind {
            FileKind::File => size,
            FileKind::SymbolicLink => rock_ridge.target.as_ref().map_or(0, |target| target.len() as u64),
            _ => 0,
        };
        let mode = rock_ridge.mode.unwrap_or(if kind == FileKind::Folder { 0o555 } else { 0o444 });
        Ok(FileStatus {
            kind,
            mode,
            uid: rock_ridge.uid,
            gid: rock_ridge.gid,
            links: if kind == FileKind::Folder { 1 } else { rock_ridge.links.max(1) },
            size,
            allocated: size.next_multiple_of(SECTOR_BYTES),
            modified: rock_ridge.modified.unwrap_or(record.recorded),
            changed: rock_ridge.changed,
            accessed: rock_ridge.accessed,
            created: rock_ridge.created,
            device: rock_ridge
                .device
                .filter(|_| matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice)),
        })
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        let found = self.file(folder)?;
        if !found.record.is_folder {
            return Err(FileSystemError::Absent { what: format!("folder at {}", folder.0) });
        }
        let (mut number, mut continues) = (0_u64, false);
        for (_, extent) in &found.extents {
            if extent.end.saturating_sub(extent.start) > FOLDER_BYTES_MAX {
                return Err(damaged("folder", "it exceeds the maximum size of a folder".into()));
            }
            let mut place = extent.start;
            while place < extent.end {
                let sector_end = place.saturating_add(1).next_multiple_of(SECTOR_BYTES);
                let record = match self.record(place) {
                    Ok(record) => record,
                    Err(FileSystemError::Absent { .. }) => {
                        place = sector_end;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let position = place;
                place = place.saturating_add(u64::from(record.length));
                let is_part = std::mem::replace(&mut continues, record.goes_on);
                if is_part || record.is_special() {
                    continue;
                }
                let Some(child) = self.child_of(position, &record)? else { continue };
                number = number.saturating_add(1);
                if number > first && visit(child).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let found = self.file(file)?;
        if kind_of(&found.record, &found.rock_ridge) != FileKind::File {
            return Err(FileSystemError::Absent {
                what: format!("file content at {}, where there is no file", file.0),
            });
        }
        if found.rock_ridge.is_compressed {
            let what = format!("content of the file at {}", file.0);
            return Err(FileSystemError::Unsupported { what, feature: "zisofs compression".into() });
        }
        let mut filled = 0_usize;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let place = offset.saturating_add(filled as u64);
            let number = found.extents.partition_point(|(before, _)| *before <= place);
            let Some((before, extent)) = number.checked_sub(1).and_then(|number| found.extents.get(number))
            else {
                break;
            };
            let position = extent.start.saturating_add(place.saturating_sub(*before));
            let left = to_usize(extent.end.saturating_sub(position));
            let length = left.min(rest.len());
            let Some(wanted) = rest.get_mut(..length).filter(|wanted| !wanted.is_empty()) else { break };
            let read = self.volume.read_at(position, wanted);
            read.map_err(|source| FileSystemError::Read { what: format!("file (byte {place})"), source })?;
            filled = filled.saturating_add(length);
        }
        Ok(filled)
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let found = self.file(file)?;
        let is_plain =
            kind_of(&found.record, &found.rock_ridge) == FileKind::File && !found.rock_ridge.is_compressed;
        let places =
            || found.extents.iter().map(|(_, extent)| extent.clone()).filter(|extent| !extent.is_empty());
        Ok(is_plain.then(|| places().collect()))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let target = self.file(link)?.rock_ridge.target;
        target.ok_or_else(|| FileSystemError::Absent { what: format!("symbolic link at {}", link.0) })
    }
}

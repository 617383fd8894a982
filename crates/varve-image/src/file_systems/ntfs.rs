//! Reads NTFS. Files that are encrypted, or whose content is stored elsewhere, are listed, but
//! their content is refused.
//!
//! A file's number is that of its record. Alternate data streams are extended attributes of the
//! namespace `user`, as NTFS-3G shows them. Access-control lists are not shown.
//!
//! A file is a set of records, and each of its streams a set of parts. A stream is read only if its
//! parts follow each other from the first to the last byte: a part is never taken for the whole.

mod attribute;
mod boot;
mod index;
mod log;
mod lznt1;
mod protected;
mod reparse;
mod runs;
mod sound;
mod stream;
mod table;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use quick_cache::sync::Cache;

use self::index::{NtfsName, visit_names};
use self::stream::NtfsStream;
use self::table::{NtfsFile, NtfsTable};
use crate::bytes::fields::{u16_at, u32_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::{
    FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr,
};
use crate::file_systems::file_time::FileTime;
use crate::file_systems::wide_names;

/// The root folder's record.
const ROOT: FileId = FileId(5);
/// The log's record.
const LOG: FileId = FileId(2);
/// The record with the state of the volume.
const VOLUME: FileId = FileId(3);
/// Lower record numbers belong to the file system itself.
const FIRST_OWN_RECORD: u64 = 16;
/// The record number without its sequence number.
const RECORD_MASK: u64 = (1 << 48) - 1;
/// The longest reparse point.
const REPARSE_BYTES_MAX: u64 = 16 << 10;
/// The longest extended attribute of Linux.
const XATTR_BYTES_MAX: u64 = 64 << 10;
/// The names of a file without content that are looked up in their folders.
const CHECKED_NAMES_MAX: usize = 16;
/// The contents whose parts are remembered: 96 MiB of memory if each has as many as possible.
const CACHED_CONTENTS: usize = 8;
/// The time between 1601 and 1970, in units of 100 nanoseconds.
const TICKS_TO_1970: i128 = 116_444_736_000_000_000;

const IS_READ_ONLY: u32 = 1;
const IS_REPARSE_POINT: u32 = 0x400;
/// The attribute of folders in names.
const IS_FOLDER: u32 = 0x1000_0000;
const VOLUME_IS_DIRTY: u16 = 1;

/// An NTFS file system.
pub(crate) struct NtfsFiles {
    volume: Arc<dyn ReadAt>,
    table: NtfsTable,
    contents: Cache<u64, Arc<NtfsContent>>,
}

/// The content of a file.
struct NtfsContent {
    /// `None` if the file has no content, not even an empty one.
    stream: Option<NtfsStream>,
    /// The feature that is needed to read content that is stored elsewhere.
    keeper: Option<String>,
}

pub(super) fn damaged(what: &str, problem: &str) -> FileSystemError {
    FileSystemError::Damaged { what: what.into(), problem: problem.into() }
}

impl NtfsFiles {
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let table = NtfsTable::open(Arc::clone(&volume))?;
        Ok(Self { volume, table, contents: Cache::new(CACHED_CONTENTS) })
    }

    fn content(&self, id: FileId) -> Result<Arc<NtfsContent>, FileSystemError> {
        self.contents.get_or_insert_with(&id.0, || self.find_content(id).map(Arc::new))
    }

    fn find_content(&self, id: FileId) -> Result<NtfsContent, FileSystemError> {
        let file = self.table.file(id.0)?;
        if file.is_folder() {
            return Err(FileSystemError::Absent { what: format!("content of the folder {}", id.0) });
        }
        let stream = file.stream(attribute::DATA, b"", self.table.boot())?;
        if stream.is_none() {
            self.check_without_content(id, &file)?;
        }
        let mut keeper = None;
        // A driver that stores content elsewhere leaves a hole and fills it on demand: a file
        // without a hole is complete.
        if let Some(stream) = stream.as_ref().filter(|stream| stream.size() > 0)
            && let Some(reparse) = self.reparse_point(&file)?
            && reparse::target(&reparse).is_none()
            && stream.may_be_elsewhere(self.table.boot())
        {
            keeper = Some(reparse::keeper(&reparse));
        }
        Ok(NtfsContent { stream, keeper })
    }

    /// Checks that the folders of a file without content do not state a size. Drivers update the
    /// sizes in folders late, or not at all for other names of the file. So a size there proves
    /// only that the file has had content, and a file that has had content keeps at least an empty
    /// one.
    fn check_without_content(&self, id: FileId, file: &NtfsFile) -> Result<(), FileSystemError> {
        let names = file.all_of_kind(attribute::FILE_NAME)?;
        let folders = names.iter().filter_map(|name| NtfsName::parse(id.0, name.resident_value()?));
        for folder in folders.map(|name| name.folder()).take(CHECKED_NAMES_MAX) {
            let what = format!("folder of record {folder}");
            let mut stated = 0;
            let visited = visit_names(&self.table, &self.table.file(folder)?, &what, &mut |name| {
                let is_own = name.record == id.0;
                stated = stated.max(if is_own { name.size() } else { 0 });
                if is_own { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            // A listing of the folder reports its own damage.
            drop(visited);
            if stated > 0 {
                let problem = format!("it has no content, and its folder states {stated} bytes");
                return Err(damaged(&format!("file of record {}", id.0), &problem));
            }
        }
        Ok(())
    }

    /// Returns a file's reparse point, if it has one.
    fn reparse_point(&self, file: &NtfsFile) -> Result<Option<Vec<u8>>, FileSystemError> {
        let information = file.value(attribute::STANDARD_INFORMATION)?.unwrap_or_default();
        if u32_at(&information, 32) & IS_REPARSE_POINT == 0 {
            return Ok(None);
        }
        let boot = self.table.boot();
        let Some(stream) = file.stream(attribute::REPARSE_POINT, b"", boot)? else { return Ok(None) };
        stream.read_all(&*self.volume, boot, REPARSE_BYTES_MAX, "reparse point").map(Some)
    }

    /// Returns the kind of a file with a reparse point: a link, or the kind without it.
    fn reparse_kind(&self, id: FileId, is_folder: bool) -> FileKind {
        match self.link_target(id) {
            Ok(_) => FileKind::SymbolicLink,
            Err(_) if is_folder => FileKind::Folder,
            Err(_) => FileKind::File,
        }
    }

    /// Returns true if the volume was left in a clean state: it is not marked for a check, and its
    /// log has no pending records.
    pub(crate) fn was_left_in_order(&self) -> Result<bool, FileSystemError> {
        let state = self.table.file(VOLUME.0)?.value(attribute::VOLUME_INFORMATION)?;
        let state = state.ok_or_else(|| damaged("NTFS volume", "it has no record of its state"))?;
        let is_dirty = u16_at(&state, 10) & VOLUME_IS_DIRTY != 0;
        let mut head = [0; log::HEAD_BYTES];
        let length = self.read_at(LOG, 0, &mut head)?;
        Ok(!is_dirty && head.get(..length).is_some_and(log::is_done))
    }
}

impl FileSystem for NtfsFiles {
    fn root(&self) -> FileId {
        ROOT
    }

    fn status(&self, id: FileId) -> Result<FileStatus, FileSystemError> {
        let file = self.table.file(id.0)?;
        let what = format!("file of record {}", id.0);
        let information = file.value(attribute::STANDARD_INFORMATION)?;
        let information = information.ok_or_else(|| damaged(&what, "it has no times"))?;
        let names = file.all_of_kind(attribute::FILE_NAME)?;
        let names = names.iter().filter_map(|name| NtfsName::parse(id.0, name.resident_value()?));
        let links = u32::try_from(names.filter(|name| !name.is_of_dos()).count()).unwrap_or(u32::MAX);
        let target = self.reparse_point(&file)?.and_then(|reparse| reparse::target(&reparse));
        let kind = match (&target, file.is_folder()) {
            (Some(_), _) => FileKind::SymbolicLink,
            (None, true) => FileKind::Folder,
            (None, false) => FileKind::File,
        };
        let mode = match kind {
            FileKind::SymbolicLink => 0o777,
            FileKind::Folder => 0o755,
            _ if u32_at(&information, 32) & IS_READ_ONLY != 0 => 0o444,
            _ => 0o644,
        };
        let (size, allocated) = match (kind, target) {
            (_, Some(target)) => (target.len() as u64, 0),
            (FileKind::File, _) => {
                let content = self.content(id)?;
                content.stream.as_ref().map_or((0, 0), |stream| (stream.size(), stream.size()))
            }
            _ => (0, 0),
        };
        Ok(FileStatus {
            links: if kind == FileKind::Folder { 1 } else { links.max(1) },
            allocated,
            modified: moment(u64_at(&information, 8)),
            changed: Some(moment(u64_at(&information, 16))),
            accessed: Some(moment(u64_at(&information, 24))),
            created: Some(moment(u64_at(&information, 0))),
            ..FileStatus::new(kind, mode, size)
        })
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        let file = self.table.file(folder.0)?;
        let what = format!("folder of record {}", folder.0);
        if !file.is_folder() {
            return Err(FileSystemError::Absent { what });
        }
        let mut number = 0_u64;
        visit_names(&self.table, &file, &what, &mut |name| {
            if name.is_of_dos() || name.record < FIRST_OWN_RECORD {
                return ControlFlow::Continue(());
            }
            number = number.saturating_add(1);
            if number <= first {
                return ControlFlow::Continue(());
            }
            let (id, attributes) = (FileId(name.record), name.file_attributes());
            let is_folder = attributes & IS_FOLDER != 0;
            let kind = match (attributes & IS_REPARSE_POINT != 0, is_folder) {
                // Only the file itself tells if it is a link.
                (true, is_folder) => self.reparse_kind(id, is_folder),
                (false, true) => FileKind::Folder,
                (false, false) => FileKind::File,
            };
            visit(FolderChild { name: wide_names::from_utf16(name.units()), id, kind })
        })
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let content = self.content(file)?;
        let Some(stream) = content.stream.as_ref().filter(|stream| offset < stream.size()) else {
            return Ok(0);
        };
        let what = format!("content of record {}", file.0);
        if stream.is_encrypted() {
            return Err(FileSystemError::Unsupported { what, feature: "NTFS's encryption".into() });
        }
        if let Some(feature) = content.keeper.clone() {
            return Err(FileSystemError::Unsupported { what, feature });
        }
        stream.read_at(&*self.volume, self.table.boot(), offset, into, &what)
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let content = self.content(file)?;
        let Some(stream) = &content.stream else { return Ok(None) };
        let whole = (offset < stream.size()).then_some(offset..stream.size());
        let Some(runs) = stream.plain_runs().filter(|_| content.keeper.is_none()) else { return Ok(whole) };
        let in_bytes = |clusters: u64| clusters.saturating_mul(self.table.boot().cluster_bytes);
        let from = runs.partition_point(|run| in_bytes(run.end) <= offset);
        let data = runs.get(from..).unwrap_or_default().iter().find(|run| run.place.is_some());
        let written = stream.sizes().written;
        let range = data.map(|run| in_bytes(run.first).max(offset)..in_bytes(run.end).min(written));
        Ok(range.filter(|range| range.start < range.end))
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let content = self.content(file)?;
        let plain = content.stream.as_ref().filter(|_| content.keeper.is_none());
        let Some((stream, runs)) = plain.and_then(|stream| Some((stream, stream.plain_runs()?))) else {
            return Ok(None);
        };
        if stream.sizes().written < stream.size() {
            return Ok(None);
        }
        let in_bytes = |clusters: u64| clusters.saturating_mul(self.table.boot().cluster_bytes);
        let place = |run: &runs::NtfsRun| {
            let length = in_bytes(run.end).min(stream.size()).saturating_sub(in_bytes(run.first));
            let start = in_bytes(run.place?);
            (length > 0).then(|| start..start.saturating_add(length))
        };
        Ok(Some(runs.iter().filter_map(place).collect()))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let reparse = self.reparse_point(&self.table.file(link.0)?)?;
        let target = reparse.and_then(|reparse| reparse::target(&reparse));
        target.ok_or_else(|| FileSystemError::Absent { what: format!("symbolic link of record {}", link.0) })
    }

    fn xattrs(&self, id: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        let file = self.table.file(id.0)?;
        let streams = file.all_of_kind(attribute::DATA)?;
        let mut names: Vec<_> = streams.iter().map(|stream| stream.name()).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        let mut xattrs = Vec::new();
        for name in names {
            let (units, _) = name.as_chunks::<2>();
            let shown = wide_names::from_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)));
            let what = format!("stream {} of record {}", String::from_utf8_lossy(&shown), id.0);
            let Some(stream) = file.stream(attribute::DATA, name, self.table.boot())? else { continue };
            if stream.size() > XATTR_BYTES_MAX {
                let feature = format!("an alternate stream of {} bytes", stream.size());
                return Err(FileSystemError::Unsupported { what, feature });
            }
            if stream.is_encrypted() {
                return Err(FileSystemError::Unsupported { what, feature: "NTFS's encryption".into() });
            }
            let value = stream.read_all(&*self.volume, self.table.boot(), XATTR_BYTES_MAX, &what)?;
            xattrs.push(Xattr { name: [b"user.", &shown[..]].concat(), value });
        }
        xattrs.sort();
        Ok(xattrs)
    }

    fn warning(&self) -> Option<String> {
        self.table.problem().map(Into::into)
    }
}

fn moment(ticks: u64) -> FileTime {
    let ticks = i128::from(ticks).saturating_sub(TICKS_TO_1970);
    FileTime::from_wide_nanoseconds(ticks.saturating_mul(100))
}

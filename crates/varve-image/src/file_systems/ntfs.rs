//! Reads NTFS by means of the crate `ntfs`. Files that are compressed or encrypted, or whose
//! content is stored elsewhere, are listed, but their content is refused.
//!
//! A file's number is that of its record. Alternate data streams and access-control lists are not
//! shown.
//!
//! The crate was not written for malicious disks. So each call gets a cursor with a limited number
//! of bytes, which ends every cycle. A panic within the crate ends the call instead of the program,
//! and is not printed.

mod cursor;
mod log;
mod quiet;
mod reparse;
mod sound;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ntfs::attribute_value::NtfsAttributeValue;
use ntfs::structured_values::{NtfsFileAttributeFlags, NtfsFileName, NtfsFileNamespace, NtfsVolumeFlags};
use ntfs::{
    Ntfs, NtfsAttribute, NtfsAttributeFlags, NtfsAttributeType, NtfsError, NtfsFile, NtfsFileFlags,
    NtfsReadSeek, NtfsTime,
};

use self::cursor::NtfsCursor;
use self::quiet::{aloud, quietly};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_time::FileTime;
use crate::file_systems::wide_names;
use crate::{FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr};

/// The root folder's record.
const ROOT: FileId = FileId(5);
/// The log's record.
const LOG: FileId = FileId(2);
/// Lower record numbers belong to the file system itself.
const FIRST_OWN_RECORD: u64 = 16;
/// The record number without its sequence number.
const RECORD_MASK: u64 = (1 << 48) - 1;
/// The limit of bytes read of a folder. It suffices for two million names.
const FOLDER_BYTES_MAX: u64 = 256 << 20;
/// The limit of bytes read for the metadata of a file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The longest reparse point.
const REPARSE_BYTES_MAX: u64 = 16 << 10;
/// A file with more runs than this is not mapped.
const RUN_COUNT_MAX: usize = 1 << 20;
/// The time between 1601 and 1970, in units of 100 nanoseconds.
const TICKS_TO_1970: i128 = 116_444_736_000_000_000;

/// An NTFS file system.
pub(crate) struct NtfsFiles {
    volume: Arc<dyn ReadAt>,
    ntfs: Ntfs,
}

/// The failure of a call.
enum NtfsCallError {
    Library(NtfsError),
    Named(FileSystemError),
}

impl From<NtfsError> for NtfsCallError {
    fn from(error: NtfsError) -> Self {
        Self::Library(error)
    }
}

impl From<FileSystemError> for NtfsCallError {
    fn from(error: FileSystemError) -> Self {
        Self::Named(error)
    }
}

/// The size and state of a file's content. `written` is the number of bytes that were ever written.
struct NtfsContent {
    size: u64,
    written: u64,
    flags: NtfsAttributeFlags,
    is_resident: bool,
    is_elsewhere: bool,
}

/// Runs of a file: the range in the file, and the position on the disk.
type NtfsRuns = Vec<(Range<u64>, u64)>;

impl NtfsFiles {
    pub(crate) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let ntfs =
            guarded("NTFS file system", || Ok(Ntfs::new(&mut NtfsCursor::new(&*volume, FILE_BYTES_MAX))?))?;
        Ok(Self { volume, ntfs })
    }

    /// Calls `work` with a file's record.
    fn with<T>(
        &self,
        id: FileId,
        bytes_max: u64,
        work: impl FnOnce(&mut NtfsCursor<'_>, &NtfsFile<'_>) -> Result<T, NtfsCallError>,
    ) -> Result<T, FileSystemError> {
        let what = format!("file of record {}", id.0);
        guarded(&what, || {
            let mut cursor = NtfsCursor::new(&*self.volume, bytes_max.saturating_add(FILE_BYTES_MAX));
            let file = self.ntfs.file(&mut cursor, id.0)?;
            if !file.flags().contains(NtfsFileFlags::IN_USE) {
                return Err(FileSystemError::Absent { what: what.clone() }.into());
            }
            work(&mut cursor, &file)
        })
    }

    /// Calls `work` with a file's content. Returns `None` if the file has none.
    fn with_content<T>(
        &self,
        id: FileId,
        bytes_max: u64,
        work: impl FnOnce(
            &mut NtfsCursor<'_>,
            &NtfsFile<'_>,
            &NtfsAttribute<'_, '_>,
            &NtfsContent,
        ) -> Result<T, NtfsCallError>,
    ) -> Result<Option<T>, FileSystemError> {
        self.with(id, bytes_max, |cursor, file| {
            if file.is_directory() {
                return Err(
                    FileSystemError::Absent { what: format!("content of the folder {}", id.0) }.into()
                );
            }
            let Some(item) = file.data(cursor, "") else { return Ok(None) };
            let item = item?;
            let attribute = item.to_attribute()?;
            let mut content = self.content(&attribute)?;
            content.is_elsewhere = is_elsewhere(cursor, file, &attribute, &content)?;
            work(cursor, file, &attribute, &content).map(Some)
        })
    }

    fn content(&self, attribute: &NtfsAttribute<'_, '_>) -> Result<NtfsContent, NtfsCallError> {
        let (size, flags, is_resident) =
            (attribute.value_length(), attribute.flags(), attribute.is_resident());
        let position = attribute.position().value().map(std::num::NonZero::get).filter(|_| !is_resident);
        let content = NtfsContent { size, written: size, flags, is_resident, is_elsewhere: false };
        let Some(position) = position else { return Ok(content) };
        // The crate does not report the initialized size. Bytes after it read as zeros, regardless
        // of the bytes on the disk.
        let place = position.saturating_add(56);
        let mut bytes = [0; 8];
        let read = aloud(|| self.volume.read_at(place, &mut bytes));
        read.map_err(|source| FileSystemError::Read { what: "length of a file".into(), source })?;
        let mut written = u64::from_le_bytes(bytes);
        if place & 511 == 504 {
            // The last two bytes of a sector are stored elsewhere. They are zeros, because no file
            // is that large.
            written &= RECORD_MASK;
        }
        Ok(NtfsContent { written: written.min(size), ..content })
    }

    /// Returns the runs of a file on the disk. Returns `None` if they are not known.
    fn runs(&self, id: FileId) -> Result<Option<(NtfsContent, NtfsRuns)>, FileSystemError> {
        let found = self.with_content(id, 0, |cursor, _, attribute, content| {
            let content = NtfsContent { ..*content };
            let is_plain =
                !content.flags.intersects(NtfsAttributeFlags::COMPRESSED | NtfsAttributeFlags::ENCRYPTED);
            let NtfsAttributeValue::NonResident(value) = attribute.value(cursor)? else { return Ok(None) };
            if !is_plain || content.is_resident || content.is_elsewhere {
                return Ok(None);
            }
            let (mut runs, mut offset) = (Vec::new(), 0_u64);
            for run in value.data_runs() {
                let run = run?;
                let end = offset.saturating_add(run.allocated_size()).min(content.written);
                if let Some(position) = run.data_position().value() {
                    if runs.len() == RUN_COUNT_MAX {
                        return Ok(None);
                    }
                    if offset < end {
                        runs.push((offset..end, position.get()));
                    }
                }
                offset = end;
                if offset >= content.written {
                    break;
                }
            }
            Ok(Some((content, runs)))
        })?;
        Ok(found.flatten())
    }
}

/// Calls the crate. Its errors and panics are reported as damage of the disk.
fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T, NtfsCallError>) -> Result<T, FileSystemError> {
    match catch_unwind(AssertUnwindSafe(|| quietly(work))) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(NtfsCallError::Named(error))) => Err(error),
        Ok(Err(NtfsCallError::Library(NtfsError::Io(source)))) => {
            Err(FileSystemError::Read { what: what.into(), source })
        }
        Ok(Err(NtfsCallError::Library(error))) => {
            Err(FileSystemError::Damaged { what: what.into(), problem: error.to_string() })
        }
        Err(_) => Err(FileSystemError::Damaged { what: what.into(), problem: "it is malformed".into() }),
    }
}

impl FileSystem for NtfsFiles {
    fn root(&self) -> FileId {
        ROOT
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        let mut status = self.with(file, 0, |cursor, file| {
            let info = file.info()?;
            let (mut names, mut is_link) = (0_u32, false);
            let mut attributes = file.attributes();
            while let Some(item) = attributes.next(cursor) {
                let item = item?;
                let attribute = item.to_attribute()?;
                match attribute.ty()? {
                    NtfsAttributeType::FileName => {
                        let name: NtfsFileName = attribute.structured_value(cursor)?;
                        names = names.saturating_add(u32::from(name.namespace() != NtfsFileNamespace::Dos));
                    }
                    NtfsAttributeType::ReparsePoint => {
                        let reparse = reparse_bytes(cursor, &attribute)?;
                        is_link = reparse::target(&reparse).is_some();
                    }
                    _ => {}
                }
            }
            let kind = match (is_link, file.is_directory()) {
                (true, _) => FileKind::SymbolicLink,
                (false, true) => FileKind::Folder,
                (false, false) => FileKind::File,
            };
            let is_read_only = info.file_attributes().contains(NtfsFileAttributeFlags::READ_ONLY);
            let mode = match kind {
                FileKind::SymbolicLink => 0o777,
                FileKind::Folder => 0o755,
                _ if is_read_only => 0o444,
                _ => 0o644,
            };
            Ok(FileStatus {
                links: if kind == FileKind::Folder { 1 } else { names.max(1) },
                modified: moment(info.modification_time()),
                changed: Some(moment(info.mft_record_modification_time())),
                accessed: Some(moment(info.access_time())),
                created: Some(moment(info.creation_time())),
                ..FileStatus::new(kind, mode, 0)
            })
        })?;
        match status.kind {
            FileKind::File => {
                let size = self.with_content(file, 0, |_, _, _, content| Ok(content.size))?.unwrap_or(0);
                (status.size, status.allocated) = (size, size);
            }
            FileKind::SymbolicLink => status.size = self.link_target(file)?.len() as u64,
            _ => {}
        }
        Ok(status)
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        self.with(folder, FOLDER_BYTES_MAX.min(self.volume.size()), |cursor, file| {
            let index = file.directory_index(cursor)?;
            let mut entries = index.entries();
            let mut number = 0_u64;
            while let Some(entry) = entries.next(cursor) {
                let entry = entry?;
                let Some(name) = entry.key() else { continue };
                let name = name?;
                let record = entry.file_reference().file_record_number() & RECORD_MASK;
                if name.namespace() == NtfsFileNamespace::Dos || record < FIRST_OWN_RECORD {
                    continue;
                }
                number = number.saturating_add(1);
                if number <= first {
                    continue;
                }
                let attributes = name.file_attributes();
                let kind =
                    match (attributes.contains(NtfsFileAttributeFlags::REPARSE_POINT), name.is_directory()) {
                        // Only the file itself tells if it is a link.
                        (true, is_folder) => self.reparse_kind(FileId(record), is_folder),
                        (false, true) => FileKind::Folder,
                        (false, false) => FileKind::File,
                    };
                let units = name.name().u16_iter().collect::<Vec<_>>();
                let child = FolderChild { name: wide_names::from_utf16(units), id: FileId(record), kind };
                if aloud(|| visit(child)).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let bytes_max = (into.len() as u64).saturating_mul(2);
        let read = self.with_content(file, bytes_max, |cursor, record, attribute, content| {
            let length = usize::try_from(content.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let length = length.min(into.len());
            let Some(wanted) = into.get_mut(..length).filter(|wanted| !wanted.is_empty()) else {
                return Ok(0);
            };
            refuse_packed(file, content)?;
            if content.is_elsewhere {
                let what = format!("content of record {}", file.0);
                let feature = reparse::keeper(&reparse_point(cursor, record)?.unwrap_or_default());
                return Err(FileSystemError::Unsupported { what, feature }.into());
            }
            let written = usize::try_from(content.written.saturating_sub(offset)).unwrap_or(usize::MAX);
            let (stored, zeros) = wanted.split_at_mut(written.min(length));
            zeros.fill(0);
            if !stored.is_empty() {
                let mut value = attribute.value(cursor)?;
                value.seek(cursor, std::io::SeekFrom::Start(offset))?;
                value.read_exact(cursor, stored)?;
            }
            Ok(length)
        })?;
        Ok(read.unwrap_or(0))
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        let Some((_, runs)) = self.runs(file)? else {
            let size = self.status(file)?.size;
            return Ok((offset < size).then_some(offset..size));
        };
        let next = runs.partition_point(|(range, _)| range.end <= offset);
        Ok(runs.get(next).map(|(range, _)| range.start.max(offset)..range.end))
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let Some((content, runs)) = self.runs(file)? else { return Ok(None) };
        if content.written < content.size {
            return Ok(None);
        }
        let place = |(range, position): (Range<u64>, u64)| {
            position..position.saturating_add(range.end.saturating_sub(range.start))
        };
        Ok(Some(runs.into_iter().map(place).collect()))
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("symbolic link of record {}", link.0) };
        self.with(link, 0, |cursor, file| {
            let target = reparse_point(cursor, file)?.and_then(|reparse| reparse::target(&reparse));
            Ok(target.ok_or_else(absent)?)
        })
    }

    fn xattrs(&self, _: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        Ok(Vec::new())
    }
}

impl NtfsFiles {
    /// Returns true if the volume was left in a clean state: it is not marked for a check, and its
    /// log has no pending records.
    pub(crate) fn was_left_in_order(&self) -> Result<bool, FileSystemError> {
        let is_dirty = guarded("NTFS volume", || {
            let about = self.ntfs.volume_info(&mut NtfsCursor::new(&*self.volume, FILE_BYTES_MAX))?;
            Ok(about.flags().contains(NtfsVolumeFlags::IS_DIRTY))
        })?;
        let mut head = [0; log::HEAD_BYTES];
        let length = self.read_at(LOG, 0, &mut head)?;
        Ok(!is_dirty && head.get(..length).is_some_and(log::is_done))
    }

    /// Returns the kind of a file with a reparse point: a link, or the kind without it.
    fn reparse_kind(&self, id: FileId, is_folder: bool) -> FileKind {
        match self.link_target(id) {
            Ok(_) => FileKind::SymbolicLink,
            Err(_) if is_folder => FileKind::Folder,
            Err(_) => FileKind::File,
        }
    }
}

fn reparse_point(cursor: &mut NtfsCursor<'_>, file: &NtfsFile<'_>) -> Result<Option<Vec<u8>>, NtfsCallError> {
    let mut attributes = file.attributes();
    while let Some(item) = attributes.next(cursor) {
        let item = item?;
        let attribute = item.to_attribute()?;
        if attribute.ty()? == NtfsAttributeType::ReparsePoint {
            return reparse_bytes(cursor, &attribute).map(Some);
        }
    }
    Ok(None)
}

/// Returns true if a reparse point other than a link replaces content that is stored elsewhere. The
/// driver that stores it elsewhere leaves a hole and fills it on demand: a file without a hole is
/// complete.
fn is_elsewhere(
    cursor: &mut NtfsCursor<'_>,
    file: &NtfsFile<'_>,
    attribute: &NtfsAttribute<'_, '_>,
    content: &NtfsContent,
) -> Result<bool, NtfsCallError> {
    let has_reparse_point = || {
        file.info().is_ok_and(|info| info.file_attributes().contains(NtfsFileAttributeFlags::REPARSE_POINT))
    };
    if content.size == 0 || !has_reparse_point() {
        return Ok(false);
    }
    let reparse = reparse_point(cursor, file)?;
    if reparse.is_none_or(|reparse| reparse::target(&reparse).is_some()) {
        return Ok(false);
    }
    Ok(match attribute.value(cursor)? {
        // A resident file has no holes: its replaced content is zeros.
        NtfsAttributeValue::Resident(value) => value.data().iter().all(|byte| *byte == 0),
        NtfsAttributeValue::NonResident(value) => {
            let mut here = 0_u64;
            for run in value.data_runs() {
                let run = run?;
                if run.data_position().value().is_none() {
                    break;
                }
                here = here.saturating_add(run.allocated_size());
            }
            here.min(content.written) < content.size
        }
        // The runs are in several records, which are not searched here.
        NtfsAttributeValue::AttributeListNonResident(_) => true,
    })
}

fn reparse_bytes(
    cursor: &mut NtfsCursor<'_>,
    attribute: &NtfsAttribute<'_, '_>,
) -> Result<Vec<u8>, NtfsCallError> {
    let length = attribute.value_length().min(REPARSE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    attribute.value(cursor)?.read_exact(cursor, &mut bytes)?;
    Ok(bytes)
}

fn refuse_packed(file: FileId, content: &NtfsContent) -> Result<(), FileSystemError> {
    for (flag, feature) in
        [(NtfsAttributeFlags::COMPRESSED, "compression"), (NtfsAttributeFlags::ENCRYPTED, "encryption")]
    {
        if content.flags.contains(flag) {
            let what = format!("content of record {}", file.0);
            return Err(FileSystemError::Unsupported { what, feature: format!("NTFS's {feature}") });
        }
    }
    Ok(())
}

fn moment(time: NtfsTime) -> FileTime {
    let ticks = i128::from(time.nt_timestamp()).saturating_sub(TICKS_TO_1970);
    FileTime::from_wide_nanoseconds(ticks.saturating_mul(100))
}

//! The file table: a record for each file, and further records for what does not fit into one.
//!
//! | offset | bytes | of a record                          | offset | bytes | of an entry of an attribute list |
//! |-------:|------:|--------------------------------------|-------:|------:|----------------------------------|
//! |     20 |     2 | position of the first attribute      |      0 |     4 | kind                             |
//! |     22 |     2 | flags: 1 in use, 2 folder            |      4 |     2 | bytes of the entry               |
//! |     24 |     4 | bytes in use                         |      8 |     8 | its first cluster in the stream  |
//! |     32 |     8 | the file of a further record, or 0   |     16 |     8 | its record                       |
//!
//! The table is a file itself, whose first record describes it. Its own further records are found
//! in the parts that are known by then.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::to_usize;

use super::attribute::{self, NtfsAttribute};
use super::boot::NtfsBoot;
use super::protected::restore_sector_ends;
use super::stream::NtfsStream;
use super::{RECORD_MASK, damaged};
use crate::bytes::fields::{u16_at, u32_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

const IS_IN_USE: u16 = 1;
const IS_FOLDER: u16 = 2;
/// The longest attribute list: 32 MiB of records. Windows makes none of more than 256 KiB.
const LIST_BYTES_MAX: u64 = 1 << 20;
const LIST_ENTRY_BYTES: usize = 26;

/// The records of a volume.
pub(super) struct NtfsTable {
    volume: Arc<dyn ReadAt>,
    boot: NtfsBoot,
    /// The table as a file.
    stream: NtfsStream,
    /// The reason why a part of the table is unknown.
    problem: Option<String>,
}

/// A file with all its records. The first one names the others.
pub(super) struct NtfsFile {
    number: u64,
    records: Vec<NtfsRecord>,
}

/// One record, whose sectors were written together.
struct NtfsRecord {
    bytes: Vec<u8>,
    what: String,
}

impl NtfsTable {
    pub(super) fn open(volume: Arc<dyn ReadAt>) -> Result<Self, FileSystemError> {
        let boot = NtfsBoot::read(&volume)?;
        let what = "NTFS file table";
        let mut bytes = vec![0; to_usize(boot.record_bytes)];
        let read = volume.read_at(boot.table_at, &mut bytes);
        read.map_err(|source| FileSystemError::Read { what: what.into(), source })?;
        let first = NtfsRecord::restored(bytes, what.into())?;
        let stream = {
            let mut data = first.attributes()?;
            data.retain(|part| part.kind() == attribute::DATA && part.name().is_empty());
            data.sort_by_key(|part| part.first_cluster());
            let beginning = data.first().ok_or_else(|| damaged(what, "it has no content"))?;
            NtfsStream::beginning(*beginning, &boot, what)?
        };
        let mut table = Self { volume, boot, stream, problem: None };
        if let Err(error) = table.find_further_parts(&first) {
            table.problem = Some(format!("a part of the file table is unknown: {error}"));
        }
        Ok(table)
    }

    /// Appends the parts of the table that its further records describe.
    fn find_further_parts(&mut self, first: &NtfsRecord) -> Result<(), FileSystemError> {
        let what = "NTFS file table";
        let entries = self.list(first)?;
        let mut parts: Vec<_> = entries
            .iter()
            .filter(|entry| entry.kind == attribute::DATA && entry.first_cluster > 0)
            .map(|entry| (entry.first_cluster, entry.record))
            .collect();
        parts.sort_unstable();
        for (first_cluster, number) in parts {
            let record = self.record(number)?;
            let is_next = |part: &&NtfsAttribute<'_>| {
                part.kind() == attribute::DATA
                    && part.name().is_empty()
                    && part.first_cluster() == first_cluster
            };
            let attributes = record.attributes()?;
            let part = attributes.iter().find(is_next);
            self.stream.append(*part.ok_or_else(|| damaged(what, "one of its parts is missing"))?, what)?;
        }
        self.stream.check_whole(&self.boot, what)
    }

    pub(super) fn boot(&self) -> &NtfsBoot {
        &self.boot
    }

    pub(super) fn volume(&self) -> &dyn ReadAt {
        &*self.volume
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn record(&self, number: u64) -> Result<NtfsRecord, FileSystemError> {
        let what = format!("file of record {number}");
        let mut bytes = vec![0; to_usize(self.boot.record_bytes)];
        let at = number.saturating_mul(self.boot.record_bytes);
        if at >= self.stream.size() {
            return Err(FileSystemError::Absent { what });
        }
        self.stream.read_at(&*self.volume, &self.boot, at, &mut bytes, &what)?;
        NtfsRecord::restored(bytes, what)
    }

    /// Reads a file with all its records.
    ///
    /// # Errors
    /// [`FileSystemError::Absent`] if the record is not in use, or is a further record of a file.
    pub(super) fn file(&self, number: u64) -> Result<NtfsFile, FileSystemError> {
        let base = self.record(number)?;
        if base.flags() & IS_IN_USE == 0 || base.file() != 0 {
            return Err(FileSystemError::Absent { what: base.what });
        }
        let further: BTreeSet<_> =
            self.list(&base)?.iter().map(|entry| entry.record).filter(|record| *record != number).collect();
        let mut records = vec![base];
        for record in further {
            let record = self.record(record)?;
            if record.flags() & IS_IN_USE == 0 || record.file() != number {
                let problem = "one of its records belongs to another file";
                return Err(damaged(&format!("file of record {number}"), problem));
            }
            records.push(record);
        }
        Ok(NtfsFile { number, records })
    }

    /// Returns the attribute list of a file; an empty one if its first record has everything.
    fn list(&self, base: &NtfsRecord) -> Result<Vec<ListEntry>, FileSystemError> {
        let mut parts = base.attributes()?;
        parts.retain(|part| part.kind() == attribute::ATTRIBUTE_LIST);
        let what = format!("attribute list of the {}", base.what);
        let Some(stream) = NtfsStream::of_parts(parts, &self.boot, &what)? else { return Ok(Vec::new()) };
        let bytes = stream.read_all(&*self.volume, &self.boot, LIST_BYTES_MAX, &what)?;
        let (mut entries, mut rest) = (Vec::new(), bytes.as_slice());
        while !rest.is_empty() {
            let length = usize::from(u16_at(rest, 4));
            let split = rest.split_at_checked(length).filter(|(entry, _)| entry.len() >= LIST_ENTRY_BYTES);
            let (entry, behind) = split.ok_or_else(|| damaged(&what, "it has an entry of no size"))?;
            entries.push(ListEntry {
                kind: u32_at(entry, 0),
                first_cluster: u64_at(entry, 8),
                record: u64_at(entry, 16) & RECORD_MASK,
            });
            rest = behind;
        }
        Ok(entries)
    }
}

/// An entry of an attribute list.
struct ListEntry {
    kind: u32,
    first_cluster: u64,
    record: u64,
}

impl NtfsRecord {
    fn restored(mut bytes: Vec<u8>, what: String) -> Result<Self, FileSystemError> {
        restore_sector_ends(&mut bytes, b"FILE").map_err(|problem| damaged(&what, problem))?;
        let used = to_usize(u32_at(&bytes, 24));
        if used > bytes.len() {
            return Err(damaged(&what, "it says that it is larger than a record"));
        }
        bytes.truncate(used);
        Ok(Self { bytes, what })
    }

    fn flags(&self) -> u16 {
        u16_at(&self.bytes, 22)
    }

    /// Returns the number of the file of a further record; 0 for a first record.
    fn file(&self) -> u64 {
        u64_at(&self.bytes, 32) & RECORD_MASK
    }

    fn attributes(&self) -> Result<Vec<NtfsAttribute<'_>>, FileSystemError> {
        let bytes = self.bytes.get(usize::from(u16_at(&self.bytes, 20))..).unwrap_or_default();
        attribute::attributes(bytes).map_err(|problem| damaged(&self.what, problem))
    }
}

impl NtfsFile {
    pub(super) fn is_folder(&self) -> bool {
        self.records.first().is_some_and(|base| base.flags() & IS_FOLDER != 0)
    }

    /// Returns all attributes of a kind, from all records.
    pub(super) fn all_of_kind(&self, kind: u32) -> Result<Vec<NtfsAttribute<'_>>, FileSystemError> {
        let mut found = Vec::new();
        for record in &self.records {
            found.extend(record.attributes()?.into_iter().filter(|attribute| attribute.kind() == kind));
        }
        Ok(found)
    }

    /// Returns the parts of a stream. `name` is in UTF-16.
    fn parts(&self, kind: u32, name: &[u8]) -> Result<Vec<NtfsAttribute<'_>>, FileSystemError> {
        let mut parts = self.all_of_kind(kind)?;
        parts.retain(|part| part.name() == name);
        Ok(parts)
    }

    /// Puts a stream together from all records; `None` if the file has none of this kind and name.
    pub(super) fn stream(
        &self,
        kind: u32,
        name: &[u8],
        boot: &NtfsBoot,
    ) -> Result<Option<NtfsStream>, FileSystemError> {
        let what = format!("content of record {}", self.number);
        NtfsStream::of_parts(self.parts(kind, name)?, boot, &what)
    }

    /// Returns the value of the only attribute of a kind, if it has one and that is in a record.
    pub(super) fn value(&self, kind: u32) -> Result<Option<Vec<u8>>, FileSystemError> {
        let parts = self.all_of_kind(kind)?;
        Ok(parts.iter().find_map(|part| part.resident_value()).map(<[u8]>::to_vec))
    }
}

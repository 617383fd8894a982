//! Entries of a folder: one of 32 bytes for each file, preceded by those that its long name needs.
//!
//! | offset | bytes | of a file                      | offset | bytes | of a long name's part          |
//! |-------:|------:|--------------------------------|-------:|------:|--------------------------------|
//! |      0 |    11 | name, without its dot          |      0 |     1 | which part, the last one + 64  |
//! |     11 |     1 | attributes                     |      1 |    10 | five characters                |
//! |     12 |     1 | 8: name, 16: ending in small letters |  11 |   1 | 15                             |
//! |     13 |     5 | made: 10 ms, time, date        |     13 |     1 | checksum of the short name     |
//! |     18 |     2 | read: date                     |     14 |    12 | six characters                 |
//! |     20 |     2 | upper half of the first cluster, with 32 bits | 28 | 4 | two characters        |
//! |     22 |     4 | changed: time, date            |        |       |                                |
//! |     26 |     2 | lower half of the first cluster |       |       |                                |
//! |     28 |     4 | size                           |        |       |                                |
//!
//! With 12 and 16 bits, OS/2 and Windows NT use offset 20 for the position of a file's extended
//! attributes.

use crate::bytes::fields::{array_at, u8_at, u16_at, u32_at};
use crate::file_systems::calendar;
use crate::file_systems::file_system::{FileKind, FileStatus};
use crate::file_systems::file_time::FileTime;
use crate::file_systems::wide_names;

pub(super) const ENTRY_BYTES: u64 = 32;
const READ_ONLY: u8 = 0x01;
const VOLUME_LABEL: u8 = 0x08;
const FOLDER: u8 = 0x10;
const LONG_NAME: u8 = 0x0f;
/// The largest number of parts of a long name, of 13 characters each.
const PART_COUNT_MAX: usize = 20;
const PART_UNITS: usize = 13;
const SMALL_LETTERS_NAME: u8 = 0x08;
const SMALL_LETTERS_ENDING: u8 = 0x10;

/// A decoded entry.
pub(super) enum FatSlot {
    File(FatEntry),
    LongName(LongNamePart),
    /// A deleted file, or the label of the volume.
    Other,
}

pub(super) struct FatEntry {
    pub(super) short_name: [u8; 11],
    pub(super) is_folder: bool,
    pub(super) first_cluster: u32,
    /// 0 for a folder.
    pub(super) size: u32,
    is_read_only: bool,
    small_letters: u8,
    modified: FileTime,
    accessed: Option<FileTime>,
    created: Option<FileTime>,
}

pub(super) struct LongNamePart {
    number: u8,
    is_last: bool,
    checksum: u8,
    units: [u16; PART_UNITS],
}

impl FatSlot {
    /// Decodes an entry. `has_wide_clusters` is true if the table has 32 bits.
    pub(super) fn decode(bytes: &[u8; 32], has_wide_clusters: bool) -> Self {
        let attributes = u8_at(bytes, 11);
        match u8_at(bytes, 0) {
            0 | 0xe5 => Self::Other,
            order if attributes & 0x3f == LONG_NAME => {
                let mut units = [0; PART_UNITS];
                let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain((28..32).step_by(2));
                for (unit, place) in units.iter_mut().zip(places) {
                    *unit = u16_at(bytes, place);
                }
                let is_last = order & 0x40 != 0;
                Self::LongName(LongNamePart {
                    number: order & 0x3f,
                    is_last,
                    checksum: u8_at(bytes, 13),
                    units,
                })
            }
            _ if attributes & VOLUME_LABEL != 0 => Self::Other,
            _ => {
                let is_folder = attributes & FOLDER != 0;
                let upper = if has_wide_clusters { u32::from(u16_at(bytes, 20)) << 16 } else { 0 };
                let of_date = |date| (date != 0).then(|| calendar::dos_moment(date, 0, 0));
                let created = (u16_at(bytes, 16) != 0)
                    .then(|| calendar::dos_moment(u16_at(bytes, 16), u16_at(bytes, 14), u8_at(bytes, 13)));
                Self::File(FatEntry {
                    short_name: array_at(bytes, 0),
                    is_folder,
                    first_cluster: upper | u32::from(u16_at(bytes, 26)),
                    size: if is_folder { 0 } else { u32_at(bytes, 28) },
                    is_read_only: attributes & READ_ONLY != 0,
                    small_letters: u8_at(bytes, 12),
                    modified: calendar::dos_moment(u16_at(bytes, 24), u16_at(bytes, 22), 0),
                    accessed: of_date(u16_at(bytes, 18)),
                    created,
                })
            }
        }
    }
}

impl FatEntry {
    /// Returns the short name as shown if there is no long one.
    pub(super) fn name(&self) -> Vec<u8> {
        let (name, ending) = self.short_name.split_at_checked(8).unwrap_or_default();
        let mut shown = Self::part(name, self.small_letters & SMALL_LETTERS_NAME != 0);
        // As a first byte, 0x05 stands for the character 0xE5, which marks deleted files there.
        if let Some(first @ 0x05) = shown.first_mut() {
            *first = 0xe5;
        }
        let ending = Self::part(ending, self.small_letters & SMALL_LETTERS_ENDING != 0);
        if !ending.is_empty() {
            shown.push(b'.');
            shown.extend_from_slice(&ending);
        }
        wide_names::from_code_page(&shown)
    }

    fn part(bytes: &[u8], is_small: bool) -> Vec<u8> {
        let bytes = bytes.trim_ascii_end();
        if is_small { bytes.to_ascii_lowercase() } else { bytes.to_vec() }
    }

    pub(super) fn status(&self, allocated: u64) -> FileStatus {
        FileStatus {
            size: u64::from(self.size),
            allocated,
            modified: self.modified,
            accessed: self.accessed,
            created: self.created,
            ..entry_status(self.is_folder, self.is_read_only)
        }
    }

    fn checksum(&self) -> u8 {
        self.short_name.iter().fold(0, |sum: u8, byte| sum.rotate_right(1).wrapping_add(*byte))
    }
}

/// Returns the status that the attributes of a FAT or exFAT entry imply.
pub(crate) fn entry_status(is_folder: bool, is_read_only: bool) -> FileStatus {
    match (is_folder, is_read_only) {
        (true, _) => FileStatus::new(FileKind::Folder, 0o755, 0),
        (false, false) => FileStatus::new(FileKind::File, 0o644, 0),
        (false, true) => FileStatus::new(FileKind::File, 0o444, 0),
    }
}

/// The parts of a long name.
#[derive(Default)]
pub(super) struct LongName {
    /// In stored order: the last part of the name comes first.
    parts: Vec<[u16; PART_UNITS]>,
    /// The number of the next part.
    next: u8,
    checksum: u8,
}

impl LongName {
    pub(super) fn push(&mut self, part: &LongNamePart) {
        if part.is_last {
            *self = Self { parts: Vec::new(), next: part.number, checksum: part.checksum };
        }
        let fits = part.number > 0
            && usize::from(part.number) <= PART_COUNT_MAX
            && part.number == self.next
            && part.checksum == self.checksum;
        if !fits {
            *self = Self::default();
            return;
        }
        self.parts.push(part.units);
        self.next = part.number.saturating_sub(1);
    }

    /// Returns the name if it is complete and belongs to this entry.
    pub(super) fn finish(self, entry: &FatEntry) -> Option<Vec<u8>> {
        let is_whole = !self.parts.is_empty() && self.next == 0 && self.checksum == entry.checksum();
        let units = self.parts.iter().rev().flatten().copied().take_while(|unit| *unit != 0);
        is_whole.then(|| wide_names::from_utf16(units))
    }
}

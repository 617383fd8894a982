//! Entries of a folder have 32 bytes each. A file has three or more in a row: the file itself, the
//! position of its content, and its name in parts.
//!
//! | offset | bytes | of a file (0x85)          | offset | bytes | of where it lies (0xc0)             |
//! |-------:|------:|---------------------------|-------:|------:|-------------------------------------|
//! |      1 |     1 | how many entries follow   |      1 |     1 | bit 1: its clusters follow each other |
//! |      2 |     2 | checksum of all of them   |      3 |     1 | characters of its name              |
//! |      4 |     2 | attributes                |      8 |     8 | bytes that were ever written        |
//! |      8 |    12 | made, changed, read: date and time | 20 | 4 | first cluster                       |
//! |     20 |     2 | made, changed: 10 ms      |     24 |     8 | size                                |
//! |     22 |     3 | made, changed, read: quarters of an hour from UTC | | |                         |
//!
//! A part of a name (0xc1) has fifteen characters at 2. Other entries that belong to a file have
//! bit 5 set, and are skipped.

use crate::bytes::fields::{u8_at, u16_at, u32_at, u64_at};
use crate::file_systems::calendar;
use crate::file_systems::fat::entry_status;
use crate::file_systems::file_system::FileStatus;
use crate::file_systems::file_time::FileTime;
use crate::file_systems::wide_names;

pub(super) const ENTRY_BYTES: u64 = 32;
/// The bit of an entry's kind that marks it as in use.
pub(super) const IN_USE: u8 = 0x80;
/// The largest number of entries of a file: a byte counts those that follow the first.
pub(super) const SET_ENTRIES_MAX: usize = 256;
const FILE: u8 = 0x85;
const STREAM: u8 = 0xc0;
const NAME: u8 = 0xc1;
const NAME_UNITS: usize = 15;
const READ_ONLY: u16 = 0x01;
const FOLDER: u16 = 0x10;
/// In seconds.
const QUARTER: i64 = 15 * 60;

/// A file or a folder, decoded from all its entries.
#[derive(Debug)]
pub(super) struct EntrySet {
    pub(super) name: Vec<u8>,
    pub(super) is_folder: bool,
    pub(super) is_contiguous: bool,
    pub(super) first_cluster: u32,
    pub(super) size: u64,
    /// The bytes that were ever written. The rest reads as zeros.
    pub(super) written: u64,
    is_read_only: bool,
    created: FileTime,
    modified: FileTime,
    accessed: FileTime,
}

impl EntrySet {
    /// Returns the number of entries of the file that begins with this one; `None` if no file
    /// begins here.
    pub(super) fn count(first: &[u8; 32]) -> Option<usize> {
        (u8_at(first, 0) == FILE).then(|| usize::from(u8_at(first, 1)).saturating_add(1))
    }

    /// Decodes all entries of a file.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (entries, _) = bytes.as_chunks::<32>();
        let (Some(file), Some(stream)) = (entries.first(), entries.get(1)) else {
            return Err("a file has too few entries".into());
        };
        if u8_at(file, 0) != FILE || u8_at(stream, 0) != STREAM {
            return Err("the entries of a file have the wrong types".into());
        }
        if checksum(bytes) != u16_at(file, 2) {
            return Err("a file's entries do not match their checksum".into());
        }
        let length = usize::from(u8_at(stream, 3));
        let parts = entries.iter().skip(2).take_while(|entry| u8_at(*entry, 0) == NAME);
        let unit = |part: &[u8; 32], number: usize| u16_at(part, number.saturating_mul(2).saturating_add(2));
        let units: Vec<u16> =
            parts.flat_map(|part| (0..NAME_UNITS).map(|number| unit(part, number))).take(length).collect();
        if length == 0 || units.len() < length {
            return Err("a file's name is cut off".into());
        }
        let (size, written) = (u64_at(stream, 24), u64_at(stream, 8));
        let attributes = u16_at(file, 4);
        let is_folder = attributes & FOLDER != 0;
        if written > size {
            return Err("the written length of a file exceeds its size".into());
        }
        Ok(Self {
            name: wide_names::from_utf16(units),
            is_folder,
            is_contiguous: u8_at(stream, 1) & 2 != 0,
            first_cluster: u32_at(stream, 20),
            size,
            written,
            is_read_only: attributes & READ_ONLY != 0,
            created: moment(file, 8, u8_at(file, 20), 22),
            modified: moment(file, 12, u8_at(file, 21), 23),
            accessed: moment(file, 16, 0, 24),
        })
    }

    pub(super) fn status(&self, allocated: u64) -> FileStatus {
        FileStatus {
            size: if self.is_folder { 0 } else { self.size },
            allocated,
            modified: self.modified,
            accessed: Some(self.accessed),
            created: Some(self.created),
            ..entry_status(self.is_folder, self.is_read_only)
        }
    }
}

/// Decodes a local time and its offset from UTC. If the offset is missing, the time is taken as
/// UTC.
fn moment(file: &[u8; 32], at: usize, hundredths: u8, zone_at: usize) -> FileTime {
    let (time, date) = (u16_at(file, at), u16_at(file, at.saturating_add(2)));
    let zone = u8_at(file, zone_at);
    // Seven bits, of which the first is the sign.
    let quarters = if zone & 0x80 != 0 { i64::from((zone << 1).cast_signed() >> 1) } else { 0 };
    calendar::dos_moment(date, time, hundredths).minus_seconds(quarters.saturating_mul(QUARTER))
}

fn checksum(entries: &[u8]) -> u16 {
    let counted = entries.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    counted.fold(0_u16, |sum, (_, byte)| sum.rotate_right(1).wrapping_add(u16::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "numbers that the test itself has made")]
mod tests {
    use super::*;

    fn seal(mut entries: Vec<u8>) -> Vec<u8> {
        let sum = checksum(&entries).to_le_bytes();
        entries[2..4].copy_from_slice(&sum);
        entries
    }

    /// A file of 20 characters, changed at midnight of 2026-05-01 at UTC+2.
    fn entries() -> Vec<u8> {
        let mut entries = vec![0; 128];
        (entries[0], entries[1]) = (FILE, 3);
        let date = ((2026_u16 - 1980) << 9 | 5 << 5 | 1).to_le_bytes();
        entries[14..16].copy_from_slice(&date);
        entries[23] = 0x80 | 8;
        (entries[32], entries[33], entries[35]) = (STREAM, 3, 20);
        entries[40] = 5;
        entries[52] = 9;
        entries[56] = 7;
        for (number, unit) in "twenty characters in".encode_utf16().enumerate() {
            let at = 64 + number / 15 * 32 + 2 + number % 15 * 2;
            entries[at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        (entries[64], entries[96]) = (NAME, NAME);
        seal(entries)
    }

    #[test]
    fn a_file_is_what_its_entries_say() {
        let file = EntrySet::decode(&entries()).unwrap();
        assert_eq!(file.name, b"twenty characters in");
        assert_eq!((file.size, file.written, file.first_cluster, file.is_contiguous), (7, 5, 9, true));
        // Two hours earlier in UTC.
        assert_eq!(file.modified, FileTime::new(1_777_586_400, 0));
        assert_eq!(EntrySet::count(entries().first_chunk().unwrap()), Some(4));
    }

    #[test]
    fn what_contradicts_itself_is_no_file() {
        let changed = |at: usize, value: u8| {
            let mut entries = entries();
            entries[at] = value;
            entries
        };
        for (at, value, problem) in [
            (40, 8, "exceeds its size"),
            (35, 0, "cut off"),
            (35, 31, "cut off"),
            (96, 0xe0, "cut off"),
            (32, 0xc1, "wrong types"),
        ] {
            let refused = EntrySet::decode(&seal(changed(at, value))).unwrap_err();
            assert!(refused.contains(problem), "{at}: {refused}");
            assert!(EntrySet::decode(&changed(at, value)).is_err(), "{at}: its checksum");
        }
        assert!(EntrySet::decode(&entries()[..32]).is_err());
        assert!(EntrySet::decode(&[]).is_err());
    }

    #[test]
    fn zones_lie_on_both_sides() {
        let mut file = [0; 32];
        let utc = moment(&file, 12, 0, 23).seconds();
        for (zone, quarters) in [(0x80 | 8, 8), (0x80 | 0x7c, -4), (8, 0), (0, 0)] {
            file[23] = zone;
            assert_eq!(utc - moment(&file, 12, 0, 23).seconds(), quarters * QUARTER, "{zone:x}");
        }
    }
}

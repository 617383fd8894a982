//! Records of a folder.
//!
//! | offset | bytes | meaning                                       |
//! |-------:|------:|-----------------------------------------------|
//! |      0 |     1 | bytes of the record; 0: the sector has no more |
//! |      1 |     1 | blocks of attributes before the content       |
//! |      2 |     4 | first block                                   |
//! |     10 |     4 | bytes                                         |
//! |     18 |     7 | year from 1900, month, day, hour, minute, second, quarters of an hour from UTC |
//! |     25 |     1 | 2 folder, 128 continues in the next record     |
//! |     26 |     1 | not 0: interleaved                            |
//! |     32 |     1 | bytes of the name                             |
//! |     33 |       | name, padding to an even offset, system use |

use crate::bytes::fields::{u8_at, u32_at};
use crate::file_systems::calendar;
use crate::file_systems::file_time::FileTime;
use crate::file_systems::wide_names;

const NAME_AT: usize = 33;
const IS_FOLDER: u8 = 2;
const GOES_ON: u8 = 128;

/// The encoding of names.
pub(super) enum NameEncoding {
    Plain,
    Joliet,
    /// System-use fields begin `skipped` bytes after the name.
    RockRidge {
        skipped: u8,
    },
}

#[derive(Clone)]
pub(super) struct IsoRecord {
    pub(super) length: u8,
    pub(super) attribute_blocks: u8,
    pub(super) block: u32,
    pub(super) size: u32,
    pub(super) recorded: FileTime,
    pub(super) is_folder: bool,
    pub(super) goes_on: bool,
    pub(super) is_interleaved: bool,
    raw_name: Vec<u8>,
    pub(super) system_use: Vec<u8>,
}

impl IsoRecord {
    /// Returns `None` if no record begins here.
    pub(super) fn decode(bytes: &[u8; 256]) -> Option<Self> {
        let length = u8_at(bytes, 0);
        let record = bytes.get(..usize::from(length))?;
        let name_bytes = usize::from(u8_at(bytes, 32));
        let name_end = NAME_AT.checked_add(name_bytes)?;
        let raw_name = record.get(NAME_AT..name_end)?.to_vec();
        let padded = name_end.checked_add(name_end & 1)?;
        let flags = u8_at(bytes, 25);
        Some(Self {
            length,
            attribute_blocks: u8_at(bytes, 1),
            block: u32_at(bytes, 2),
            size: u32_at(bytes, 10),
            recorded: short_moment(bytes.get(18..25)?),
            is_folder: flags & IS_FOLDER != 0,
            goes_on: flags & GOES_ON != 0,
            is_interleaved: u8_at(bytes, 26) != 0,
            raw_name,
            system_use: record.get(padded..).unwrap_or_default().to_vec(),
        })
    }

    /// Returns true if the record stands for the folder itself or its parent.
    pub(super) fn is_special(&self) -> bool {
        matches!(self.raw_name.as_slice(), [] | [0] | [1])
    }

    /// Returns the name without regard to Rock Ridge.
    pub(super) fn name(&self, naming: &NameEncoding) -> Vec<u8> {
        if let NameEncoding::Joliet = naming {
            let units: Vec<_> =
                self.raw_name.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            let version = units.iter().rposition(|unit| *unit == u16::from(b';'));
            return wide_names::from_utf16(units.iter().take(version.unwrap_or(units.len())).copied());
        }
        let version = self.raw_name.iter().rposition(|byte| *byte == b';').unwrap_or(self.raw_name.len());
        let name = self.raw_name.get(..version).unwrap_or_default();
        let name = name.strip_suffix(b".").filter(|name| !name.is_empty()).unwrap_or(name);
        wide_names::from_code_page(&name.to_ascii_lowercase())
    }
}

/// Decodes a time of seven bytes.
pub(super) fn short_moment(bytes: &[u8]) -> FileTime {
    let number = |at: usize| i64::from(u8_at(bytes, at));
    let date = [number(0).saturating_add(1900), number(1), number(2)];
    zoned(calendar::moment(date, [number(3), number(4), number(5)], 0), u8_at(bytes, 6))
}

/// Decodes a time of seventeen bytes: sixteen digits, the last two of them hundredths of a second,
/// and the zone.
pub(super) fn long_moment(bytes: &[u8]) -> FileTime {
    let number = |from: usize, count: usize| {
        let digits = bytes.get(from..).unwrap_or_default().iter().take(count);
        digits.fold(0_i64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0').min(9)))
        })
    };
    let nanoseconds = u32::try_from(number(14, 2)).unwrap_or(0).saturating_mul(10_000_000);
    let date = [number(0, 4), number(4, 2), number(6, 2)];
    zoned(calendar::moment(date, [number(8, 2), number(10, 2), number(12, 2)], nanoseconds), u8_at(bytes, 16))
}

fn zoned(moment: FileTime, quarters: u8) -> FileTime {
    let quarters = i64::from(i8::from_le_bytes([quarters]));
    moment.minus_seconds(quarters.saturating_mul(15 * 60))
}

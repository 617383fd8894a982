//! A profile: the reads of a start, in the order of first access. It is the content of a stored
//! block, as text.
//!
//! ```text
//! varve profile 1
//! size = SIZE
//! MILLISECONDS OFFSET BYTES                              (a line for each read, in order)
//! ```
//!
//! Invariants: offsets and lengths are multiples of 4 KiB, each unit of 4 KiB is read once, times
//! never go back, and no range begins beyond the end of the disk.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use varve_block::has_kind;

use crate::PROFILE_BYTES_MAX;
use crate::first_line::later_version;
use crate::head_lines::decode_number;

const FIRST_LINE: &str = "varve profile 1";
const UNIT_BYTES: u64 = 4096;

/// One read of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRead {
    /// The time since the start.
    pub milliseconds: u64,
    /// The bytes of the disk.
    pub range: Range<u64>,
}

/// The reads of a start, each byte once and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskProfile {
    size: u64,
    reads: Vec<ProfileRead>,
}

/// The reason why a text is not a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskProfileError {
    #[error("it does not begin with {FIRST_LINE:?}: it is no profile")]
    FirstLine,
    #[error("it has version {version}, which is newer than this program: use a newer one")]
    NewerVersion { version: u32 },
    #[error("its second line is not \"size = \" and a number")]
    Size,
    #[error("it is longer than {PROFILE_BYTES_MAX} bytes")]
    TooLong,
    #[error("line {line} is invalid: {reason}")]
    Line { line: usize, reason: &'static str },
}

has_kind!(DiskProfileError: Self::NewerVersion { .. } => NewerVersion);

impl DiskProfile {
    /// Makes the profile of a disk of `size` bytes from reads in any order. Ranges grow to whole
    /// units of 4 KiB, and each unit keeps its first read. Neighbours are joined if they were read
    /// one after the other. Reads that would make the text too long are left out, the last ones
    /// first.
    #[must_use]
    pub fn from_reads(size: u64, reads: impl IntoIterator<Item = ProfileRead>) -> Self {
        let mut sorted: Vec<_> = reads.into_iter().collect();
        sorted.sort_by_key(|read| read.milliseconds);
        let (mut seen, mut kept) = (SeenRanges::default(), Vec::<ProfileRead>::new());
        for read in sorted {
            let start = read.range.start / UNIT_BYTES;
            let end = read.range.end.min(size).div_ceil(UNIT_BYTES);
            for units in seen.add(start..end) {
                let range = units.start.saturating_mul(UNIT_BYTES)..units.end.saturating_mul(UNIT_BYTES);
                match kept.last_mut() {
                    Some(last) if last.range.end == range.start => last.range.end = range.end,
                    _ => kept.push(ProfileRead { milliseconds: read.milliseconds, range }),
                }
            }
        }
        let mut bytes = 64_usize;
        let fits = |read: &ProfileRead| {
            bytes = bytes.saturating_add(line_of(read).len());
            bytes <= PROFILE_BYTES_MAX
        };
        let reads = kept.into_iter().take_while(fits).collect();
        Self { size, reads }
    }

    /// Returns the reads of both profiles. A range that both have keeps its earlier time.
    #[must_use]
    pub fn merged_with(&self, other: &Self) -> Self {
        Self::from_reads(self.size.max(other.size), self.reads.iter().chain(&other.reads).cloned())
    }

    /// Returns the size of the disk in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the reads, in the order of first access.
    #[must_use]
    pub fn reads(&self) -> &[ProfileRead] {
        &self.reads
    }

    /// Writes the profile.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nsize = {}\n", self.size);
        self.reads.iter().for_each(|read| text.push_str(&line_of(read)));
        text
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// [`DiskProfileError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DiskProfileError> {
        if bytes.len() > PROFILE_BYTES_MAX {
            return Err(DiskProfileError::TooLong);
        }
        let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_suffix('\n'));
        let text = text.ok_or(DiskProfileError::FirstLine)?;
        if let Some(version) = later_version(text, FIRST_LINE) {
            return Err(DiskProfileError::NewerVersion { version });
        }
        let mut lines = text.split('\n');
        if lines.next() != Some(FIRST_LINE) {
            return Err(DiskProfileError::FirstLine);
        }
        let size = lines.next().and_then(|line| decode_number(line.strip_prefix("size = ")?));
        let size = size.ok_or(DiskProfileError::Size)?;
        let (mut seen, mut reads) = (SeenRanges::default(), Vec::new());
        let mut earliest = 0;
        for (line, text) in (3..).zip(lines) {
            let wrong = |reason| DiskProfileError::Line { line, reason };
            let read = parse_read(text).ok_or(wrong("it is not three numbers"))?;
            let units = read.range.start / UNIT_BYTES..read.range.end / UNIT_BYTES;
            if [read.range.start, read.range.end].iter().any(|at| at % UNIT_BYTES != 0) {
                return Err(wrong("the range is not whole units of 4096 bytes"));
            }
            if units.is_empty() || read.range.start >= size || units.end > size.div_ceil(UNIT_BYTES) {
                return Err(wrong("the range is empty, or ends beyond the disk"));
            }
            if read.milliseconds < earliest {
                return Err(wrong("the time is before that of an earlier line"));
            }
            if seen.add(units.clone()) != [units] {
                return Err(wrong("an earlier line has a part of the range"));
            }
            earliest = read.milliseconds;
            reads.push(read);
        }
        Ok(Self { size, reads })
    }
}

fn line_of(read: &ProfileRead) -> String {
    let mut line = String::new();
    let bytes = read.range.end.saturating_sub(read.range.start);
    // Writing into a string cannot fail.
    let _ = writeln!(line, "{} {} {bytes}", read.milliseconds, read.range.start);
    line
}

fn parse_read(line: &str) -> Option<ProfileRead> {
    let mut words = line.split(' ').map(decode_number::<u64>);
    let mut number = || words.next().flatten();
    let (milliseconds, offset, bytes) = (number()?, number()?, number()?);
    let range = offset..offset.checked_add(bytes)?;
    words.next().is_none().then_some(ProfileRead { milliseconds, range })
}

/// Ranges that were added, as starts and ends. They do not touch.
#[derive(Debug, Default)]
struct SeenRanges(BTreeMap<u64, u64>);

impl SeenRanges {
    /// Adds a range, and returns its parts that were not there, in order.
    fn add(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back().filter(|(_, end)| **end >= range.start);
        let start = before.map_or(range.start, |(start, _)| *start);
        let touched: Vec<(u64, u64)> =
            self.0.range(start..=range.end.max(start)).map(|(start, end)| (*start, *end)).collect();
        let (mut new, mut position, mut end) = (Vec::new(), range.start, range.end);
        for (seen_start, seen_end) in touched {
            if position < seen_start {
                new.push(position..seen_start.min(range.end));
            }
            position = position.max(seen_end);
            end = end.max(seen_end);
            self.0.remove(&seen_start);
        }
        if position < range.end {
            new.push(position..range.end);
        }
        if start < end {
            self.0.insert(start, end);
        }
        new.retain(|part| !part.is_empty());
        new
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn read(milliseconds: u64, units: Range<u64>) -> ProfileRead {
        ProfileRead { milliseconds, range: units.start * UNIT_BYTES..units.end * UNIT_BYTES }
    }

    #[test]
    fn reads_become_lines() {
        let reads = [
            ProfileRead { milliseconds: 5, range: 1000..5000 },
            ProfileRead { milliseconds: 0, range: 0..512 },
            ProfileRead { milliseconds: 9, range: 4096..12_289 },
            ProfileRead { milliseconds: 9, range: 99_999..200_000 },
        ];
        let profile = DiskProfile::from_reads(100_000, reads);
        assert_eq!(profile.to_text(), "varve profile 1\nsize = 100000\n0 0 16384\n9 98304 4096\n");
        assert_eq!(DiskProfile::parse(profile.to_text().as_bytes()), Ok(profile));
    }

    #[test]
    fn merging_keeps_the_earliest() {
        let one = DiskProfile::from_reads(1 << 20, [read(1, 0..4), read(7, 10..12)]);
        let two = DiskProfile::from_reads(1 << 20, [read(3, 2..6), read(4, 11..12)]);
        let merged = one.merged_with(&two);
        assert_eq!(
            merged,
            DiskProfile::from_reads(1 << 20, [read(1, 0..6), read(4, 11..12), read(7, 10..11)])
        );
        assert_eq!(merged.reads().len(), 3);
    }

    #[test]
    fn a_profile_fits_its_limit() {
        let reads = (0..100_000).map(|number| read(number, number * 2..number * 2 + 1));
        let profile = DiskProfile::from_reads(1 << 40, reads);
        let text = profile.to_text();
        assert!(text.len() <= PROFILE_BYTES_MAX && profile.reads().len() > 50_000);
        assert_eq!(DiskProfile::parse(text.as_bytes()), Ok(profile));
        assert_eq!(DiskProfile::parse(&[b' '; PROFILE_BYTES_MAX + 1]), Err(DiskProfileError::TooLong));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, says) in [
            ("", "varve profile 1"),
            ("varve profile 2\nsize = 1\n", "newer than this program"),
            ("varve profile 1\nsize = x\n", "second line"),
            ("varve profile 1\nsize = 8192\n0 0\n", "line 3 is invalid: it is not three"),
            ("varve profile 1\nsize = 8192\n0 0 4096 1\n", "three numbers"),
            ("varve profile 1\nsize = 8192\n0 1 4096\n", "whole units"),
            ("varve profile 1\nsize = 8192\n0 0 0\n", "is empty"),
            ("varve profile 1\nsize = 8192\n0 8192 4096\n", "beyond the disk"),
            ("varve profile 1\nsize = 8192\n0 18446744073709547520 4096\n", "three numbers"),
            ("varve profile 1\nsize = 8192\n5 0 4096\n4 4096 4096\n", "line 4 is invalid: the time"),
            ("varve profile 1\nsize = 8192\n5 0 8192\n6 4096 4096\n", "a part of the range"),
        ] {
            let error = DiskProfile::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{error} is not {says}");
        }
    }

    proptest! {
        #[test]
        fn each_unit_is_read_once_and_at_its_first_time(
            reads in proptest::collection::vec((0_u64..20, 0_u64..60, 0_u64..9), 0..40),
        ) {
            let reads: Vec<_> = reads.into_iter().map(|(time, start, count)| read(time, start..start + count)).collect();
            let profile = DiskProfile::from_reads(1 << 30, reads.clone());
            let units = |read: &ProfileRead| (read.range.start / UNIT_BYTES..read.range.end / UNIT_BYTES).collect::<Vec<_>>();
            let listed: Vec<_> = profile.reads().iter().flat_map(units).collect();
            let expected: BTreeSet<_> = reads.iter().flat_map(units).collect();
            prop_assert_eq!(listed.len(), expected.len());
            prop_assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
            for unit in profile.reads() {
                let first = reads.iter().filter(|read| read.range.contains(&unit.range.start)).map(|read| read.milliseconds).min();
                prop_assert_eq!(first, Some(unit.milliseconds));
            }
            prop_assert_eq!(DiskProfile::parse(profile.to_text().as_bytes()), Ok(profile));
        }

        #[test]
        fn no_bytes_panic(text in "([0-9 \n]{0,9}(4096|8192)?){0,9}") {
            let text = format!("varve profile 1\nsize = 65536\n{text}\n");
            if let Ok(profile) = DiskProfile::parse(text.as_bytes()) {
                prop_assert_eq!(profile.to_text(), text);
            }
        }
    }
}

//! The saved form of an index of names. Little-endian. It is written and read in parts, so that
//! memory never holds it as a whole beside the index.
//!
//! | field    | bytes | meaning                                                                       |
//! |----------|------:|-------------------------------------------------------------------------------|
//! | magic    |     8 | `varveNX2`                                                                    |
//! | count    |     4 | the number of series                                                          |
//! | series * |       | each: host and name (texts), has_gaps (1 byte), snapshots and folders (lists) |
//! | snapshot |    24 | id (16), time (8): nanoseconds since 1970                                     |
//! | folder   |       | path (text), names (text: see `packed_names.rs`)                              |
//!
//! A text begins with its length, and a list with the number of its elements, in 4 bytes each.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read, Write};

use varve_block::to_usize;
use varve_world::Timestamp;

use super::folder_names::IndexedFolder;
use super::{INDEX_BYTES_MAX, IndexedSeries, IndexedSnapshot, NameIndex, folder_bytes};
use crate::catalog::snapshot_id::SnapshotId;

const MAGIC: [u8; 8] = *b"varveNX2";
/// Memory is reserved for so many bytes of a text at once.
const RESERVED_BYTES: u64 = 64 << 10;

impl NameIndex {
    /// Writes the saved form.
    ///
    /// # Errors
    /// The errors of `into`.
    pub fn write(&self, into: &mut dyn Write) -> io::Result<()> {
        into.write_all(&MAGIC)?;
        write_length(into, self.series.len())?;
        for ((host, name), series) in &self.series {
            write_text(into, host.as_bytes())?;
            write_text(into, name.as_bytes())?;
            into.write_all(&[u8::from(series.has_gaps)])?;
            write_length(into, series.snapshots.len())?;
            for snapshot in &series.snapshots {
                into.write_all(&snapshot.id.0)?;
                into.write_all(&snapshot.time.0.to_le_bytes())?;
            }
            write_length(into, series.folders.len())?;
            for (path, names) in &series.folders {
                write_text(into, path)?;
                write_text(into, names.packed())?;
            }
        }
        Ok(())
    }

    /// Reads the saved form; `None` if it is damaged, unreadable, larger than an index may be, or
    /// of another version. The index is then made anew.
    #[must_use]
    pub fn read(from: &mut dyn Read) -> Option<Self> {
        let mut left = SavedNamesReader { from, bytes_left: INDEX_BYTES_MAX };
        if left.array()? != MAGIC {
            return None;
        }
        let mut index = Self::default();
        for _ in 0..left.number()? {
            let host = String::from_utf8(left.text()?).ok()?;
            let name = String::from_utf8(left.text()?).ok()?;
            let series = left.series()?;
            index.series.insert((host, name), series);
        }
        Some(index)
    }
}

fn write_length(into: &mut dyn Write, length: usize) -> io::Result<()> {
    into.write_all(&u32::try_from(length).map_err(io::Error::other)?.to_le_bytes())
}

fn write_text(into: &mut dyn Write, text: &[u8]) -> io::Result<()> {
    write_length(into, text.len())?;
    into.write_all(text)
}

struct SavedNamesReader<'a> {
    from: &'a mut dyn Read,
    /// The memory that the index may still take.
    bytes_left: usize,
}

impl SavedNamesReader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut array = [0; N];
        self.from.read_exact(&mut array).ok()?;
        Some(array)
    }

    fn number(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a text. Memory grows only with bytes that are there.
    fn text(&mut self) -> Option<Vec<u8>> {
        let length = u64::from(self.number()?);
        let mut text = Vec::with_capacity(to_usize(length.min(RESERVED_BYTES)));
        self.from.take(length).read_to_end(&mut text).ok()?;
        (text.len() as u64 == length).then_some(text)
    }

    fn series(&mut self) -> Option<IndexedSeries> {
        let [gaps] = self.array()?;
        let mut series = IndexedSeries { has_gaps: gaps != 0, ..IndexedSeries::default() };
        let count = self.number()?;
        for _ in 0..count {
            let id = SnapshotId(self.array()?);
            series.snapshots.push(IndexedSnapshot { id, time: Timestamp(i64::from_le_bytes(self.array()?)) });
        }
        for _ in 0..self.number()? {
            let (path, packed) = (self.text()?, self.text()?);
            let names = IndexedFolder::from_packed(packed.into(), count)?;
            self.bytes_left = self.bytes_left.checked_sub(folder_bytes(&path, &names))?;
            series.folders.insert(path.into(), names);
        }
        Some(series)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> NameIndex {
        let mut names = IndexedFolder::default();
        names.apply([&b"a"[..], b"b"], 0, true);
        names.apply([&b"b"[..]], 1, true);
        names.apply([&b"a"[..], b"b"], 2, true);
        let snapshot =
            |number: u8| IndexedSnapshot { time: Timestamp(i64::from(number)), id: SnapshotId([number; 16]) };
        let series = IndexedSeries {
            snapshots: (0..3).map(snapshot).collect(),
            folders: [(Box::default(), names.clone()), (b"docs"[..].into(), names)].into(),
            has_gaps: true,
        };
        let key = |name: &str| ("web1".to_owned(), name.to_owned());
        NameIndex { series: [(key("home"), series.clone()), (key("etc"), series)].into() }
    }

    fn written(index: &NameIndex) -> Vec<u8> {
        let mut bytes = Vec::new();
        index.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_saved_index_is_read_again() {
        let index = sample();
        assert_eq!(NameIndex::read(&mut written(&index).as_slice()), Some(index));
        assert_eq!(NameIndex::read(&mut &b"varveNX1"[..]), None);
        assert_eq!(NameIndex::read(&mut &b"varveNX1\0\0\0\0"[..]), None);
    }

    proptest! {
        #[test]
        fn damage_is_refused_or_harmless(at: prop::sample::Index, byte: u8, length: prop::sample::Index) {
            let mut bytes = written(&sample());
            let count = bytes.len();
            *at.get_mut(&mut bytes) = byte;
            bytes.truncate(length.index(count.saturating_add(1)));
            // An index that was read can be searched, and continued.
            if let Some(mut index) = NameIndex::read(&mut bytes.as_slice()) {
                index.find("a", None, 10, &|_, _| true, &|_| true);
                for names in index.series.values_mut().flat_map(|series| series.folders.values_mut()) {
                    names.apply([&b"b"[..]], 3, true);
                }
            }
        }
    }
}

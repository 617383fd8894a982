//! The saved form of an index of names. Little-endian.
//!
//! | field    | bytes | meaning                                                                        |
//! |----------|------:|--------------------------------------------------------------------------------|
//! | magic    |     8 | `varveNX1`                                                                     |
//! | series * |       | each: host and name (texts), has_gaps (1 byte), snapshots and folders (lists)  |
//! | snapshot |    24 | id (16), time (8): nanoseconds since 1970                                      |
//! | folder   |       | path (text), names (text, a zero byte behind each), counts and spans (lists)   |
//! | count    |     4 | the spans of a name; no counts if each name has one                            |
//! | span     |     8 | first and last snapshot, by number; the last is `0xffffffff` while it goes on  |
//!
//! A text begins with its length, and a list with the number of its elements, in 4 bytes each. The
//! list of series ends with the file.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_world::Timestamp;

use super::folder_names::{IndexedFolder, NameSpan, OPEN};
use super::{IndexedSeries, IndexedSnapshot, NameIndex};
use crate::catalog::snapshot_id::SnapshotId;

const MAGIC: [u8; 8] = *b"varveNX1";

impl NameIndex {
    /// The saved form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for ((host, name), series) in &self.series {
            push_text(&mut bytes, host.as_bytes());
            push_text(&mut bytes, name.as_bytes());
            bytes.push(u8::from(series.has_gaps));
            push_length(&mut bytes, series.snapshots.len());
            for snapshot in &series.snapshots {
                bytes.extend_from_slice(&snapshot.id.0);
                bytes.extend_from_slice(&snapshot.time.0.to_le_bytes());
            }
            push_length(&mut bytes, series.folders.len());
            for (path, names) in &series.folders {
                let (text, counts, spans) = names.parts();
                push_text(&mut bytes, path);
                push_text(&mut bytes, text);
                push_length(&mut bytes, counts.len());
                counts.iter().for_each(|count| bytes.extend_from_slice(&count.to_le_bytes()));
                push_length(&mut bytes, spans.len());
                for span in spans {
                    bytes.extend_from_slice(&span.first.to_le_bytes());
                    bytes.extend_from_slice(&span.last.to_le_bytes());
                }
            }
        }
        bytes
    }

    /// Reads the saved form; `None` if it is damaged or of another version. The index is then made
    /// anew.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut left = SavedNamesReader(bytes.strip_prefix(&MAGIC)?);
        let mut index = Self::default();
        while !left.0.is_empty() {
            let host = String::from_utf8(left.text()?.to_vec()).ok()?;
            let name = String::from_utf8(left.text()?.to_vec()).ok()?;
            let series = left.series()?;
            index.series.insert((host, name), series);
        }
        Some(index)
    }
}

/// A length. The limit of an index is far below 4 GiB.
fn push_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    push_length(bytes, text.len());
    bytes.extend_from_slice(text);
}

struct SavedNamesReader<'a>(&'a [u8]);

impl<'a> SavedNamesReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// Reads a list. Memory grows only with bytes that are there.
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(element(self)?);
        }
        Some(list)
    }

    fn series(&mut self) -> Option<IndexedSeries> {
        let [gaps] = self.array()?;
        let snapshots = self.list(|left| {
            let id = SnapshotId(left.array()?);
            Some(IndexedSnapshot { id, time: Timestamp(i64::from_le_bytes(left.array()?)) })
        })?;
        let count = u32::try_from(snapshots.len()).ok()?;
        let folders = self.list(|left| {
            let (path, text) = (left.text()?.to_vec(), left.text()?.to_vec());
            let counts = left.list(Self::number)?;
            let spans = left.list(|left| Some(NameSpan { first: left.number()?, last: left.number()? }))?;
            let is_known = |number: u32| number < count;
            let are_known =
                |span: &NameSpan| is_known(span.first) && (span.last == OPEN || is_known(span.last));
            let names = IndexedFolder::from_parts(text, counts, spans.clone())?;
            spans.iter().all(are_known).then_some((path, names))
        })?;
        Some(IndexedSeries { snapshots, folders: folders.into_iter().collect(), has_gaps: gaps != 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> NameIndex {
        let mut names = IndexedFolder::default();
        names.apply(&[b"a".to_vec(), b"b".to_vec()], 0, true);
        names.apply(&[b"b".to_vec()], 1, true);
        names.apply(&[b"a".to_vec(), b"b".to_vec()], 2, true);
        let snapshot =
            |number: u8| IndexedSnapshot { time: Timestamp(i64::from(number)), id: SnapshotId([number; 16]) };
        let series = IndexedSeries {
            snapshots: (0..3).map(snapshot).collect(),
            folders: [(Vec::new(), names.clone()), (b"docs".to_vec(), names)].into(),
            has_gaps: true,
        };
        let key = |name: &str| ("web1".to_owned(), name.to_owned());
        NameIndex { series: [(key("home"), series.clone()), (key("etc"), series)].into() }
    }

    #[test]
    fn a_saved_index_is_read_again() {
        let index = sample();
        assert_eq!(NameIndex::decode(&index.encode()), Some(index));
        assert_eq!(NameIndex::decode(b"varveNX2"), None);
    }

    proptest! {
        #[test]
        fn damage_is_refused_or_harmless(at: prop::sample::Index, byte: u8, length: prop::sample::Index) {
            let mut bytes = sample().encode();
            let count = bytes.len();
            *at.get_mut(&mut bytes) = byte;
            bytes.truncate(length.index(count.saturating_add(1)));
            // An index that was read can be searched.
            if let Some(index) = NameIndex::decode(&bytes) {
                index.find("a", None, 10, &|_, _| true, &|_| true);
                prop_assert!(index.bytes() <= count);
            }
        }
    }
}

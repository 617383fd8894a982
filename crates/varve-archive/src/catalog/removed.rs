//! The snapshots that were forgotten: the trash, and the ids of those that are gone. Both are lists
//! that a final root of the catalog leads to. `docs/internals/format.md`, section 5.
//!
//! An entry of the trash:
//!
//! | number | field        | value                                                                                      |
//! |-------:|--------------|--------------------------------------------------------------------------------------------|
//! |      1 | snapshot     | the fields of the snapshot                                                                 |
//! |      2 | forgotten    | signed varint: the time when it was forgotten, nanoseconds since 1970-01-01 UTC            |
//! |      3 | forgotten_by | UTF-8: the id of the key that forgot it; empty if that is not known                        |
//! |      4 | undo_until   | signed varint: from this time on, it may be removed for ever                               |
//!
//! The list of those that are gone is their ids of 16 bytes, in ascending order.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::io;

use varve_block::{BlockKind, BlockStore, PutError, has_kind};
use varve_content::{FieldError, FieldReader, FieldWriter, ReadRecordsError, Records, UnknownFields, frame};
use varve_tree::{ContentWriter, Cutting, Entry, StreamError, StreamPiece, TreeReader};
use varve_world::Timestamp;

use crate::catalog::snapshot::{DecodeSnapshotError, Snapshot};
use crate::catalog::snapshot_id::SnapshotId;

const ID_BYTES: usize = 16;
/// Upper bound on the ids of snapshots that are gone. A reader holds about 50 bytes for each.
const GONE_COUNT_MAX: u64 = 1 << 22;

/// A snapshot in the trash: it is not listed, but everything that it leads to is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct TrashedSnapshot {
    pub snapshot: Snapshot,
    /// The time at which it was forgotten.
    pub forgotten: Timestamp,
    /// The id of the key that forgot it; empty if that is not known.
    pub forgotten_by: String,
    /// From this time on, it may be removed for ever.
    pub undo_until: Timestamp,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

/// Why the lists of forgotten snapshots were not readable to their end.
#[derive(Debug, thiserror::Error)]
pub enum ReadRemovedError {
    #[error("the list of the trash cannot be read")]
    Trash(#[from] ReadRecordsError),
    #[error("an entry of the trash is malformed")]
    Field(#[from] FieldError),
    #[error("{0}")]
    Snapshot(#[from] DecodeSnapshotError),
    /// An entry of the trash lacks its snapshot.
    #[error("an entry of the trash without a snapshot")]
    NoSnapshot,
    #[error("the list of the snapshots that are gone cannot be read")]
    Gone(#[from] StreamError),
    /// The list holds incomplete ids, is not in order, or is longer than any that a writer writes.
    #[error("the list of the snapshots that are gone is malformed")]
    GoneMalformed,
}

has_kind!(ReadRemovedError: Self::NoSnapshot | Self::GoneMalformed => Damage);

/// The entries of the two lists in a root.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RemovedLists {
    pub(crate) trash: Option<Entry>,
    pub(crate) gone: Option<Entry>,
}

/// The snapshots that were forgotten.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RemovedSnapshots {
    /// The snapshots that can come back, in the order in which they were forgotten.
    pub(crate) trash: Vec<TrashedSnapshot>,
    /// The snapshots that cannot come back.
    pub(crate) gone: BTreeSet<SnapshotId>,
}

impl RemovedLists {
    /// Reads the lists. The result holds all readable entries; the error is the first one.
    pub(crate) fn read(&self, blocks: &dyn BlockStore) -> (RemovedSnapshots, Result<(), ReadRemovedError>) {
        let mut removed = RemovedSnapshots::default();
        let read_trash = self.trash.as_ref().map_or(Ok(()), |entry| removed.read_trash(blocks, entry));
        let read_gone = self.gone.as_ref().map_or(Ok(()), |entry| removed.read_gone(blocks, entry));
        (removed, read_trash.and(read_gone))
    }
}

impl RemovedSnapshots {
    /// Returns whether no snapshot was ever forgotten.
    pub(crate) fn is_empty(&self) -> bool {
        self.trash.is_empty() && self.gone.is_empty()
    }

    /// Stores the lists.
    pub(crate) fn write(&self, blocks: &dyn BlockStore) -> Result<RemovedLists, PutError> {
        let mut lists = RemovedLists::default();
        if !self.trash.is_empty() {
            let mut list = ContentWriter::new(blocks, BlockKind::Data, Cutting::DIRECTORY);
            let mut record = Vec::new();
            for trashed in &self.trash {
                record.clear();
                frame(&trashed.encode(), &mut record);
                list.write(&record)?;
            }
            lists.trash = Some(list.finish()?);
        }
        if !self.gone.is_empty() {
            let mut list = ContentWriter::new(blocks, BlockKind::Data, Cutting::DIRECTORY);
            self.gone.iter().try_for_each(|id| list.write(&id.0))?;
            lists.gone = Some(list.finish()?);
        }
        Ok(lists)
    }

    fn read_trash(&mut self, blocks: &dyn BlockStore, entry: &Entry) -> Result<(), ReadRemovedError> {
        let mut records = Records::new(blocks, entry);
        let mut whole = Ok(());
        while let Some(record) = records.next() {
            // A malformed entry says nothing about the entries after it.
            match TrashedSnapshot::decode(record?, blocks.score_bytes()) {
                Ok(trashed) => self.trash.push(trashed),
                Err(error) => whole = whole.and(Err(error)),
            }
        }
        whole
    }

    fn read_gone(&mut self, blocks: &dyn BlockStore, entry: &Entry) -> Result<(), ReadRemovedError> {
        if entry.size() > GONE_COUNT_MAX.saturating_mul(ID_BYTES as u64) {
            return Err(ReadRemovedError::GoneMalformed);
        }
        let mut ids = AscendingIds { partial: Vec::new(), gone: &mut self.gone };
        let streamed = TreeReader::new(blocks, entry).stream(&mut |piece| match piece {
            StreamPiece::Bytes(bytes) => bytes.iter().try_for_each(|byte| ids.push(*byte)),
            StreamPiece::Zeros(count) => (0..count).try_for_each(|_| ids.push(0)),
        });
        match streamed {
            Ok(()) if ids.partial.is_empty() => Ok(()),
            Ok(()) | Err(StreamError::Write { .. }) => Err(ReadRemovedError::GoneMalformed),
            Err(error) => Err(error.into()),
        }
    }
}

/// Joins bytes into ids, and checks that each id is greater than the one before it.
struct AscendingIds<'a> {
    partial: Vec<u8>,
    gone: &'a mut BTreeSet<SnapshotId>,
}

impl AscendingIds<'_> {
    fn push(&mut self, byte: u8) -> io::Result<()> {
        self.partial.push(byte);
        let Ok(id) = <[u8; ID_BYTES]>::try_from(self.partial.as_slice()).map(SnapshotId) else {
            return Ok(());
        };
        self.partial.clear();
        if self.gone.last().is_some_and(|last| *last >= id) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.gone.insert(id);
        Ok(())
    }
}

impl TrashedSnapshot {
    /// Encodes the fields of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let by = (!self.forgotten_by.is_empty()).then_some(self.forgotten_by.as_bytes());
        FieldWriter::new()
            .bytes(1, &self.snapshot.encode())
            .signed(2, self.forgotten.0)
            .optional_bytes(3, by)
            .signed(4, self.undo_until.0)
            .finish_with(&self.unknown)
    }

    /// Decodes the fields of a record.
    ///
    /// # Errors
    /// [`ReadRemovedError`].
    pub(crate) fn decode(fields: &[u8], score_bytes: usize) -> Result<Self, ReadRemovedError> {
        let (mut snapshot, mut forgotten_by) = (None, String::new());
        let (mut forgotten, mut undo_until) = (Timestamp(0), Timestamp(0));
        let mut unknown = UnknownFields::default();
        for field in FieldReader::new(fields) {
            let field = field?;
            match field.number {
                1 => snapshot = Some(Snapshot::decode(field.bytes, score_bytes)?),
                2 => forgotten = Timestamp(field.signed()?),
                3 => forgotten_by = field.text()?.into(),
                4 => undo_until = Timestamp(field.signed()?),
                _ => unknown.keep(&field),
            }
        }
        let snapshot = snapshot.ok_or(ReadRemovedError::NoSnapshot)?;
        Ok(Self { snapshot, forgotten, forgotten_by, undo_until, unknown })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use varve_block::{BlockName, BlockType, MemoryBlockStore};
    use varve_tree::{Visit, walk};

    use super::*;
    use crate::catalog::snapshot::tests::snapshot;

    pub(crate) fn trashed(number: u8, undo_until: i64) -> TrashedSnapshot {
        TrashedSnapshot {
            snapshot: snapshot(number, "web", number.into()),
            forgotten: Timestamp(undo_until - 7),
            forgotten_by: if number.is_multiple_of(2) { "0011223344556677".into() } else { String::new() },
            undo_until: Timestamp(undo_until),
            unknown: UnknownFields::default(),
        }
    }

    fn removed(count: u8) -> RemovedSnapshots {
        RemovedSnapshots {
            trash: (0..count).map(|number| trashed(number, 100)).collect(),
            gone: (0..u16::from(count) * 20).map(|number| id(u128::from(number) << 90)).collect(),
        }
    }

    fn id(number: u128) -> SnapshotId {
        SnapshotId(number.to_be_bytes())
    }

    #[test]
    fn the_lists_survive_the_round_trip() {
        let store = MemoryBlockStore::new();
        assert_eq!(RemovedSnapshots::default().write(&store).unwrap(), RemovedLists::default());
        for count in [1, 7, 200] {
            let lists = removed(count).write(&store).unwrap();
            let (read, whole) = lists.read(&store);
            assert_eq!(read, removed(count));
            whole.unwrap();
        }
    }

    #[test]
    fn an_unreadable_list_is_an_error_and_the_rest_is_read() {
        let lists_of = |store: &MemoryBlockStore| removed(200).write(store).unwrap();
        let last_leaf = |store: &MemoryBlockStore, entry: &Entry| -> BlockName {
            let mut last = None;
            walk(store, entry, &mut |node| {
                last = Some(node.name).filter(|name| name.block_type == BlockType::DATA).or(last);
                Visit::Descend
            });
            last.unwrap()
        };
        for is_trash in [true, false] {
            let store = MemoryBlockStore::new();
            let lists = lists_of(&store);
            let entry = if is_trash { &lists.trash } else { &lists.gone };
            assert!(store.lose(&last_leaf(&store, &entry.unwrap())));
            let (read, whole) = lists.read(&store);
            let whole = whole.unwrap_err();
            assert_eq!(is_trash, matches!(whole, ReadRemovedError::Trash(_)), "{whole:?}");
            assert_eq!(read.gone.len() == 4000, is_trash);
            assert_eq!(read.trash.len() == 200, !is_trash);
            assert!(read.gone.len() > 100, "the ids before the damage are known");
        }
    }

    #[test]
    fn malformed_lists_are_errors() {
        let store = MemoryBlockStore::new();
        let list = |bytes: &[u8]| {
            let mut list = ContentWriter::new(&store, BlockKind::Data, Cutting::DIRECTORY);
            list.write(bytes).unwrap();
            Some(list.finish().unwrap())
        };
        let (one, two) = (id(1).0, id(2).0);
        for bytes in [&[two, one].concat()[..], &[one, one].concat(), &one[..15], &[0; 32]] {
            let (read, whole) = RemovedLists { trash: None, gone: list(bytes) }.read(&store);
            assert!(matches!(whole, Err(ReadRemovedError::GoneMalformed)), "{bytes:?}");
            assert!(read.gone.len() <= 1);
        }
        let mut records = Vec::new();
        frame(&FieldWriter::new().signed(2, 1).finish(), &mut records);
        frame(&trashed(3, 9).encode(), &mut records);
        let (read, whole) = RemovedLists { trash: list(&records), gone: list(&one) }.read(&store);
        assert!(matches!(whole, Err(ReadRemovedError::NoSnapshot)));
        assert_eq!((read.trash, read.gone.len()), (vec![trashed(3, 9)], 1));
    }

    #[test]
    fn fields_of_later_versions_stay() {
        let later = FieldWriter::new().bytes(9, b"later").finish();
        let record = [trashed(2, 5).encode(), later].concat();
        assert_eq!(TrashedSnapshot::decode(&record, 32).unwrap().encode(), record);
    }

    proptest! {
        #[test]
        fn no_record_panics(place in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
            let mut fields = trashed(2, 5).encode();
            let place = place % fields.len();
            fields[place] ^= byte;
            fields.truncate(cut % (fields.len() + 1));
            drop(TrashedSnapshot::decode(&fields, 32));
        }
    }
}

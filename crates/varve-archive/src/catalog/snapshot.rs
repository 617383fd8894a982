//! A snapshot as a record of the catalog: `docs/internals/format.md`, section 5.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_block::has_kind;
use varve_content::image::SectorSizes;
use varve_content::{
    DecodeNodeError, Field, FieldError, FieldReader, FieldWriter, Node, UnknownFields, is_component,
};
use varve_store::Origin;
use varve_tree::{DecodeEntryError, Entry};
use varve_world::Timestamp;

use crate::catalog::hold::Hold;
use crate::catalog::left_out_record::{LeftOutRecord, RECORD_COUNT_MAX};
use crate::catalog::machine::{Machine, MachineDrive};
use crate::catalog::origin_record::OriginRecord;
use crate::catalog::snapshot_id::SnapshotId;

const KIND: u8 = 4;

/// The contents of a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub enum SnapshotContent {
    /// A disk image, byte for byte.
    Image(Entry),
    /// A folder, by its root node.
    Folder(Box<Node>),
}

/// An image or a folder at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// The name, which stays the same from snapshot to snapshot.
    pub name: String,
    /// The time of the source that the snapshot shows.
    pub time: Timestamp,
    pub content: SnapshotContent,
    /// The path of the source.
    pub source: Vec<u8>,
    /// The name of the host that was archived.
    pub host: String,
    /// `KEY=VALUE`, chosen by the user.
    pub tags: Vec<String>,
    /// Bytes of the image, or of all files.
    pub size: u64,
    /// The number of nodes in a folder; 0 for an image.
    pub file_count: u64,
    /// For a folder: the number of nodes that were unreadable, or that changed while they were
    /// read. For an image: the number of volumes whose files cannot be shown exactly, plus one if
    /// the image changed while it was read.
    pub problem_count: u64,
    /// The growth of the store. `None` if the block store does not report it.
    pub growth: Option<Growth>,
    /// The time that it took, in nanoseconds.
    pub elapsed: u64,
    /// The machine whose disk it is, if known.
    pub machine: Option<Machine>,
    /// The reasons for which it must not be forgotten.
    pub holds: Vec<Hold>,
    /// It must not be forgotten before this time.
    pub keep_until: Option<Timestamp>,
    /// The parts of an image that were archived as zeros, and those that were kept although they
    /// were to be left out.
    pub left_out: Vec<LeftOutRecord>,
    /// A line of text by the user; may be empty.
    pub comment: String,
    /// Set for a snapshot of a single file: the name of that file, which is the only node in the
    /// folder.
    pub file: Option<Vec<u8>>,
    /// The key that it was added with. `None` if that is not known: the store is not encrypted, or
    /// an earlier version of this program added it.
    pub origin: Option<OriginRecord>,
    /// The sizes of the sectors of the disk, if the source is a disk that reports them.
    pub sectors: Option<SectorSizes>,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

/// The growth of a store by one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Bytes in blocks that the store did not have.
    pub new_bytes: u64,
    /// Bytes by which the log grew.
    pub stored_bytes: u64,
}

/// Why a record of the catalog is not a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum DecodeSnapshotError {
    #[error("a snapshot's record is malformed")]
    Field(#[from] FieldError),
    /// The image's entry is malformed.
    #[error("a snapshot's image is malformed")]
    Entry(#[from] DecodeEntryError),
    /// The root node is malformed.
    #[error("a snapshot's root is malformed")]
    Root(#[from] DecodeNodeError),
    /// A mandatory field is missing.
    #[error("a snapshot without {what}")]
    Missing { what: &'static str },
}

has_kind!(DecodeSnapshotError: _ => Damage);

impl Snapshot {
    /// Makes a snapshot with these fields; all others are empty.
    #[must_use]
    pub fn new(id: SnapshotId, name: String, time: Timestamp, content: SnapshotContent) -> Self {
        Self {
            id,
            name,
            time,
            content,
            source: Vec::new(),
            host: String::new(),
            tags: Vec::new(),
            size: 0,
            file_count: 0,
            problem_count: 0,
            growth: None,
            elapsed: 0,
            machine: None,
            holds: Vec::new(),
            keep_until: None,
            left_out: Vec::new(),
            comment: String::new(),
            file: None,
            origin: None,
            sectors: None,
            unknown: UnknownFields::default(),
        }
    }

    /// Returns whether it belongs to this series: the snapshots of one host with one name.
    #[must_use]
    pub fn is_of_series(&self, host: &str, name: &str) -> bool {
        self.host == host && self.name == name
    }

    /// The key that it was added with, if that is known.
    #[must_use]
    pub fn added_with(&self) -> Option<&Origin> {
        self.origin.as_ref().map(|record| &record.origin)
    }

    /// Returns whether the snapshot was added after a later one of its series, by a key that is not
    /// full. A full key may import old snapshots at any time.
    #[must_use]
    pub fn is_backdated(&self) -> bool {
        self.origin.as_ref().is_some_and(|record| record.later.is_some() && !record.origin.is_full())
    }

    /// Returns the machine whose firmware variables this snapshot holds; `None` for another kind of
    /// snapshot.
    #[must_use]
    pub fn firmware_of(&self) -> Option<&Machine> {
        let is_firmware =
            |machine: &&Machine| machine.drive_in(self.id).is_some_and(MachineDrive::is_firmware);
        self.machine.as_ref().filter(is_firmware)
    }

    /// Returns the number of entries of an archived folder, without the folder itself; 0 for any
    /// other source.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        match (&self.content, &self.file) {
            (SnapshotContent::Folder(_), None) => self.file_count.saturating_sub(1),
            _ => 0,
        }
    }

    /// Encodes the fields of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, image, root) = match &self.content {
            SnapshotContent::Image(entry) => (1, Some(entry.encode()), None),
            SnapshotContent::Folder(root) => (2, None, Some(root.encode())),
        };
        let head = FieldWriter::new()
            .bytes(1, &self.id.0)
            .bytes(2, self.name.as_bytes())
            .signed(3, self.time.0)
            .optional_number(KIND, (!self.unknown.has(KIND)).then_some(kind))
            .bytes(5, &self.source)
            .bytes(6, self.host.as_bytes());
        let tagged = self.tags.iter().fold(head, |fields, tag| fields.bytes(7, tag.as_bytes()));
        let fields = tagged
            .optional_bytes(8, image.as_deref())
            .optional_bytes(9, root.as_deref())
            .number(10, self.size)
            .number(11, self.file_count)
            .number(12, self.problem_count)
            .optional_number(13, self.growth.map(|growth| growth.stored_bytes))
            .number(14, self.elapsed)
            .optional_number(15, self.growth.map(|growth| growth.new_bytes))
            .optional_bytes(16, self.machine.as_ref().map(Machine::encode).as_deref());
        let fields = self.holds.iter().fold(fields, |fields, hold| fields.bytes(17, &hold.encode()));
        let fields = fields.optional_signed(18, self.keep_until.map(|time| time.0));
        let fields = self.left_out.iter().fold(fields, |fields, record| fields.bytes(19, &record.encode()));
        fields
            .optional_bytes(20, (!self.comment.is_empty()).then_some(self.comment.as_bytes()))
            .optional_bytes(21, self.file.as_deref())
            .optional_bytes(22, self.origin.as_ref().map(OriginRecord::encode).as_deref())
            .optional_number(23, self.sectors.map(|sectors| sectors.logical().into()))
            .optional_number(24, self.sectors.map(|sectors| sectors.physical().into()))
            .finish_with(&self.unknown)
    }

    /// Translates a path that the user gave into a path from the root of the snapshot. In a
    /// snapshot of a single file, the path continues inside that file. That file is also found
    /// under its own name, because an earlier version of this program shows it so.
    #[must_use]
    pub fn path_within<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        match &self.file {
            None => Cow::Borrowed(path),
            Some(name) if path.as_os_str().as_bytes() == name => Cow::Borrowed(path),
            Some(name) if path.as_os_str().is_empty() => Cow::Owned(OsStr::from_bytes(name).into()),
            Some(name) => Cow::Owned(Path::new(OsStr::from_bytes(name)).join(path)),
        }
    }

    /// Decodes the fields of a record.
    ///
    /// # Errors
    /// [`DecodeSnapshotError`].
    pub fn decode(fields: &[u8], score_bytes: usize) -> Result<Self, DecodeSnapshotError> {
        let missing = |what| DecodeSnapshotError::Missing { what };
        let mut parts = SnapshotFields::default();
        for field in FieldReader::new(fields) {
            parts.take(&field?, score_bytes)?;
        }
        let SnapshotFields { id, name, time, content, source, host, tags, numbers, machine, .. } = parts;
        let [size, file_count, problem_count, stored_bytes, elapsed, new_bytes] = numbers;
        let has_grown = stored_bytes.is_some() || new_bytes.is_some();
        Ok(Self {
            id: id.ok_or(missing("an id"))?,
            name: name.ok_or(missing("a name"))?,
            time: time.ok_or(missing("a time"))?,
            content: content.ok_or(missing("content"))?,
            source,
            host,
            tags,
            size: size.unwrap_or(0),
            file_count: file_count.unwrap_or(0),
            problem_count: problem_count.unwrap_or(0),
            growth: has_grown.then(|| Growth {
                new_bytes: new_bytes.unwrap_or(0),
                stored_bytes: stored_bytes.unwrap_or(0),
            }),
            elapsed: elapsed.unwrap_or(0),
            machine,
            holds: parts.holds,
            keep_until: parts.keep_until,
            left_out: parts.left_out,
            comment: parts.comment,
            file: parts.file,
            origin: parts.origin,
            sectors: SectorSizes::new(parts.sector_bytes, parts.physical_sector_bytes),
            unknown: parts.unknown,
        })
    }
}

#[derive(Default)]
struct SnapshotFields {
    id: Option<SnapshotId>,
    name: Option<String>,
    time: Option<Timestamp>,
    content: Option<SnapshotContent>,
    source: Vec<u8>,
    host: String,
    tags: Vec<String>,
    /// Fields 10 to 15.
    numbers: [Option<u64>; 6],
    machine: Option<Machine>,
    holds: Vec<Hold>,
    keep_until: Option<Timestamp>,
    left_out: Vec<LeftOutRecord>,
    comment: String,
    file: Option<Vec<u8>>,
    origin: Option<OriginRecord>,
    /// Field 23; 0 if it is absent.
    sector_bytes: u64,
    /// Field 24; 0 if it is absent.
    physical_sector_bytes: u64,
    unknown: UnknownFields,
}

impl SnapshotFields {
    fn take(&mut self, field: &Field<'_>, score_bytes: usize) -> Result<(), DecodeSnapshotError> {
        match field.number {
            1 => self.id = Some(SnapshotId(field.bytes.try_into().map_err(|_| field.unexpected())?)),
            2 => self.name = Some(field.text()?.into()),
            3 => self.time = Some(Timestamp(field.signed()?)),
            // The kind follows from the content, unless a later version knows more kinds.
            KIND if matches!(field.value(), Ok(1_u64 | 2)) => {}
            5 => self.source = field.bytes.to_vec(),
            6 => self.host = field.text()?.into(),
            7 => self.tags.push(field.text()?.into()),
            8 => self.content = Some(SnapshotContent::Image(Entry::decode(field.bytes, score_bytes)?)),
            9 => {
                self.content =
                    Some(SnapshotContent::Folder(Box::new(Node::decode_root(field.bytes, score_bytes)?)));
            }
            number @ 10..=15 => {
                if let Some(place) = self.numbers.get_mut(usize::from(number.saturating_sub(10))) {
                    *place = Some(field.value()?);
                }
            }
            16 => self.machine = Some(Machine::decode(field.bytes)?),
            17 => self.holds.push(Hold::decode(field.bytes)?),
            18 => self.keep_until = Some(Timestamp(field.signed()?)),
            19 if self.left_out.len() < RECORD_COUNT_MAX => {
                self.left_out.push(LeftOutRecord::decode(field.bytes)?);
            }
            20 => self.comment = field.text()?.into(),
            21 if is_component(field.bytes) => self.file = Some(field.bytes.to_vec()),
            21 => return Err(field.unexpected().into()),
            22 => self.origin = Some(OriginRecord::decode(field.bytes)?),
            23 => self.sector_bytes = field.value()?,
            24 => self.physical_sector_bytes = field.value()?,
            _ => self.unknown.keep(field),
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use varve_block::MemoryBlockStore;
    use varve_tree::{FixedBuilder, Shape};

    use super::*;
    use varve_content::NodeKind;

    /// A snapshot of an empty image, or of an empty folder.
    pub(crate) fn snapshot(number: u8, name: &str, time: i64) -> Snapshot {
        let store = MemoryBlockStore::new();
        let shape = Shape { leaf_kind: varve_block::BlockKind::Data, leaf_bytes: 512, pointer_bytes: 512 };
        let image = FixedBuilder::new(&store, shape).finish(0).unwrap();
        let folder = Box::new(Node::new(Vec::new(), NodeKind::Folder));
        let is_image = number.is_multiple_of(2);
        Snapshot {
            id: SnapshotId([number; 16]),
            name: name.into(),
            time: Timestamp(time),
            content: if is_image { SnapshotContent::Image(image) } else { SnapshotContent::Folder(folder) },
            source: b"/dev/\xff".to_vec(),
            host: "here".into(),
            tags: vec!["a=b".into(), "c=d".into()],
            size: 1 << 40,
            file_count: 3,
            problem_count: 0,
            growth: is_image.then_some(Growth { new_bytes: 9, stored_bytes: 0 }),
            elapsed: 11,
            machine: is_image.then(crate::catalog::machine::tests::machine),
            holds: Vec::new(),
            keep_until: None,
            left_out: if is_image { crate::catalog::left_out_record::tests::records() } else { Vec::new() },
            comment: if is_image { "before the upgrade".into() } else { String::new() },
            file: (!is_image).then(|| b"hostname".to_vec()),
            origin: is_image.then(|| crate::catalog::origin_record::tests::unproven("0011", Some(9))),
            sectors: if is_image { SectorSizes::new(4096, 16_384) } else { None },
            unknown: UnknownFields::default(),
        }
    }

    #[test]
    fn a_snapshot_survives_the_round_trip() {
        for number in [1, 2] {
            let snapshot = snapshot(number, "web", -5);
            assert_eq!(Snapshot::decode(&snapshot.encode(), 32).unwrap(), snapshot);
        }
        assert!(matches!(Snapshot::decode(&[], 32), Err(DecodeSnapshotError::Missing { what: "an id" })));
    }

    #[test]
    fn paths_lead_into_the_file_that_a_snapshot_is_of() {
        let folder = Snapshot { file: None, ..snapshot(1, "etc", 0) };
        let file = Snapshot { file: Some(b"notes".to_vec()), ..folder.clone() };
        let within = |snapshot: &Snapshot, path: &str| snapshot.path_within(Path::new(path)).into_owned();
        for (path, in_folder, in_file) in
            [("", "", "notes"), ("notes", "notes", "notes"), ("a/b", "a/b", "notes/a/b")]
        {
            assert_eq!(within(&folder, path), Path::new(in_folder));
            assert_eq!(within(&file, path), Path::new(in_file));
        }
        let mut evil = file.encode();
        let name = evil.windows(5).rposition(|part| part == b"notes").unwrap();
        evil[name] = b'/';
        assert!(Snapshot::decode(&evil, 32).is_err(), "no path");
    }

    /// Fields that this version does not know, with numbers greater than `last`.
    fn later_fields(last: u8) -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        let field = (last + 1..=u8::MAX, proptest::collection::vec(any::<u8>(), 0..40));
        proptest::collection::vec(field, 0..6).prop_map(|mut fields| {
            fields.sort_by_key(|(number, _)| *number);
            fields
        })
    }

    fn with_later(record: Vec<u8>, later: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let added = later.iter().fold(FieldWriter::new(), |into, (number, bytes)| into.bytes(*number, bytes));
        [record, added.finish()].concat()
    }

    proptest! {
        /// A snapshot, its root, its machine and the drives of that machine keep the fields of a
        /// later version byte for byte when they are written again.
        #[test]
        fn a_record_of_a_later_version_is_written_again_as_it_was(
            (is_image, held) in (any::<bool>(), any::<[bool; 2]>()),
            (own, root, drive, kind) in (later_fields(24), later_fields(18), later_fields(9), 3_u64..),
            (left_out, hold) in (later_fields(5), later_fields(2)),
        ) {
            let base = snapshot(if is_image { 2 } else { 1 }, "web", -5);
            let (image, folder) = match &base.content {
                SnapshotContent::Image(entry) => (Some(entry.encode()), None),
                SnapshotContent::Folder(node) => (None, Some(with_later(node.encode(), &root))),
            };
            let machine = with_later(base.machine.clone().unwrap_or_default().encode(), &drive);
            let record = FieldWriter::new()
                .bytes(1, &base.id.0)
                .bytes(2, b"web")
                .signed(3, -5)
                .number(4, kind)
                .bytes(5, &base.source)
                .bytes(6, b"here")
                .optional_bytes(8, image.as_deref())
                .optional_bytes(9, folder.as_deref())
                .number(10, 7)
                .number(11, 0)
                .number(12, 0)
                .number(14, 0)
                .bytes(16, &machine);
            let hold = with_later(Hold::new("audit", Timestamp(-7)).unwrap().encode(), &hold);
            let record = record.optional_bytes(17, held[0].then_some(&hold));
            let record = record.optional_bytes(17, held[1].then_some(&hold));
            let record = record.optional_signed(18, held[1].then_some(-7));
            let left_out = with_later(crate::catalog::left_out_record::tests::records().remove(0).encode(), &left_out);
            let record = record.bytes(19, &left_out).bytes(20, b"x");
            let record = record.optional_bytes(21, held[0].then_some(b"notes".as_slice()));
            let record = with_later(record.finish(), &own);
            let read = Snapshot::decode(&record, 32).unwrap();
            prop_assert_eq!(read.encode(), record);
        }

        #[test]
        fn no_record_panics(place in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
            let mut fields = snapshot(1, "web", 5).encode();
            let place = place % fields.len();
            fields[place] ^= byte;
            fields.truncate(cut % (fields.len() + 1));
            drop(Snapshot::decode(&fields, 32));
        }
    }
}

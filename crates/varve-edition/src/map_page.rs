//! A page of the map of a disk: the content of a stored block. Little-endian.
//!
//! | offset | bytes | field        | meaning                                                        |
//! |-------:|------:|--------------|----------------------------------------------------------------|
//! |      0 |     8 | magic        | `VARVEMAP`                                                     |
//! |      8 |     4 | version      | 1                                                              |
//! |     12 |     4 | level        | 0: its entries are blocks; 1: the root, its entries are pages  |
//! |     16 |     4 | object_count | the number of names that follow                                |
//! |     20 |     4 | entry_count  | as the size of the disk needs; at most 1,024 at level 0        |
//! |     24 |       | objects      | names of objects that hold several blocks, 32 bytes each       |
//! |        |       | entries      | `entry_count` entries of 44 bytes                              |
//!
//! An entry:
//!
//! | offset | bytes | field        | meaning                                                        |
//! |-------:|------:|--------------|----------------------------------------------------------------|
//! |      0 |    32 | name         | the SHA-256 of the stored block                                |
//! |     32 |     4 | object       | its object's place among the names; 2^32 − 1: it is an object  |
//! |     36 |     4 | offset       | of the stored block in that object                             |
//! |     40 |     4 | stored_bytes | the length of the stored block; 0: zeros, all fields are 0     |
//!
//! Invariant: the objects are named once each, in the order in which the entries use them first.

use std::collections::BTreeMap;

use varve_block::{LittleEndian, has_kind, to_usize};

use crate::block_form::{BlockForm, STORED_OVERHEAD_BYTES};
use crate::checked_block::CheckedBlock;
use crate::disk_shape::DiskShape;
use crate::object_name::ObjectName;
use crate::stored_block::UnpackError;
use crate::{OBJECT_BYTES_MAX, PAGE_BYTES_MAX, ROOT_BYTES_MAX};

const MAGIC: [u8; 8] = *b"VARVEMAP";
const VERSION: u32 = 1;
const ALONE: u32 = u32::MAX;
const ENTRY_BYTES: usize = 44;

/// The place of a page in the map of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapLevel {
    /// A page of level 0, counted from the start of the disk.
    Blocks { page: u64 },
    /// The page of level 1.
    Root,
}

/// A stored block that is a part of an object, or a whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectPart {
    /// The object that holds the stored block. It is `name` if the block is an object by itself.
    pub object: ObjectName,
    pub offset: u32,
    /// The length of the stored block.
    pub bytes: u32,
    /// The SHA-256 of the stored block.
    pub name: ObjectName,
}

impl ObjectPart {
    /// A stored block that is an object by itself.
    #[must_use]
    pub fn alone(name: ObjectName, bytes: u32) -> Self {
        Self { object: name, offset: 0, bytes, name }
    }
}

/// The place of a block or of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapEntry {
    /// All its bytes are zeros, or all blocks of the page are. Nothing is stored.
    Zeros,
    Stored(ObjectPart),
}

/// A page with the number of entries and the lengths that its place in the map needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapPage {
    entries: Vec<MapEntry>,
}

/// The reason why bytes are not the page that belongs to a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapPageError {
    #[error("{0}")]
    Unpack(#[from] UnpackError),
    #[error("it does not begin with VARVEMAP: it is no page of a map")]
    Magic,
    #[error("a page of version {version} is unknown to this program: use a newer one")]
    Version { version: u32 },
    #[error("a page of level {found} is at a place for level {expected}")]
    Level { expected: u32, found: u32 },
    #[error("it has {found} entries, but the size of the disk needs {expected}")]
    EntryCount { expected: u64, found: u32 },
    #[error("it has {actual} bytes, but its entries and objects take {expected}")]
    Length { expected: u64, actual: usize },
    #[error("entry {entry} is invalid: {reason}")]
    Entry { entry: usize, reason: &'static str },
}

has_kind!(MapPageError: Self::Version { version } if *version > VERSION => NewerVersion);

impl MapPage {
    /// Makes the page for a place of a disk's map.
    ///
    /// # Errors
    /// [`MapPageError`] unless it has as many entries as belong there, and all are valid.
    pub fn new(entries: Vec<MapEntry>, shape: &DiskShape, level: MapLevel) -> Result<Self, MapPageError> {
        let expected = level.entry_count(shape);
        if entries.len() as u64 != expected {
            let found = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            return Err(MapPageError::EntryCount { expected, found });
        }
        let stored_bytes_max = level.stored_bytes_max(shape);
        for (number, entry) in entries.iter().enumerate() {
            let MapEntry::Stored(part) = entry else { continue };
            check_part(part, stored_bytes_max)
                .map_err(|reason| MapPageError::Entry { entry: number, reason })?;
        }
        Ok(Self { entries })
    }

    /// Returns the entries, in the order of the disk.
    #[must_use]
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }

    /// Writes the page.
    #[must_use]
    pub fn encode(&self, level: MapLevel) -> Vec<u8> {
        let mut numbers = BTreeMap::new();
        let mut objects = Vec::new();
        let mut rows = Vec::new();
        for entry in &self.entries {
            let MapEntry::Stored(part) = entry else {
                rows.extend([0; ENTRY_BYTES]);
                continue;
            };
            let object = if part.object == part.name {
                ALONE
            } else {
                let next = u32::try_from(numbers.len()).unwrap_or(ALONE);
                *numbers.entry(part.object).or_insert_with(|| {
                    objects.extend(part.object.as_bytes());
                    next
                })
            };
            rows.extend(part.name.as_bytes());
            rows.extend([object, part.offset, part.bytes].map(u32::to_le_bytes).concat());
        }
        let counts = [numbers.len(), self.entries.len()].map(|count| u32::try_from(count).unwrap_or(ALONE));
        let words = [VERSION, level.number(), counts[0], counts[1]].map(u32::to_le_bytes).concat();
        [&MAGIC[..], &words, &objects, &rows].concat()
    }

    /// Reads the page that belongs to a place of a disk's map, from its stored block.
    ///
    /// # Errors
    /// [`MapPageError`].
    pub fn open(
        stored: CheckedBlock<'_>,
        form: &BlockForm,
        shape: &DiskShape,
        level: MapLevel,
    ) -> Result<Self, MapPageError> {
        Self::decode(&stored.unpack(form, level.bytes_max())?, shape, level)
    }

    /// Reads the page that belongs to a place of a disk's map.
    ///
    /// # Errors
    /// [`MapPageError`].
    pub fn decode(bytes: &[u8], shape: &DiskShape, level: MapLevel) -> Result<Self, MapPageError> {
        let mut reader = LittleEndian::new(bytes);
        if reader.array() != Some(MAGIC) {
            return Err(MapPageError::Magic);
        }
        let mut word = || reader.u32().ok_or(MapPageError::Magic);
        let (version, found_level, object_count, entry_count) = (word()?, word()?, word()?, word()?);
        if version != VERSION {
            return Err(MapPageError::Version { version });
        }
        if found_level != level.number() {
            return Err(MapPageError::Level { expected: level.number(), found: found_level });
        }
        let expected = level.entry_count(shape);
        if u64::from(entry_count) != expected {
            return Err(MapPageError::EntryCount { expected, found: entry_count });
        }
        let name_bytes = u64::from(object_count).saturating_mul(ObjectName::BYTES as u64);
        let row_bytes = u64::from(entry_count).saturating_mul(ENTRY_BYTES as u64);
        let rest = reader.left();
        if rest.len() as u64 != name_bytes.saturating_add(row_bytes) {
            let expected = name_bytes.saturating_add(row_bytes).saturating_add(24);
            return Err(MapPageError::Length { expected, actual: bytes.len() });
        }
        let (names, rows) = rest.split_at(to_usize(name_bytes).min(rest.len()));
        let (names, _) = names.as_chunks::<{ ObjectName::BYTES }>();
        let (rows, _) = rows.as_chunks::<ENTRY_BYTES>();
        let mut entries = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let entry =
                decode_entry(row, names).map_err(|reason| MapPageError::Entry { entry: number, reason })?;
            entries.push(entry);
        }
        let page = Self::new(entries, shape, level)?;
        if page.encode(level) == bytes {
            Ok(page)
        } else {
            let entry = page.entries.len();
            Err(MapPageError::Entry { entry, reason: "the names of the objects are not in order of use" })
        }
    }
}

fn decode_entry(
    row: &[u8; ENTRY_BYTES],
    names: &[[u8; ObjectName::BYTES]],
) -> Result<MapEntry, &'static str> {
    const SHORT: &str = "it is too short";
    let mut reader = LittleEndian::new(row);
    let name = ObjectName::from_bytes(reader.array().ok_or(SHORT)?);
    let [object, offset, bytes] =
        [reader.u32(), reader.u32(), reader.u32()].map(|word| word.unwrap_or(ALONE));
    if bytes == 0 {
        return if row.iter().all(|byte| *byte == 0) {
            Ok(MapEntry::Zeros)
        } else {
            Err("a block of zeros has a name or a place")
        };
    }
    if object == ALONE {
        let part = ObjectPart { object: name, offset, bytes, name };
        return Ok(MapEntry::Stored(part));
    }
    let place = names.get(to_usize(object));
    let object = ObjectName::from_bytes(*place.ok_or("it names an object that the page does not have")?);
    Ok(MapEntry::Stored(ObjectPart { object, offset, bytes, name }))
}

fn check_part(part: &ObjectPart, stored_bytes_max: u64) -> Result<(), &'static str> {
    if part.bytes == 0 || u64::from(part.bytes) > stored_bytes_max {
        return Err("no stored block there has this length");
    }
    if part.object == part.name && part.offset != 0 {
        return Err("a block that is an object by itself has an offset");
    }
    let end = u64::from(part.offset).saturating_add(u64::from(part.bytes));
    if end > OBJECT_BYTES_MAX as u64 {
        return Err("it lies beyond the end of the largest object");
    }
    Ok(())
}

impl MapLevel {
    fn number(self) -> u32 {
        match self {
            Self::Blocks { .. } => 0,
            Self::Root => 1,
        }
    }

    fn entry_count(self, shape: &DiskShape) -> u64 {
        match self {
            Self::Blocks { page } => u64::from(shape.page_entry_count(page)),
            Self::Root => shape.page_count(),
        }
    }

    /// Returns the longest page of this level, without compression.
    fn bytes_max(self) -> usize {
        match self {
            Self::Blocks { .. } => PAGE_BYTES_MAX,
            Self::Root => ROOT_BYTES_MAX,
        }
    }

    /// Returns the length of the longest stored block that a page of this level leads to.
    fn stored_bytes_max(self, shape: &DiskShape) -> u64 {
        let content_bytes_max = match self {
            Self::Blocks { .. } => u64::from(shape.block_bytes.get()),
            Self::Root => PAGE_BYTES_MAX as u64,
        };
        content_bytes_max.saturating_add(STORED_OVERHEAD_BYTES as u64)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{PublishedBlockBytes, StoredCompression};

    fn shape(block_count: u64) -> DiskShape {
        let block_bytes = PublishedBlockBytes::new(64 << 10).unwrap();
        DiskShape { size: block_count * (64 << 10), block_bytes }
    }

    const FIRST: MapLevel = MapLevel::Blocks { page: 0 };

    fn entry() -> impl Strategy<Value = MapEntry> {
        let name = (0_u8..20).prop_map(|seed| ObjectName::of(&[seed]));
        let part = (name.clone(), name, 0_u32..1 << 23, 1_u32..=65_537);
        prop_oneof![
            Just(MapEntry::Zeros),
            part.prop_map(|(object, name, offset, bytes)| {
                let offset = if object == name { 0 } else { offset };
                MapEntry::Stored(ObjectPart { object, offset, bytes, name })
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_page_is_read_as_it_was_written(entries in proptest::collection::vec(entry(), 0..60)) {
            let shape = shape(entries.len() as u64);
            let page = MapPage::new(entries, &shape, FIRST).unwrap();
            let bytes = page.encode(FIRST);
            prop_assert_eq!(MapPage::decode(&bytes, &shape, FIRST), Ok(page.clone()));
            let stored = BlockForm::Plain.store(&bytes, StoredCompression::default());
            let checked = CheckedBlock::check(&stored, &ObjectName::of(&stored)).unwrap();
            prop_assert_eq!(MapPage::open(checked, &BlockForm::Plain, &shape, FIRST), Ok(page));
        }

        /// A page is found under its own name only, so a changed byte is noticed before. Here the
        /// decoder alone must not take two texts for one page.
        #[test]
        fn no_other_bytes_are_the_same_page(
            entries in proptest::collection::vec(entry(), 1..20), at: usize, flip in 1_u8..
        ) {
            let shape = shape(entries.len() as u64);
            let page = MapPage::new(entries, &shape, FIRST).unwrap();
            let mut bytes = page.encode(FIRST);
            let at = at % bytes.len();
            bytes[at] ^= flip;
            if let Ok(other) = MapPage::decode(&bytes, &shape, FIRST) {
                prop_assert_ne!(other, page);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), count in 0_u64..8) {
            let head = [&MAGIC[..], &1_u32.to_le_bytes(), &0_u32.to_le_bytes()].concat();
            let _ = MapPage::decode(&bytes, &shape(count), FIRST);
            let bytes = [head, bytes].concat();
            if let Ok(page) = MapPage::decode(&bytes, &shape(count), FIRST) {
                prop_assert_eq!(page.encode(FIRST), bytes);
            }
        }
    }

    #[test]
    fn the_largest_page_fits() {
        let entries = (0..1024_u32).map(|number| {
            let object = ObjectName::of(&number.to_le_bytes());
            MapEntry::Stored(ObjectPart { object, offset: 1, bytes: 65_537, name: ObjectName::of(b"") })
        });
        let shape = shape(5000);
        let page = MapPage::new(entries.collect(), &shape, FIRST).unwrap();
        assert!(page.encode(FIRST).len() < PAGE_BYTES_MAX);
        assert_eq!(
            MapPage::new(Vec::new(), &shape, MapLevel::Blocks { page: 5 }).unwrap().entries().len(),
            0
        );
    }

    #[test]
    fn a_page_belongs_to_its_place() {
        let name = ObjectName::of(b"x");
        let alone = MapEntry::Stored(ObjectPart::alone(name, 7));
        let page = MapPage::new(vec![alone, MapEntry::Zeros], &shape(2), FIRST).unwrap();
        let bytes = page.encode(FIRST);
        assert_eq!(bytes.len(), 24 + 2 * 44);
        for (bytes, shape, level, says) in [
            (bytes.clone(), shape(2), MapLevel::Root, "level 0 is at a place for level 1"),
            (bytes.clone(), shape(3), FIRST, "has 2 entries, but the size of the disk needs 3"),
            (bytes.clone(), shape(2), MapLevel::Blocks { page: 1 }, "needs 0"),
            (bytes[..bytes.len() - 1].to_vec(), shape(2), FIRST, "has 111 bytes"),
            ([&bytes[..], &[0]].concat(), shape(2), FIRST, "has 113 bytes"),
            (bytes[..20].to_vec(), shape(2), FIRST, "VARVEMAP"),
            ([&bytes[..8], &[2], &bytes[9..]].concat(), shape(2), FIRST, "version 2"),
            ([&bytes[..60], &[1], &bytes[61..]].concat(), shape(2), FIRST, "has an offset"),
            ([&bytes[..56], &[0; 4], &bytes[60..]].concat(), shape(2), FIRST, "does not have"),
            ([&bytes[..68], &[1], &bytes[69..]].concat(), shape(2), FIRST, "zeros has a name"),
            ([&bytes[..66], &[2], &bytes[67..]].concat(), shape(2), FIRST, "this length"),
        ] {
            let error = MapPage::decode(&bytes, &shape, level).unwrap_err().to_string();
            assert!(error.contains(says), "{error} is not {says}");
        }
        let huge = shape(u64::MAX >> 16);
        let error = MapPage::decode(&bytes, &huge, MapLevel::Root).unwrap_err();
        assert!(matches!(error, MapPageError::Level { .. }), "{error}");
    }

    #[test]
    fn an_object_is_named_once_and_in_order() {
        let parts = [b"a", b"b"].map(|object| {
            MapEntry::Stored(ObjectPart {
                object: ObjectName::of(object),
                offset: 0,
                bytes: 9,
                name: ObjectName::of(b"block"),
            })
        });
        let page = MapPage::new(parts.to_vec(), &shape(2), FIRST).unwrap();
        let mut bytes = page.encode(FIRST);
        let (first, second) = bytes[24..88].split_at_mut(32);
        first.swap_with_slice(second);
        bytes[88 + 32] = 1;
        bytes[88 + 44 + 32] = 0;
        let error = MapPage::decode(&bytes, &shape(2), FIRST).unwrap_err().to_string();
        assert!(error.contains("order of use"), "{error}");
    }
}

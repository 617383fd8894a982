//! The index of a folder: its entries in the folder's record, and in blocks outside of it.
//!
//! | offset | bytes | of the root             | offset | bytes | of an entry                         |
//! |-------:|------:|-------------------------|-------:|------:|-------------------------------------|
//! |      8 |     4 | bytes of a block        |      0 |     8 | the record of the file              |
//! |     16 |       | a node                  |      8 |     2 | bytes of the entry                  |
//! |        |       | **of a block**          |     10 |     2 | bytes of the name                   |
//! |      0 |     4 | `INDX`                  |     12 |     2 | flags: 2 for the last one, no name  |
//! |     24 |       | a node                  |     16 |       | the name, as in the file's record   |
//! |        |       | **of a node**           |        |       | **of a name**                       |
//! |      0 |     4 | position of the entries |      0 |     8 | the record of the folder            |
//! |      4 |     4 | end of the entries      |     48 |     8 | size of the file                    |
//! |        |       |                         |     56 |     4 | attributes of the file              |
//! |        |       |                         |     64 |     1 | letters                             |
//! |        |       |                         |     65 |     1 | kind of the name; 2 is that of DOS  |
//! |        |       |                         |     66 |       | UTF-16                              |
//!
//! A bitmap tells which blocks are in use. All of them are read, in their order: so a damaged block
//! hides only its own names, and no reference leads in a circle.

use std::ops::ControlFlow;

use varve_block::to_usize;

use super::attribute::{BITMAP, INDEX_ALLOCATION, INDEX_ROOT};
use super::protected::restore_sector_ends;
use super::table::{NtfsFile, NtfsTable};
use super::{RECORD_MASK, damaged};
use crate::bytes::fields::{u8_at, u16_at, u32_at, u64_at};
use crate::file_systems::file_system::FileSystemError;

/// `$I30` in UTF-16: the name of the index of names.
const NAMES: &[u8] = b"$\0I\x003\x000\0";
const ROOT_NODE: usize = 16;
const BLOCK_NODE: usize = 24;
const IS_LAST: u16 = 2;
const ENTRY_BYTES: usize = 16;
/// The sizes of a block.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=64 << 10;
/// The longest bitmap: that of 8 million blocks.
const BITMAP_BYTES_MAX: u64 = 1 << 20;

/// A name in a folder.
pub(super) struct NtfsName {
    /// The file's record.
    pub(super) record: u64,
    bytes: Vec<u8>,
}

impl NtfsName {
    /// Returns the name of an entry, or of an attribute of a file; `None` if it is too short.
    pub(super) fn parse(record: u64, bytes: &[u8]) -> Option<Self> {
        let name = Self { record, bytes: bytes.to_vec() };
        let end = usize::from(u8_at(bytes, 64)).saturating_mul(2).saturating_add(66);
        (bytes.len() >= end).then_some(name)
    }

    /// Returns true if it is a second name for DOS.
    pub(super) fn is_of_dos(&self) -> bool {
        u8_at(&self.bytes, 65) == 2
    }

    /// Returns the record of the folder that has the name.
    pub(super) fn folder(&self) -> u64 {
        u64_at(&self.bytes, 0) & RECORD_MASK
    }

    /// Returns the size of the file, as it was when the name was last written.
    pub(super) fn size(&self) -> u64 {
        u64_at(&self.bytes, 48)
    }

    /// Returns the attributes of the file, as they were when the name was last written.
    pub(super) fn file_attributes(&self) -> u32 {
        u32_at(&self.bytes, 56)
    }

    pub(super) fn units(&self) -> impl Iterator<Item = u16> {
        let length = usize::from(u8_at(&self.bytes, 64));
        let (units, _) = self.bytes.get(66..).unwrap_or_default().as_chunks::<2>();
        units.iter().take(length).map(|unit| u16::from_le_bytes(*unit))
    }
}

/// Passes the names of a folder to `visit` until it breaks. A block that is damaged is reported
/// after the names of all others.
pub(super) fn visit_names(
    table: &NtfsTable,
    folder: &NtfsFile,
    what: &str,
    visit: &mut dyn FnMut(NtfsName) -> ControlFlow<()>,
) -> Result<(), FileSystemError> {
    let boot = table.boot();
    let root = folder.stream(INDEX_ROOT, NAMES, boot)?.ok_or_else(|| damaged(what, "it has no index"))?;
    let root = root.read_all(table.volume(), boot, boot.record_bytes, what)?;
    if visit_node(&root, ROOT_NODE, what, visit)?.is_break() {
        return Ok(());
    }
    let Some(blocks) = folder.stream(INDEX_ALLOCATION, NAMES, boot)? else { return Ok(()) };
    let block_bytes = u64::from(u32_at(&root, 8));
    if !BLOCK_BYTES.contains(&block_bytes) || !block_bytes.is_power_of_two() {
        return Err(damaged(what, "its index has blocks of an impossible size"));
    }
    let bitmap = folder.stream(BITMAP, NAMES, boot)?;
    let bitmap = bitmap.ok_or_else(|| damaged(what, "its index has no bitmap"))?;
    let bitmap = bitmap.read_all(table.volume(), boot, BITMAP_BYTES_MAX, what)?;
    let used = bitmap.iter().zip(0_u64..).flat_map(|(byte, number)| {
        let first = number.saturating_mul(8);
        (0..8_u32).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first.saturating_add(bit.into()))
    });
    let mut bytes = vec![0; to_usize(block_bytes)];
    let mut problem = None;
    for number in used {
        let at = number.saturating_mul(block_bytes);
        let read = blocks.read_at(table.volume(), boot, at, &mut bytes, what);
        let node = read.and_then(|length| match length == bytes.len() {
            true => restore_sector_ends(&mut bytes, b"INDX")
                .map_err(|reason| damaged(what, &format!("a block of its index is unreadable: {reason}"))),
            false => Err(damaged(what, "its index is shorter than its bitmap says")),
        });
        match node.and_then(|()| visit_node(&bytes, BLOCK_NODE, what, visit)) {
            Ok(ControlFlow::Break(())) => return Ok(()),
            Ok(ControlFlow::Continue(())) => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    problem.map_or(Ok(()), Err)
}

fn visit_node(
    bytes: &[u8],
    node: usize,
    what: &str,
    visit: &mut dyn FnMut(NtfsName) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, FileSystemError> {
    let wrong = || damaged(what, "a block of its index makes no sense");
    let position = |at: usize| {
        let place = to_usize(u32_at(bytes, node.saturating_add(at)));
        place.saturating_add(node)
    };
    let mut rest = bytes.get(position(0)..position(4)).ok_or_else(wrong)?;
    while u16_at(rest, 12) & IS_LAST == 0 {
        let (length, name_bytes) = (usize::from(u16_at(rest, 8)), usize::from(u16_at(rest, 10)));
        let split = rest.split_at_checked(length).filter(|(entry, _)| entry.len() >= ENTRY_BYTES);
        let (entry, behind) = split.ok_or_else(wrong)?;
        let name = entry.get(ENTRY_BYTES..).and_then(|rest| rest.get(..name_bytes));
        let name = name.and_then(|name| NtfsName::parse(u64_at(entry, 0) & RECORD_MASK, name));
        if visit(name.ok_or_else(wrong)?).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        rest = behind;
    }
    Ok(ControlFlow::Continue(()))
}

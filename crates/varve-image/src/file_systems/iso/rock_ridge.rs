//! Rock Ridge: additional fields in the records of a folder. A field has a sign of two letters, a
//! length and a version.
//!
//! | sign | meaning                                   | sign | meaning                          |
//! |------|-------------------------------------------|------|----------------------------------|
//! | `SP` | fields are used, from this far on         | `CE` | further fields are elsewhere     |
//! | `NM` | name                                      | `SL` | symbolic link                    |
//! | `PX` | mode, links, owner, group                 | `PN` | device                           |
//! | `TF` | times                                     | `ZF` | compressed                       |
//! | `CL` | a folder that lies elsewhere              | `RE` | a folder that is shown elsewhere |

use super::record::{long_moment, short_moment};
use crate::bytes::fields::{u8_at, u32_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::{DeviceNumber, FileKind, FileSystemError};
use crate::file_systems::file_time::FileTime;
use crate::file_systems::unix_files::kind_of_mode;
use varve_block::to_usize;

/// A record with more continuation areas than this has a cycle.
const CONTINUATION_COUNT_MAX: usize = 32;
const CONTINUATION_BYTES_MAX: u32 = 64 << 10;
/// The longest name, and the longest target.
const TEXT_BYTES_MAX: usize = 4096;
/// The flag of a text that continues in the next field.
const GOES_ON: u8 = 1;

#[derive(Default)]
pub(super) struct RockRidge {
    pub(super) has_any: bool,
    pub(super) name: Option<Vec<u8>>,
    pub(super) kind: Option<FileKind>,
    pub(super) mode: Option<u16>,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: Option<DeviceNumber>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) modified: Option<FileTime>,
    pub(super) changed: Option<FileTime>,
    pub(super) accessed: Option<FileTime>,
    pub(super) created: Option<FileTime>,
    /// The block to which a folder was moved.
    pub(super) child_block: Option<u32>,
    /// True for the record of a moved folder at its new position: the folder is shown where it was
    /// before.
    pub(super) is_relocated: bool,
    pub(super) is_compressed: bool,
    /// True if the next part of the target continues the component before it.
    is_within_component: bool,
}

/// Returns the offset of the fields in other records, from the root's first record.
pub(super) fn announced(system_use: &[u8]) -> Option<u8> {
    let is_announced =
        system_use.starts_with(b"SP") && u8_at(system_use, 4) == 0xbe && u8_at(system_use, 5) == 0xef;
    is_announced.then(|| u8_at(system_use, 6))
}

impl RockRidge {
    /// Reads all fields of a record.
    pub(super) fn read(
        volume: &dyn ReadAt,
        block_bytes: u64,
        system_use: &[u8],
        skipped: u8,
    ) -> Result<Self, FileSystemError> {
        let mut found = Self::default();
        // The first record of the root begins with the announcement itself, and nothing is skipped
        // there.
        let skipped = if announced(system_use).is_some() { 0 } else { usize::from(skipped) };
        let mut area = system_use.get(skipped..).unwrap_or_default().to_vec();
        for _ in 0..CONTINUATION_COUNT_MAX {
            let Some((block, offset, length)) = found.take_all(&area) else { return Ok(found) };
            let position = u64::from(block).saturating_mul(block_bytes).saturating_add(u64::from(offset));
            area.resize(to_usize(length.min(CONTINUATION_BYTES_MAX)), 0);
            let read = volume.read_at(position, &mut area);
            read.map_err(|source| FileSystemError::Read { what: "Rock Ridge field".into(), source })?;
        }
        Err(super::damaged("record", "its fields form a cycle".into()))
    }

    /// Takes the fields of an area. Returns the position of the next area.
    fn take_all(&mut self, area: &[u8]) -> Option<(u32, u32, u32)> {
        let (mut rest, mut next) = (area, None);
        while let [first, second, length, _, ..] = *rest {
            let Some((field, after)) = rest.split_at_checked(usize::from(length)) else { break };
            let Some(data) = field.get(4..) else { break };
            rest = after;
            match &[first, second] {
                b"CE" => next = Some((u32_at(data, 0), u32_at(data, 8), u32_at(data, 16))),
                b"ST" => break,
                sign => self.take(*sign, data),
            }
        }
        next
    }

    fn take(&mut self, sign: [u8; 2], data: &[u8]) {
        match &sign {
            b"PX" => {
                let mode = u32_at(data, 0);
                self.mode = u16::try_from(mode & 0o7777).ok();
                self.kind = kind_of_mode(mode & 0o170_000);
                (self.links, self.uid, self.gid) = (u32_at(data, 8), u32_at(data, 16), u32_at(data, 24));
            }
            b"PN" => self.device = Some(DeviceNumber { major: u32_at(data, 0), minor: u32_at(data, 8) }),
            b"NM" => {
                // Bits 1 and 2 mark the folder itself and its parent, which have no other name.
                if u8_at(data, 0) & 6 == 0 {
                    append(self.name.get_or_insert_default(), data.get(1..).unwrap_or_default());
                }
            }
            b"SL" => self.take_target(data),
            b"TF" => self.take_times(data),
            b"CL" => self.child_block = Some(u32_at(data, 0)),
            b"RE" => self.is_relocated = true,
            b"ZF" => self.is_compressed = true,
            _ => return,
        }
        self.has_any = true;
    }

    /// Takes the components of a link's target. Each has flags, a length, and its bytes.
    fn take_target(&mut self, data: &[u8]) {
        let target = self.target.get_or_insert_default();
        let mut rest = data.get(1..).unwrap_or_default();
        while let [flags, length, ref after @ ..] = *rest {
            let Some((text, next)) = after.split_at_checked(usize::from(length)) else { break };
            rest = next;
            if !self.is_within_component && !target.is_empty() && !target.ends_with(b"/") {
                append(target, b"/");
            }
            match flags & 0x0e {
                2 => append(target, b"."),
                4 => append(target, b".."),
                8 => append(target, b"/"),
                _ => append(target, text),
            }
            self.is_within_component = flags & GOES_ON != 0;
        }
    }

    fn take_times(&mut self, data: &[u8]) {
        let flags = u8_at(data, 0);
        let is_long = flags & 0x80 != 0;
        let mut moments = data.get(1..).unwrap_or_default().chunks_exact(if is_long { 17 } else { 7 });
        let read = |bytes: &[u8]| if is_long { long_moment(bytes) } else { short_moment(bytes) };
        let mut next = |bit: u8| if flags & bit == 0 { None } else { moments.next().map(read) };
        let times = (next(1), next(2), next(4), next(8));
        self.created = times.0.or(self.created);
        self.modified = times.1.or(self.modified);
        self.accessed = times.2.or(self.accessed);
        self.changed = times.3.or(self.changed);
    }
}

fn append(text: &mut Vec<u8>, more: &[u8]) {
    if text.len().saturating_add(more.len()) <= TEXT_BYTES_MAX {
        text.extend_from_slice(more);
    }
}

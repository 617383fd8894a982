//! An entry of a zip file as a node. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rawzip::time::ZipDateTimeKind;
use rawzip::{ZipArchiveEntryWayfinder, ZipFileHeaderRecord};
use varve_archive::{Node, NodeKind};
use varve_image::FileTime;

/// Numbers of extra fields: the time in UTC, and the owner of a file.
const UNIX_TIME: u16 = 0x5455;
const UNIX_OWNER: u16 = 0x7875;
/// The system on which attributes are those of Unix.
const UNIX: u32 = 3;
const MAC: u32 = 19;

/// How the bytes of an entry are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZipMethod {
    Stored,
    Deflate,
    Other(u16),
}

/// An entry.
pub(super) struct ZipItem {
    pub(super) path: Vec<u8>,
    pub(super) node: Node,
    pub(super) method: ZipMethod,
    pub(super) is_encrypted: bool,
    /// The size that the central directory tells.
    pub(super) bytes: u64,
    /// The place of its header, and its compressed size.
    pub(super) place: (u64, u64),
    pub(super) wayfinder: ZipArchiveEntryWayfinder,
}

impl ZipItem {
    pub(super) fn new(record: &ZipFileHeaderRecord<'_>, zone: &TimeZone) -> Self {
        let mut path = record.file_path().as_bytes().to_vec();
        let is_folder_name = path.last() == Some(&b'/');
        let system = u32::from(record.version_made_by().as_u16() >> 8);
        let attributes = record.external_attributes();
        let has_mode = matches!(system, UNIX | MAC) && attributes >> 16 != 0;
        // Programs of Windows may write their own separator.
        if !has_mode && !path.contains(&b'/') {
            path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
        }
        let mode = if has_mode { attributes >> 16 } else { 0 };
        let kind = match mode & 0o170_000 {
            0o040_000 => NodeKind::Folder,
            0o120_000 => NodeKind::SymbolicLink,
            0o010_000 => NodeKind::Fifo,
            0o140_000 => NodeKind::Socket,
            _ if is_folder_name || (!has_mode && attributes & 0x10 != 0) => NodeKind::Folder,
            _ => NodeKind::File,
        };
        let mut node = Node::new(Vec::new(), kind);
        node.mode = match (has_mode, kind) {
            (true, _) => u16::try_from(mode & 0o7777).unwrap_or(0),
            (false, NodeKind::Folder) => 0o755,
            (false, _) => 0o644,
        };
        node.mtime = FileTime::new(seconds(record, zone), 0);
        for (id, data) in record.extra_fields() {
            if id.as_u16() == UNIX_OWNER
                && let Some((uid, gid)) = owner(data)
            {
                (node.uid, node.gid) = (uid, gid);
            }
        }
        let method = match record.compression_method().as_u16() {
            0 => ZipMethod::Stored,
            8 => ZipMethod::Deflate,
            other => ZipMethod::Other(other),
        };
        Self {
            path,
            node,
            method,
            is_encrypted: record.flags().is_encrypted(),
            bytes: record.uncompressed_size_hint(),
            place: (record.local_header_offset(), record.compressed_size_hint()),
            wayfinder: record.wayfinder(),
        }
    }
}

/// The time of the last change, in seconds since 1970 UTC. Without an extra field, it is one in the
/// zone of the machine that made the archive, to two seconds: this machine's zone is taken.
fn seconds(record: &ZipFileHeaderRecord<'_>, zone: &TimeZone) -> i64 {
    for (id, data) in record.extra_fields() {
        if id.as_u16() == UNIX_TIME
            && let Some((flags, rest)) = data.split_first()
            && flags & 1 == 1
            && let Some(time) = rest.first_chunk::<4>()
        {
            return i32::from_le_bytes(*time).into();
        }
    }
    let time = record.last_modified();
    let part = |part: u8| i8::try_from(part).unwrap_or(0);
    let year = i16::try_from(time.year()).unwrap_or(1980);
    let civil = DateTime::new(
        year,
        part(time.month()),
        part(time.day()),
        part(time.hour()),
        part(time.minute()),
        part(time.second()),
        0,
    );
    let zone = if matches!(time, ZipDateTimeKind::Utc(_)) { &TimeZone::UTC } else { zone };
    civil.ok().and_then(|civil| zone.to_timestamp(civil).ok()).map_or(0, |time| time.as_second())
}

/// The owner and the group in the extra field of Info-ZIP.
fn owner(data: &[u8]) -> Option<(u32, u32)> {
    let rest = data.strip_prefix(&[1])?;
    let (uid, rest) = number(rest)?;
    let (gid, _) = number(rest)?;
    Some((uid, gid))
}

fn number(data: &[u8]) -> Option<(u32, &[u8])> {
    let (length, rest) = data.split_first()?;
    let (bytes, rest) = rest.split_at_checked((*length).into())?;
    let value = bytes.iter().rev().try_fold(0_u64, |value, byte| {
        value.checked_mul(256).and_then(|value| value.checked_add((*byte).into()))
    })?;
    Some((u32::try_from(value).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read() {
        assert_eq!(owner(&[1, 4, 0xe8, 3, 0, 0, 2, 5, 1]), Some((1000, 261)));
        assert_eq!(owner(&[1, 9, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]), None);
        assert_eq!(owner(&[2, 1, 1, 1, 1]), None);
        assert_eq!(owner(&[1, 4, 1]), None);
    }
}

//! An entry of a zip file as a node. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rawzip::time::ZipDateTimeKind;
use rawzip::{ZipArchiveEntryWayfinder, ZipFileHeaderRecord};
use varve_content::{Node, NodeKind};
use varve_image::FileTime;

/// Numbers of extra fields: the time in UTC, the owner of a file, and its path in UTF-8.
const UNIX_TIME: u16 = 0x5455;
const UNICODE_PATH: u16 = 0x7075;
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
    /// True if the path was in the code page of DOS.
    pub(super) is_from_dos: bool,
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
        let system = u32::from(record.version_made_by().as_u16() >> 8);
        let (mut path, is_from_dos) = path(record, system);
        let is_folder_name = path.last() == Some(&b'/');
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
            is_from_dos,
            node,
            method,
            is_encrypted: record.flags().is_encrypted(),
            bytes: record.uncompressed_size_hint(),
            place: (record.local_header_offset(), record.compressed_size_hint()),
            wayfinder: record.wayfinder(),
        }
    }
}

/// The path of an entry in UTF-8, or in the bytes of a system of Unix. Returns true if it was in
/// the code page of DOS: the format says so for names that are not marked as UTF-8, and Windows
/// Explorer writes them. Many programs write UTF-8 without the mark.
fn path(record: &ZipFileHeaderRecord<'_>, system: u32) -> (Vec<u8>, bool) {
    let bytes = record.file_path().as_bytes();
    let is_marked = record.flags().is_utf8();
    let unicode = record.extra_fields().filter(|(id, _)| id.as_u16() == UNICODE_PATH);
    let unicode = unicode.filter_map(|(_, data)| unicode_path(data, bytes)).next();
    match unicode {
        Some(path) if !is_marked => (path.to_vec(), false),
        _ if is_marked || matches!(system, UNIX | MAC) || std::str::from_utf8(bytes).is_ok() => {
            (bytes.to_vec(), false)
        }
        _ => (bytes.iter().copied().map(code_page_437).collect::<String>().into_bytes(), true),
    }
}

/// The path in an extra field of Info-ZIP, if it was made for this path of the entry.
fn unicode_path<'a>(data: &'a [u8], of: &[u8]) -> Option<&'a [u8]> {
    let (code, path) = data.strip_prefix(&[1])?.split_first_chunk::<4>()?;
    let is_good = u32::from_le_bytes(*code) == rawzip::crc32(of) && !path.is_empty();
    (is_good && std::str::from_utf8(path).is_ok()).then_some(path)
}

/// A character of the code page 437. Its first half is ASCII.
fn code_page_437(byte: u8) -> char {
    const UPPER: [char; 128] = [
        'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ', 'ô',
        'ö', 'ò', 'û', 'ù', 'ÿ', 'Ö', 'Ü', '¢', '£', '¥', '₧', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ', 'ª', 'º',
        '¿', '⌐', '¬', '½', '¼', '¡', '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕', '╣', '║', '╗',
        '╝', '╜', '╛', '┐', '└', '┴', '┬', '├', '─', '┼', '╞', '╟', '╚', '╔', '╩', '╦', '╠', '═', '╬', '╧',
        '╨', '╤', '╥', '╙', '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█', '▄', '▌', '▐', '▀', 'α', 'ß', 'Γ', 'π',
        'Σ', 'σ', 'µ', 'τ', 'Φ', 'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±', '≥', '≤', '⌠', '⌡', '÷', '≈',
        '°', '∙', '·', '√', 'ⁿ', '²', '■', '\u{a0}',
    ];
    let place = usize::from(byte).checked_sub(128);
    place.and_then(|place| UPPER.get(place).copied()).unwrap_or(char::from(byte))
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
    fn the_code_page_of_dos_has_a_character_for_each_byte() {
        let text: String = b"\x9aber gr\x94\xe1e.txt".iter().copied().map(code_page_437).collect();
        assert_eq!(text, "Über größe.txt");
        assert_eq!(code_page_437(b'~'), '~');
        let all: std::collections::BTreeSet<char> = (0..=255).map(code_page_437).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn a_path_in_an_extra_field_belongs_to_one_path() {
        let field = |of: &[u8], path: &[u8]| [&[1][..], &rawzip::crc32(of).to_le_bytes(), path].concat();
        assert_eq!(unicode_path(&field(b"x", "ü".as_bytes()), b"x"), Some("ü".as_bytes()));
        assert_eq!(unicode_path(&field(b"y", "ü".as_bytes()), b"x"), None, "it was renamed since");
        assert_eq!(unicode_path(&field(b"x", b"\xff"), b"x"), None);
        assert_eq!(unicode_path(&field(b"x", b""), b"x"), None);
        assert_eq!(unicode_path(&[2, 0, 0, 0, 0, b'a'], b"x"), None);
    }

    #[test]
    fn owners_are_read() {
        assert_eq!(owner(&[1, 4, 0xe8, 3, 0, 0, 2, 5, 1]), Some((1000, 261)));
        assert_eq!(owner(&[1, 9, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]), None);
        assert_eq!(owner(&[2, 1, 1, 1, 1]), None);
        assert_eq!(owner(&[1, 4, 1]), None);
    }
}

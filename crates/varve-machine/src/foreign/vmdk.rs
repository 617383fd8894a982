//! Reads the descriptor of a VMDK, which names its extents and its parent, in the same way as QEMU.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;

use super::header_fields::{ImageHeader, NamedFile, read, wrong};

pub(super) const MAGIC: &[u8] = b"KDMV";
pub(super) const OLD_MAGIC: &[u8] = b"COWD";
pub(super) const TEXT: &[u8] = b"# Disk DescriptorFile";
/// The offset of the descriptor in an image that also has data.
const TEXT_OFFSET: u64 = 512;
/// The limit of the descriptor's length. QEMU reads one byte less from a pure descriptor file, and
/// 20 sectors from an image with data.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The longest name that QEMU reads; it truncates longer ones.
const NAME_BYTES_MAX: usize = 511;
const SECTOR_BYTES: u64 = 512;

pub(super) fn header(file: &File) -> io::Result<ImageHeader> {
    let start = read(file, 0, 64)?;
    if start.starts_with(OLD_MAGIC) {
        return Ok(ImageHeader::default());
    }
    if !start.starts_with(MAGIC) {
        return text_header(&read(file, 0, TEXT_BYTES_MAX)?);
    }
    let little = |offset: usize| {
        start.get(offset..).and_then(|rest| rest.first_chunk()).map(|b| u64::from_le_bytes(*b))
    };
    let (capacity, text_sector) = (little(12).unwrap_or(0), little(28).unwrap_or(0));
    if capacity == 0 {
        // An image of capacity 0 looks like one with data, but is a list of extents. QEMU drops the
        // bits of the offset that overflow.
        return text_header(&read(file, text_sector.wrapping_mul(SECTOR_BYTES), TEXT_BYTES_MAX)?);
    }
    let said = text_header(&read(file, TEXT_OFFSET, TEXT_BYTES_MAX)?)?;
    // The only extent in its descriptor is the image itself.
    Ok(ImageHeader { extents: Vec::new(), ..said })
}

fn text_header(bytes: &[u8]) -> io::Result<ImageHeader> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
    let mut header = ImageHeader::default();
    let mut has_parent = false;
    let mut rest = text.as_ref();
    while !rest.is_empty() {
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        // An empty line is skipped: `extent` ignores line ends, and would find the extent of the
        // next line twice.
        if !line.chars().all(is_c_space) {
            header.extents.extend(extent(rest)?);
        }
        if let Some(parent) = line.trim_start().strip_prefix("parentFileNameHint") {
            header.backing = parent.split('"').nth(1).map(|name| (name.to_owned(), Some("vmdk".to_owned())));
        } else if let Some(id) = line.trim_start().strip_prefix("parentCID=") {
            has_parent = !id.trim().eq_ignore_ascii_case("ffffffff");
        }
        rest = below;
    }
    if !has_parent {
        header.backing = None;
    } else if header.backing.is_none() {
        return Err(wrong("it does not name its backing image"));
    }
    Ok(header)
}

/// Parses the extent at the beginning of a text as QEMU does: line ends count as spaces between
/// words, and some spaces are optional.
fn extent(text: &str) -> io::Result<Option<NamedFile>> {
    let (access, rest) = word(text);
    if !["RW", "RDONLY", "NOACCESS"].contains(&access) {
        return Ok(None);
    }
    let Some((sectors, rest)) = number(rest) else { return Ok(None) };
    let rest = rest.trim_start_matches(is_c_space);
    // A word of QEMU's maximal length ends without a space.
    let kind_ends = rest.find(|c| is_c_space(c) || c == '"').unwrap_or(rest.len());
    let (kind, rest) = rest.split_at(kind_ends);
    let Some(rest) = rest.trim_start_matches(is_c_space).strip_prefix('"') else { return Ok(None) };
    let (name, rest) = rest.split_at(rest.find(['"', '\n', '\r']).unwrap_or(rest.len()));
    if name.len() > NAME_BYTES_MAX {
        return Err(wrong("it names a file with a name that is too long"));
    }
    let offset = number(rest.strip_prefix('"').unwrap_or_default()).map_or(0, |(offset, _)| offset);
    let bytes_min = match kind {
        "FLAT" | "VMFS" => offset.saturating_add(sectors).saturating_mul(SECTOR_BYTES),
        _ => 0,
    };
    Ok(Some(NamedFile { name: name.to_owned(), bytes_min }))
}

fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Returns the first word of a text, and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(is_c_space);
    text.split_at(text.find(is_c_space).unwrap_or(text.len()))
}

/// Parses the number at the beginning of a text, and returns the rest. A number that is too large
/// is clamped to the maximum.
fn number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start_matches(is_c_space);
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    if digits.is_empty() {
        return None;
    }
    Some((digits.parse().unwrap_or(u64::MAX), rest))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::super::header::tests::file_of;
    use super::*;
    use crate::foreign::ImageFormat;

    fn header_of(bytes: &[u8]) -> ImageHeader {
        header(&file_of(bytes)).unwrap()
    }

    #[test]
    fn a_vmdk_says_where_its_parts_are() {
        let text = "# Disk DescriptorFile\nCID=1\nparentCID=1234\nparentFileNameHint=\"base.vmdk\"\n\
                    RW 2048 FLAT \"disk-flat.vmdk\" 0\n RW 5 ZERO\nRDONLY 1 SPARSE \"/etc/passwd\"\n";
        assert_eq!(ImageFormat::detect(&file_of(text.as_bytes())).unwrap(), ImageFormat::Vmdk);
        let said = header_of(text.as_bytes());
        let named = |name: &str, bytes_min| NamedFile { name: name.into(), bytes_min };
        assert_eq!(said.extents, [named("disk-flat.vmdk", 1 << 20), named("/etc/passwd", 0)]);
        assert_eq!(said.backing, Some(("base.vmdk".into(), Some("vmdk".into()))));
        // An image with data, and one without, which is a list of extents.
        let mut sparse = [MAGIC, &[0; 60], &[0; 448], text.as_bytes()].concat();
        sparse[28] = 1;
        assert_eq!(header_of(&sparse).extents.len(), 2);
        sparse[12] = 1;
        let said = header_of(&sparse);
        assert_eq!((said.extents.len(), said.backing.is_some()), (0, true));
        let alone = text.replace("1234", "ffffffff");
        assert_eq!(header_of(alone.as_bytes()).backing, None);
    }

    #[test]
    fn a_part_is_found_wherever_qemu_finds_it() {
        let filler = "# nothing\n".repeat(20_000);
        for line in [
            "RW 3 FLAT \"x\" 2",
            "RW\n3\r\n\x0bFLAT\n\"x\" 2",
            " \t\nRW +3FLAT \"x\"2",
            "RW 3 VMFS \"x\"\n2",
            &format!("{filler}RW 3 FLAT \"x\" 2"),
            "RW 3 FLAT\"x\" 2",
            "RWRW 1\nRW 3 FLAT \"x\" 2",
        ] {
            let said = header_of(format!("# Disk DescriptorFile\n{line}").as_bytes());
            let x = NamedFile { name: "x".into(), bytes_min: 5 * 512 };
            assert!(said.extents.contains(&x), "{line:?}: {:?}", said.extents);
        }
        // The closing quote of a name may be missing, and so may the space before it.
        assert_eq!(header_of(b"RW 3 SPARSE \"x\n").extents[0].name, "x");
        assert_eq!(header_of(b"RW 3 VMFSSPARSE\"x\"").extents[0].name, "x");
        // A list of extents at an offset that overflows in QEMU, which drops the excess bits.
        let text = "RW 3 SPARSE \"x\"";
        let mut list = [MAGIC, &[0; 508], text.as_bytes()].concat();
        list[28..36].copy_from_slice(&((1_u64 << 55) | 1).to_le_bytes());
        assert_eq!(header_of(&list).extents[0].name, "x");
        let nameless = "# Disk DescriptorFile\nparentCID=1234\n";
        assert!(header(&file_of(nameless.as_bytes())).is_err());
        let long = format!("RW 3 SPARSE \"{}\"", "/".repeat(512));
        assert!(header(&file_of(long.as_bytes())).is_err());
        let endless = format!("RW {0} FLAT \"x\" {0}", "9".repeat(30));
        assert_eq!(header_of(endless.as_bytes()).extents[0].bytes_min, u64::MAX);
    }
}

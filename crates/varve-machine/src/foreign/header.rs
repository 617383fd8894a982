//! Determines the format of a disk image and the other files that it names, from its first bytes
//! and its last ones. Opens no other file.
//!
//! The writer of a disk can make these bytes say anything. So the result here decides which
//! files QEMU is told to open, and QEMU never decides that by itself.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;

use varve_block::to_usize;

use super::header_fields::{ImageHeader, NamedFile, read, wrong};
use super::vmdk;

/// A format of disk images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// The plain bytes of the disk.
    Raw,
    /// The native format of QEMU.
    Qcow2,
    /// The predecessor of qcow2. It is recognised only to explain the conversion.
    Qcow,
    /// The format of `VMware`.
    Vmdk,
    /// The format of Hyper-V.
    Vhdx,
    /// The format of `VirtualBox`.
    Vdi,
    /// The format of Virtual PC, `.vhd`.
    Vpc,
}

const QCOW_MAGIC: &[u8] = b"QFI\xfb\0\0\0\x01";
const QCOW2_MAGIC: &[u8] = b"QFI\xfb";
const QCOW2_BACKING_FORMAT: u32 = 0xe279_2aca;
const QCOW2_DATA_FILE: u32 = 0x4441_5441;
const QCOW2_END: u32 = 0;
/// The names of features, for readers that do not know them.
const QCOW2_FEATURE_NAMES: u32 = 0x6803_f857;
/// The feature bit of a damaged image.
const QCOW2_IS_CORRUPT: u64 = 1 << 1;
/// The feature bit of an image whose data is in a separate file.
const QCOW2_HAS_DATA_FILE: u64 = 1 << 2;
/// The header length of version 2, which has no feature fields.
const QCOW2_OLD_HEADER_BYTES: u32 = 72;
/// The longest name of a backing file according to the specification.
const QCOW2_NAME_BYTES_MAX: u32 = 1023;
/// The names of snapshots that are read, and the most bytes of one entry of their table.
const QCOW2_SNAPSHOT_NAMES_MAX: u32 = 16;
const QCOW2_SNAPSHOT_BYTES_MAX: usize = 128 << 10;
const QCOW2_CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
const VDI_MAGIC: [u8; 4] = 0xbeda_107f_u32.to_le_bytes();
const VDI_MAGIC_OFFSET: usize = 64;
/// Dynamic and fixed size. The other kinds hold only the differences to an image for which QEMU
/// does not look.
const VDI_WHOLE: [u32; 2] = [1, 2];
const VPC_MAGIC: &[u8] = b"conectix";
const VPC_FOOTER_BYTES: u64 = 512;
const VPC_SIZE_OFFSET: usize = 48;
const VPC_KIND_OFFSET: usize = 60;
const VPC_FIXED: u32 = 2;
const VPC_DIFFERENCING: u32 = 4;
const VPC_SUM_OFFSET: usize = 64;

impl ImageFormat {
    /// Returns QEMU's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Qcow => "qcow",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vdi => "vdi",
            Self::Vpc => "vpc",
        }
    }

    /// Returns the format with this name in QEMU, or this common name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "vhd" => Some(Self::Vpc),
            _ => [Self::Raw, Self::Qcow2, Self::Vmdk, Self::Vhdx, Self::Vdi, Self::Vpc]
                .into_iter()
                .find(|format| format.name() == name),
        }
    }

    /// Detects the format from the first bytes of a file, or from its last ones, where a fixed VHD
    /// has its header; raw if there is no magic number.
    ///
    /// # Errors
    /// [`io::Error`] if they cannot be read.
    pub fn detect(file: &File) -> io::Result<Self> {
        let start = read(file, 0, 512)?;
        Ok(match start.as_slice() {
            start if start.starts_with(QCOW_MAGIC) => Self::Qcow,
            start if start.starts_with(QCOW2_MAGIC) => Self::Qcow2,
            start
                if [vmdk::MAGIC, vmdk::OLD_MAGIC, vmdk::TEXT]
                    .iter()
                    .any(|magic| start.starts_with(magic)) =>
            {
                Self::Vmdk
            }
            start if start.starts_with(b"vhdxfile") => Self::Vhdx,
            start if start.starts_with(VPC_MAGIC) => Self::Vpc,
            start if start.get(VDI_MAGIC_OFFSET..).is_some_and(|rest| rest.starts_with(&VDI_MAGIC)) => {
                Self::Vdi
            }
            _ if is_fixed_vpc(file)? => Self::Vpc,
            _ => Self::Raw,
        })
    }

    /// Reads the names of the other files of an image of this format.
    ///
    /// # Errors
    /// [`io::Error`] if it cannot be read, or is invalid.
    pub(super) fn header(self, file: &File) -> io::Result<ImageHeader> {
        match self {
            Self::Qcow2 => qcow2(file),
            Self::Vmdk => vmdk::header(file),
            Self::Vdi => vdi(file),
            Self::Qcow => Err(wrong(
                "the format qcow is not supported: convert it with qemu-img convert -f qcow -O qcow2; --format raw archives the file as it is",
            )),
            Self::Vpc => vpc(file),
            // QEMU supports no VHDX with a backing image, and reports a truncated one itself.
            Self::Raw | Self::Vhdx => Ok(ImageHeader::default()),
        }
    }
}

fn text(bytes: &[u8]) -> io::Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| wrong("it names a file that is not UTF-8"))
}

fn u32_at(bytes: &[u8], offset: usize) -> io::Result<u32> {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map(|field| u32::from_be_bytes(*field)).ok_or_else(|| wrong("its header is cut short"))
}

fn u64_at(bytes: &[u8], offset: usize) -> io::Result<u64> {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map(|field| u64::from_be_bytes(*field)).ok_or_else(|| wrong("its header is cut short"))
}

/// The header of a qcow2, not checked yet.
struct Qcow2 {
    version: u32,
    /// The size of the disk in bytes.
    size: u64,
    /// The backing image.
    backing: Option<String>,
    /// The format of the backing image, if the header names it.
    backing_format: Option<String>,
    data_file: Option<String>,
    encryption: u32,
    snapshot_count: u32,
    snapshots_at: u64,
    /// The incompatible, compatible and autoclear features.
    features: [u64; 3],
    /// The types of all header extensions.
    extensions: Vec<u32>,
}

impl Qcow2 {
    fn read(file: &File) -> io::Result<Self> {
        let start = read(file, 0, 512)?;
        if !start.starts_with(QCOW2_MAGIC) {
            return Err(wrong("it is not a qcow2 image"));
        }
        let version = u32_at(&start, 4)?;
        if !(2..=3).contains(&version) {
            return Err(wrong(&format!("it has the qcow version {version}: 2 and 3 are supported")));
        }
        let cluster_bits = u32_at(&start, 20)?;
        if !QCOW2_CLUSTER_BITS.contains(&cluster_bits) {
            return Err(wrong("its cluster size is impossible"));
        }
        let cluster = read(file, 0, 1 << cluster_bits)?;
        let (backing_offset, backing_bytes) = (u64_at(&cluster, 8)?, u32_at(&cluster, 16)?);
        if backing_offset > 0 && backing_bytes > QCOW2_NAME_BYTES_MAX {
            return Err(wrong("the name of its backing image is too long"));
        }
        let (features, extensions_at) = match version {
            2 => ([0; 3], QCOW2_OLD_HEADER_BYTES),
            _ => (
                [u64_at(&cluster, 72)?, u64_at(&cluster, 80)?, u64_at(&cluster, 88)?],
                u32_at(&cluster, 100)?,
            ),
        };
        let mut qcow2 = Self {
            version,
            size: u64_at(&cluster, 24)?,
            backing: None,
            backing_format: None,
            data_file: None,
            encryption: u32_at(&cluster, 32)?,
            snapshot_count: u32_at(&cluster, 60)?,
            snapshots_at: u64_at(&cluster, 64)?,
            features,
            extensions: Vec::new(),
        };
        let mut rest = cluster.get(to_usize(extensions_at)..).unwrap_or_default();
        while let (Ok(kind), Ok(length)) = (u32_at(rest, 0), u32_at(rest, 4)) {
            if kind == QCOW2_END {
                break;
            }
            qcow2.extensions.push(kind);
            let length = to_usize(length);
            let Some(data) = rest.get(8..).and_then(|rest| rest.get(..length)) else { break };
            match kind {
                QCOW2_BACKING_FORMAT => qcow2.backing_format = Some(text(data)?),
                QCOW2_DATA_FILE => qcow2.data_file = Some(text(data)?),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(8).saturating_add(8)..).unwrap_or_default();
        }
        if backing_offset > 0 && backing_bytes > 0 {
            let name = read(file, backing_offset, to_usize(backing_bytes))?;
            qcow2.backing = Some(text(&name)?);
        }
        Ok(qcow2)
    }
}

fn qcow2(file: &File) -> io::Result<ImageHeader> {
    let qcow2 = Qcow2::read(file)?;
    let [features, ..] = qcow2.features;
    if features & QCOW2_IS_CORRUPT != 0 {
        return Err(wrong(
            "QEMU has marked it as damaged: try qemu-img check -r all, best on a copy; --format raw archives the file as it is",
        ));
    }
    let data_file = qcow2.data_file.filter(|_| features & QCOW2_HAS_DATA_FILE != 0);
    if features & QCOW2_HAS_DATA_FILE != 0 && data_file.is_none() {
        return Err(wrong("its data is in another file, but it does not name that file"));
    }
    // Data is at the same offset in that file as on the disk.
    let data_file = data_file.map(|name| NamedFile { name, bytes_min: qcow2.size });
    let format = qcow2.backing_format;
    Ok(ImageHeader {
        backing: qcow2.backing.map(|name| (name, format)),
        data_file,
        snapshot_count: qcow2.snapshot_count,
        snapshot_names: snapshot_names(file, qcow2.snapshots_at, qcow2.snapshot_count),
        ..ImageHeader::default()
    })
}

/// Reads the names in the snapshot table of a qcow2, as far as it makes sense.
fn snapshot_names(file: &File, table_at: u64, count: u32) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = table_at;
    for _ in 0..count.min(QCOW2_SNAPSHOT_NAMES_MAX) {
        let Ok(entry) = read(file, at, QCOW2_SNAPSHOT_BYTES_MAX) else { break };
        let u16_at = |offset: usize| {
            entry.get(offset..).and_then(|rest| rest.first_chunk()).map(|field| u16::from_be_bytes(*field))
        };
        let (Some(id_bytes), Some(name_bytes), Ok(extra_bytes)) =
            (u16_at(12), u16_at(14), u32_at(&entry, 36))
        else {
            break;
        };
        let name_at = 40_usize.saturating_add(to_usize(extra_bytes)).saturating_add(id_bytes.into());
        let name = entry.get(name_at..).and_then(|rest| rest.get(..name_bytes.into()));
        let Some(name) = name else { break };
        names.push(String::from_utf8_lossy(name).into_owned());
        let entry_bytes = name_at.saturating_add(name_bytes.into()).next_multiple_of(8);
        at = at.saturating_add(entry_bytes as u64);
    }
    names
}

/// Returns the backing image of a qcow2 that `qemu-img create` makes over a raw disk without
/// further options, and that has all its data in itself.
///
/// # Errors
/// [`io::Error`] that names the other feature, if it is not such a file.
pub(crate) fn plain_qcow2_over_raw(file: &File) -> io::Result<String> {
    let qcow2 = Qcow2::read(file)?;
    let [features, compatible, autoclear] = qcow2.features;
    let is_known = |kind: &u32| [QCOW2_BACKING_FORMAT, QCOW2_FEATURE_NAMES].contains(kind);
    if features & QCOW2_HAS_DATA_FILE != 0 || qcow2.data_file.is_some() {
        return Err(wrong("its data is in another file"));
    }
    if features & QCOW2_IS_CORRUPT != 0 {
        return Err(wrong("QEMU has marked it as damaged: try qemu-img check -r all"));
    }
    if qcow2.encryption != 0 {
        return Err(wrong("it is encrypted"));
    }
    if qcow2.snapshot_count != 0 {
        return Err(wrong("it has internal snapshots: delete them with qemu-img snapshot -d"));
    }
    let is_plain = qcow2.version == 3 && [features, compatible, autoclear] == [0; 3];
    if !is_plain || !qcow2.extensions.iter().all(is_known) {
        return Err(wrong("it has features that a file made by `varve boot --keep` does not have"));
    }
    if qcow2.backing_format.as_deref() != Some("raw") {
        return Err(wrong("its backing image is not raw"));
    }
    qcow2.backing.ok_or_else(|| wrong("it has no backing image"))
}

/// Reads the header at the end of a VHD.
fn vpc_footer(file: &File) -> io::Result<Vec<u8>> {
    read(file, file.metadata()?.len().saturating_sub(VPC_FOOTER_BYTES), 512)
}

/// Returns true for a fixed VHD: the bytes of a disk, and a header after them that matches its
/// checksum and states their number.
fn is_fixed_vpc(file: &File) -> io::Result<bool> {
    let footer = vpc_footer(file)?;
    if !footer.starts_with(VPC_MAGIC) || u32_at(&footer, VPC_KIND_OFFSET)? != VPC_FIXED {
        return Ok(false);
    }
    // The complement of the sum of all bytes but its own.
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    let own = footer.get(VPC_SUM_OFFSET..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |own| sum(own));
    let disk_bytes = file.metadata()?.len().saturating_sub(VPC_FOOTER_BYTES);
    Ok(u32_at(&footer, VPC_SUM_OFFSET)? == !sum(&footer).wrapping_sub(own)
        && u64_at(&footer, VPC_SIZE_OFFSET)? == disk_bytes)
}

fn vpc(file: &File) -> io::Result<ImageHeader> {
    let start = read(file, 0, 512)?;
    let is_dynamic = start.starts_with(VPC_MAGIC);
    if is_dynamic && u32_at(&start, VPC_KIND_OFFSET)? == VPC_DIFFERENCING {
        return Err(wrong(
            "it is a differencing VHD, which QEMU does not support: --format raw archives the file as it is",
        ));
    }
    // A fixed VHD has its header only at the end.
    let footer = match is_dynamic {
        true => start,
        false => vpc_footer(file)?,
    };
    let disk_bytes = footer.starts_with(VPC_MAGIC).then(|| u64_at(&footer, VPC_SIZE_OFFSET)).transpose()?;
    Ok(ImageHeader { disk_bytes, ..ImageHeader::default() })
}

fn vdi(file: &File) -> io::Result<ImageHeader> {
    let start = read(file, 0, 512)?;
    let little = |offset: usize| {
        let field = start.get(offset..).and_then(|rest| rest.first_chunk());
        field.map(|field| u32::from_le_bytes(*field)).ok_or_else(|| wrong("its header is cut short"))
    };
    let kind = little(76)?;
    if !VDI_WHOLE.contains(&kind) {
        return Err(wrong(&format!(
            "it is a VDI of type {kind}, which is not complete without another image: merge both with VBoxManage clonemedium; --format raw archives the file as it is"
        )));
    }
    let (data_offset, block_bytes, block_count) = (little(344)?, little(376)?, little(388)?);
    let data_bytes = u64::from(block_bytes).saturating_mul(block_count.into());
    Ok(ImageHeader { bytes_min: data_bytes.saturating_add(data_offset.into()), ..ImageHeader::default() })
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(super) mod tests {
    use proptest::prelude::*;

    use std::os::unix::fs::FileExt;

    use super::*;

    pub(in super::super) fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn qcow2_of(backing: &str, extensions: &[(u32, &[u8])], features: u64) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        bytes[..4].copy_from_slice(QCOW2_MAGIC);
        bytes[4..8].copy_from_slice(&3_u32.to_be_bytes());
        bytes[8..16].copy_from_slice(&(if backing.is_empty() { 0_u64 } else { 4096 }).to_be_bytes());
        bytes[16..20].copy_from_slice(&u32::try_from(backing.len()).unwrap().to_be_bytes());
        bytes[20..24].copy_from_slice(&16_u32.to_be_bytes());
        bytes[72..80].copy_from_slice(&features.to_be_bytes());
        bytes[100..104].copy_from_slice(&104_u32.to_be_bytes());
        bytes[4096..4096 + backing.len()].copy_from_slice(backing.as_bytes());
        let mut at = 104;
        for (kind, data) in extensions {
            bytes[at..at + 4].copy_from_slice(&kind.to_be_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
            bytes[at + 8..at + 8 + data.len()].copy_from_slice(data);
            at += 8 + data.len().next_multiple_of(8);
        }
        bytes
    }

    fn header(format: ImageFormat, bytes: &[u8]) -> ImageHeader {
        format.header(&file_of(bytes)).unwrap()
    }

    #[test]
    fn a_qcow2_says_what_it_stands_on() {
        let plain = qcow2_of("", &[(0x6803_f857, &[1; 9])], 0);
        assert_eq!(ImageFormat::detect(&file_of(&plain)).unwrap(), ImageFormat::Qcow2);
        assert_eq!(header(ImageFormat::Qcow2, &plain), ImageHeader::default());
        let standing = qcow2_of("base.img", &[(1, &[1; 3]), (QCOW2_BACKING_FORMAT, b"raw")], 0);
        let backing = header(ImageFormat::Qcow2, &standing).backing;
        assert_eq!(backing, Some(("base.img".into(), Some("raw".into()))));
        let elsewhere = qcow2_of("", &[(QCOW2_DATA_FILE, b"/etc/shadow")], QCOW2_HAS_DATA_FILE);
        assert_eq!(header(ImageFormat::Qcow2, &elsewhere).data_file.unwrap().name, "/etc/shadow");
        let nowhere = qcow2_of("", &[], QCOW2_HAS_DATA_FILE);
        assert!(ImageFormat::Qcow2.header(&file_of(&nowhere)).is_err());
    }

    #[test]
    fn a_plain_qcow2_has_nothing_else() {
        let plain: [(u32, &[u8]); 2] = [(QCOW2_BACKING_FORMAT, b"raw"), (QCOW2_FEATURE_NAMES, &[0; 48])];
        let said = |bytes: &[u8]| match plain_qcow2_over_raw(&file_of(bytes)) {
            Ok(below) => below,
            Err(error) => format!("refused: {error}"),
        };
        assert_eq!(said(&qcow2_of("below", &plain, 0)), "below");
        for (wrong, why) in [
            (qcow2_of("below", &plain, QCOW2_HAS_DATA_FILE), "another file"),
            (qcow2_of("below", &[plain[0], (QCOW2_DATA_FILE, b"/etc/shadow")], 0), "another file"),
            (qcow2_of("below", &plain, QCOW2_IS_CORRUPT), "damaged"),
            (qcow2_of("below", &plain, 1 << 4), "features"),
            (qcow2_of("below", &[plain[0], (7, b"")], 0), "features"),
            (qcow2_of("below", &[(QCOW2_BACKING_FORMAT, b"qcow2")], 0), "not raw"),
            (qcow2_of("below", &[], 0), "not raw"),
            (qcow2_of("", &plain, 0), "no backing image"),
        ] {
            assert!(said(&wrong).starts_with("refused: ") && said(&wrong).contains(why), "{}", said(&wrong));
        }
        for (place, why) in
            [(35, "encrypted"), (63, "snapshots"), (95, "features"), (87, "features"), (7, "")]
        {
            let mut wrong = qcow2_of("below", &plain, 0);
            wrong[place] ^= 1;
            assert!(said(&wrong).starts_with("refused: ") && said(&wrong).contains(why), "{place}");
        }
    }

    #[test]
    fn a_qcow2_names_its_snapshots() {
        let entry = |id: &[u8], name: &[u8], extra_bytes: u8| {
            let mut entry = vec![0; 40];
            entry[13] = u8::try_from(id.len()).unwrap();
            entry[15] = u8::try_from(name.len()).unwrap();
            entry[39] = extra_bytes;
            let mut entry = [&entry, &vec![7; extra_bytes.into()][..], id, name].concat();
            entry.resize(entry.len().next_multiple_of(8), 0);
            entry
        };
        let mut bytes = qcow2_of("", &[], 0);
        bytes[63] = 3;
        bytes[64..72].copy_from_slice(&(1_u64 << 16).to_be_bytes());
        bytes.extend(entry(b"1", b"before-upgrade", 24));
        bytes.extend(entry(b"20", b"again", 0));
        let found = header(ImageFormat::Qcow2, &bytes);
        assert_eq!(
            (found.snapshot_count, found.snapshot_names),
            (3, vec!["before-upgrade".into(), "again".into()])
        );
    }

    #[test]
    fn a_vdi_says_how_long_it_is() {
        let mut vdi = [0; 512];
        for (place, value) in [(76, 1_u32), (344, 1 << 20), (376, 1 << 20), (388, 5)] {
            vdi[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        assert_eq!(header(ImageFormat::Vdi, &vdi).bytes_min, 6 << 20);
        vdi[76] = 4;
        let said = ImageFormat::Vdi.header(&file_of(&vdi)).unwrap_err().to_string();
        assert!(said.contains("not complete without another image"), "{said}");
        assert!(ImageFormat::Vdi.header(&file_of(&vdi[..380])).is_err());
        let mut vhd = [VPC_MAGIC, &[0; 504]].concat();
        vhd[63] = 3;
        vhd[48..56].copy_from_slice(&(25_165_824_u64).to_be_bytes());
        let stated = ImageHeader { disk_bytes: Some(25_165_824), ..ImageHeader::default() };
        assert_eq!(header(ImageFormat::Vpc, &vhd), stated);
        assert_eq!(header(ImageFormat::Vpc, &[&[0; 700][..], &vhd].concat()), stated, "a fixed one");
        vhd[63] = 4;
        assert!(ImageFormat::Vpc.header(&file_of(&vhd)).is_err());
    }

    #[test]
    fn formats_are_told_apart() {
        let mut vdi = [0; 512];
        vdi[64..68].copy_from_slice(&VDI_MAGIC);
        let detect = |bytes: &[u8]| ImageFormat::detect(&file_of(bytes)).unwrap();
        assert_eq!(detect(&vdi), ImageFormat::Vdi);
        assert_eq!(detect(b"vhdxfile"), ImageFormat::Vhdx);
        assert_eq!(detect(b"conectix"), ImageFormat::Vpc);
        assert_eq!(detect(b""), ImageFormat::Raw);
        assert_eq!(detect(b"QFI"), ImageFormat::Raw);
        assert_eq!(detect(b"QFI\xfb\0\0\0\x01"), ImageFormat::Qcow);
    }

    /// A text that begins with the magic number, a part of a VHD and a damaged header are not one.
    #[test]
    fn a_fixed_vhd_is_told_by_its_end() {
        let mut footer = [VPC_MAGIC, &[0; 504]].concat();
        footer[48..56].copy_from_slice(&1024_u64.to_be_bytes());
        footer[63] = 2;
        let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
        footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
        let detect = |disk_bytes: usize, footer: &[u8]| {
            ImageFormat::detect(&file_of(&[&vec![7; disk_bytes][..], footer].concat())).unwrap()
        };
        assert_eq!(detect(1024, &footer), ImageFormat::Vpc);
        assert_eq!(detect(1536, &footer), ImageFormat::Raw);
        for place in 0..512 {
            let mut damaged = footer.clone();
            damaged[place] ^= 4;
            assert_eq!(detect(1024, &damaged), ImageFormat::Raw, "{place}");
        }
    }

    proptest! {
        #[test]
        fn no_header_panics(
            changes in proptest::collection::vec((0..4200_usize, any::<u8>()), 0..12),
            length in 0..5000_usize,
            noise in proptest::collection::vec(any::<u8>(), 0..2000),
        ) {
            let mut bytes = qcow2_of("base", &[(QCOW2_BACKING_FORMAT, b"raw"), (QCOW2_DATA_FILE, b"x")], 4);
            for (place, byte) in changes {
                bytes[place] = byte;
            }
            bytes[..4].copy_from_slice(QCOW2_MAGIC);
            bytes.truncate(length);
            let _ = ImageFormat::Qcow2.header(&file_of(&bytes));
            let _ = ImageFormat::Vmdk.header(&file_of(&noise));
            let _ = ImageFormat::Vmdk.header(&file_of(&[vmdk::MAGIC, &noise].concat()));
        }
    }
}

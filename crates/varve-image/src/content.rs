//! What a part of a disk holds, told by the numbers that every kind of file system puts at a place of its own.

use std::fmt;

use crate::fields::{array_at, has_at, u8_at, u16_at, u32_at, u64_at};
use crate::read_at::ReadAt;
use crate::swap_header;

/// What a volume holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeContent {
    /// Files.
    FileSystem(FileSystemKind),
    /// Memory that was put aside, or room for it.
    Swap,
    /// A part of a group of LVM, whose logical volumes are listed beside it.
    LvmMember,
    /// Encrypted by LUKS.
    Luks,
    /// Encrypted by BitLocker.
    BitLocker,
    /// A part of a Linux software RAID.
    RaidMember,
    /// A bcache device.
    Bcache,
    /// Something that nobody here knows.
    Unknown,
    /// Zeros, wherever anything would say what it is.
    Empty,
}

/// The kinds of file systems that are told apart. Not all of them can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileSystemKind {
    /// Without a journal.
    Ext2,
    /// With a journal.
    Ext3,
    /// With extents, or anything else that is newer than ext3.
    Ext4,
    /// FAT with 12, 16 or 32 bits.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS.
    Ntfs,
    /// ISO 9660, with or without its extensions.
    Iso9660,
    /// UDF.
    Udf,
    /// Btrfs.
    Btrfs,
    /// XFS.
    Xfs,
    /// ZFS.
    Zfs,
    /// F2FS.
    F2fs,
    /// Bcachefs.
    Bcachefs,
    /// NILFS2.
    Nilfs2,
    /// JFS.
    Jfs,
    /// `ReiserFS`.
    ReiserFs,
    /// UFS2, of the BSDs.
    Ufs2,
    /// HFS or HFS+.
    Hfs,
    /// APFS.
    Apfs,
    /// `ReFS`.
    ReFs,
    /// `SquashFS`.
    SquashFs,
    /// EROFS.
    Erofs,
    /// Cramfs.
    CramFs,
}

impl FileSystemKind {
    /// As `mount -t` would have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Fat => "vfat",
            Self::ExFat => "exfat",
            Self::Ntfs => "ntfs",
            Self::Iso9660 => "iso9660",
            Self::Udf => "udf",
            Self::Btrfs => "btrfs",
            Self::Xfs => "xfs",
            Self::Zfs => "zfs",
            Self::F2fs => "f2fs",
            Self::Bcachefs => "bcachefs",
            Self::Nilfs2 => "nilfs2",
            Self::Jfs => "jfs",
            Self::ReiserFs => "reiserfs",
            Self::Ufs2 => "ufs2",
            Self::Hfs => "hfs",
            Self::Apfs => "apfs",
            Self::ReFs => "refs",
            Self::SquashFs => "squashfs",
            Self::Erofs => "erofs",
            Self::CramFs => "cramfs",
        }
    }
}

/// In few words: `ext4`, `swap`, `LVM`, `LUKS`, `unknown`.
impl fmt::Display for VolumeContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FileSystem(kind) => kind.name(),
            Self::Swap => "swap",
            Self::LvmMember => "LVM",
            Self::Luks => "LUKS",
            Self::BitLocker => "BitLocker",
            Self::RaidMember => "RAID",
            Self::Bcache => "bcache",
            Self::Unknown => "unknown",
            Self::Empty => "empty",
        })
    }
}

/// Behind this nothing says what it is, but for ZFS and old RAIDs.
const HEAD_BYTES: usize = 68 << 10;

/// A volume holds this if these bytes are at that place. The first that fits is believed: what is above hides what is below, as
/// a container does its content, or as the newer does what was there before.
const MAGIC: &[(VolumeContent, usize, &[u8])] = {
    use FileSystemKind as K;
    use VolumeContent as V;
    &[
        (V::Luks, 0, b"LUKS\xba\xbe"),
        (V::BitLocker, 3, b"-FVE-FS-"),
        (V::RaidMember, 0, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
        (V::RaidMember, 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
        (V::Bcache, 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
        (
            V::FileSystem(K::Bcachefs),
            4096 + 24,
            b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        ),
        (V::FileSystem(K::Ntfs), 3, b"NTFS    "),
        (V::FileSystem(K::ExFat), 3, b"EXFAT   "),
        (V::FileSystem(K::ReFs), 3, b"ReFS\0\0\0\0"),
        (V::FileSystem(K::Xfs), 0, b"XFSB"),
        (V::FileSystem(K::SquashFs), 0, b"hsqs"),
        (V::FileSystem(K::CramFs), 0, b"\x45\x3d\xcd\x28"),
        (V::FileSystem(K::Apfs), 32, b"NXSB"),
        (V::FileSystem(K::F2fs), 1024, b"\x10\x20\xf5\xf2"),
        (V::FileSystem(K::Erofs), 1024, b"\xe2\xe1\xf5\xe0"),
        (V::FileSystem(K::Hfs), 1024, b"H+\0\x04"),
        (V::FileSystem(K::Hfs), 1024, b"HX\0\x05"),
        (V::FileSystem(K::Jfs), 32 << 10, b"JFS1"),
        (V::FileSystem(K::Iso9660), (32 << 10) + 1, b"CD001"),
        (V::FileSystem(K::Udf), (32 << 10) + 1, b"BEA01"),
        (V::FileSystem(K::Btrfs), (64 << 10) + 64, b"_BHRfS_M"),
        (V::FileSystem(K::ReiserFs), (64 << 10) + 52, b"ReIsEr"),
        (V::FileSystem(K::Ufs2), (64 << 10) + 1372, b"\x19\x01\x54\x19"),
    ]
};

/// The beginning of a volume, in which nearly all say what they are; what cannot be read is zeros.
pub(crate) fn read_head(volume: &dyn ReadAt) -> Vec<u8> {
    let length = usize::try_from(volume.size()).unwrap_or(usize::MAX).min(HEAD_BYTES);
    let mut head = vec![0; length];
    if volume.read_at(0, &mut head).is_err() {
        head.fill(0);
        for (place, sector) in (0..).zip(head.chunks_mut(4096)) {
            if volume.read_at(place * 4096, sector).is_err() {
                sector.fill(0);
            }
        }
    }
    head
}

/// What a volume holds.
pub(crate) fn detect(volume: &dyn ReadAt) -> VolumeContent {
    let head = read_head(volume);
    let is_lvm = |sector: &usize| {
        has_at(&head, sector * 512, b"LABELONE") && has_at(&head, sector * 512 + 24, b"LVM2 001")
    };
    if (0..4).any(|sector| is_lvm(&sector)) {
        return VolumeContent::LvmMember;
    }
    if let Some((content, _, _)) = MAGIC.iter().find(|(_, at, magic)| has_at(&head, *at, magic)) {
        return *content;
    }
    if let Some(kind) = ext_kind(&head) {
        return VolumeContent::FileSystem(kind);
    }
    if is_fat(&head) {
        return VolumeContent::FileSystem(FileSystemKind::Fat);
    }
    // After all that may have been made over it and left its page as it was.
    if swap_header::memory_in(&head).is_some() {
        return VolumeContent::Swap;
    }
    if u16_at(&head, 1030) == 0x3434 && u32_at(&head, 1024) == 2 {
        return VolumeContent::FileSystem(FileSystemKind::Nilfs2);
    }
    if is_old_raid(volume) {
        return VolumeContent::RaidMember;
    }
    if is_zfs(volume) {
        return VolumeContent::FileSystem(FileSystemKind::Zfs);
    }
    if head.iter().all(|byte| *byte == 0) { VolumeContent::Empty } else { VolumeContent::Unknown }
}

/// Which of its ages an ext file system is of.
fn ext_kind(head: &[u8]) -> Option<FileSystemKind> {
    const HAS_JOURNAL: u32 = 0x4;
    const EXT3_INCOMPATIBLE: u32 = 0x2 | 0x4 | 0x8 | 0x10;
    const EXT3_READ_ONLY: u32 = 0x1 | 0x2 | 0x4;
    let block = head.get(1024..2048)?;
    if u16_at(block, 56) != 0xef53 || u32_at(block, 24) > 6 {
        return None;
    }
    let (compatible, incompatible, read_only) = (u32_at(block, 92), u32_at(block, 96), u32_at(block, 100));
    let is_new = incompatible & !EXT3_INCOMPATIBLE != 0 || read_only & !EXT3_READ_ONLY != 0;
    Some(match (is_new, compatible & HAS_JOURNAL != 0) {
        (true, _) => FileSystemKind::Ext4,
        (false, true) => FileSystemKind::Ext3,
        (false, false) => FileSystemKind::Ext2,
    })
}

/// A boot sector whose numbers only FAT would have.
fn is_fat(head: &[u8]) -> bool {
    let sector_bytes = u16_at(head, 11);
    let (cluster_sectors, reserved, tables, media) =
        (u8_at(head, 13), u16_at(head, 14), u8_at(head, 16), u8_at(head, 21));
    let table_sectors = u32::from(u16_at(head, 22)) | u32_at(head, 36);
    let sectors = u32::from(u16_at(head, 19)) | u32_at(head, 32);
    has_at(head, 510, &[0x55, 0xaa])
        && [512, 1024, 2048, 4096].contains(&sector_bytes)
        && cluster_sectors.is_power_of_two()
        && reserved > 0
        && (1..=4).contains(&tables)
        && (media == 0xf0 || media >= 0xf8)
        && table_sectors > 0
        && sectors > 0
}

/// RAIDs of the versions 0.90 and 1.0 say so at their end.
fn is_old_raid(volume: &dyn ReadAt) -> bool {
    let size = volume.size();
    let places = [
        (size & !0xffff).checked_sub(0x10000).map(|at| (at, 0)),
        (size / 512).checked_sub(16).map(|sector| ((sector & !7) * 512, 1)),
    ];
    places.into_iter().flatten().any(|(at, version)| {
        let mut block = [0; 16];
        volume.read_at(at, &mut block).is_ok()
            && has_at(&block, 0, b"\xfc\x4e\x2b\xa9")
            && u32_at(&block, 4) == version
    })
}

/// A label of ZFS keeps its history in slots of a kilobyte, of which any may be in use.
fn is_zfs(volume: &dyn ReadAt) -> bool {
    let mut slots = vec![0; 128 << 10];
    volume.read_at(128 << 10, &mut slots).is_ok()
        && slots.chunks_exact(1024).any(|slot| {
            u64_at(slot, 0) == 0x00ba_b10c || u64::from_be_bytes(array_at(slot, 0)) == 0x00ba_b10c
        })
}

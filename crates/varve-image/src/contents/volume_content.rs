//! The kinds of content that a part of a disk can have.

use std::fmt;

use crate::bytes::fields::{has_at, u8_at, u16_at, u32_at};

/// The kind of content of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeContent {
    /// A file system.
    FileSystem(FileSystemKind),
    /// Swap space, or a hibernation image in it.
    Swap,
    /// A member of an LVM volume group, whose logical volumes are listed beside it.
    LvmMember,
    Luks,
    BitLocker,
    /// A member of a Linux software RAID.
    RaidMember,
    Bcache,
    Drbd,
    /// Content that this crate does not recognise.
    Unknown,
    /// Zeros at every place where a signature could be.
    Empty,
}

/// The kinds of file systems that are recognised. Not all of them can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileSystemKind {
    /// Without a journal.
    Ext2,
    /// With a journal.
    Ext3,
    /// With extents, or another feature newer than ext3.
    Ext4,
    /// FAT with 12, 16 or 32 bits.
    Fat,
    ExFat,
    Ntfs,
    /// With or without extensions.
    Iso9660,
    Udf,
    Btrfs,
    Xfs,
    Zfs,
    F2fs,
    Bcachefs,
    Nilfs2,
    Jfs,
    ReiserFs,
    /// UFS2, of the BSDs.
    Ufs2,
    /// UFS1, of the BSDs and Solaris.
    Ufs1,
    /// GFS and GFS2.
    Gfs2,
    Ocfs2,
    Vmfs,
    /// HFS or HFS+.
    Hfs,
    Apfs,
    ReFs,
    SquashFs,
    Erofs,
    CramFs,
}

impl FileSystemKind {
    /// Returns the name that `mount -t` accepts.
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
            Self::Ufs1 => "ufs",
            Self::Gfs2 => "gfs2",
            Self::Ocfs2 => "ocfs2",
            Self::Vmfs => "vmfs",
            Self::Hfs => "hfs",
            Self::Apfs => "apfs",
            Self::ReFs => "refs",
            Self::SquashFs => "squashfs",
            Self::Erofs => "erofs",
            Self::CramFs => "cramfs",
        }
    }
}

/// A short name: `ext4`, `swap`, `LVM`, `LUKS`, `unknown`.
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
            Self::Drbd => "DRBD",
            Self::Unknown => "unknown",
            Self::Empty => "empty",
        })
    }
}

/// Returns the generation of an ext file system: ext2, ext3 or ext4.
pub(crate) fn ext_kind(head: &[u8]) -> Option<FileSystemKind> {
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

/// Returns true for a boot sector whose numbers only FAT would have.
pub(crate) fn is_fat(head: &[u8]) -> bool {
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

//! The signatures by which kinds of content are recognised, as a table, and the search for them.
//!
//! The table has every signature that libblkid knows (util-linux 2.41; each row names the source
//! file there), at both ends of a volume, and those of partition tables. Detection uses the first
//! row that matches, in the order of the table: a container hides its content, and the newer of two
//! file systems usually overwrites the older one. The decision to leave something out trusts no row
//! alone: there any second signature is a contradiction.
//!
//! A row with the content `Unknown` counts as a contradiction, but never names the content of a
//! volume: its magic number alone is too weak, or this crate has no name for the content.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use varve_block::to_usize;

use crate::bytes::read_at::ReadAt;
use crate::contents::volume_content::{FileSystemKind as K, VolumeContent as V, ext_kind, is_fat};

/// The position of a magic number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SignatureAnchor {
    /// An offset from the beginning.
    Start(u64),
    /// `before` bytes before the end, after the size was rounded down to a multiple of `align`.
    End { align: u64, before: u64 },
}

/// A condition in addition to the magic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureCheck {
    Magic,
    /// The numbers of a FAT boot sector.
    Fat,
    /// A block size that ext allows.
    Ext,
}

/// One magic number at one position.
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) content: V,
    anchor: SignatureAnchor,
    /// The number of positions at which the magic number may be, `step` bytes apart.
    count: u64,
    step: u64,
    magic: &'static [u8],
    check: SignatureCheck,
    /// The source file of libblkid that has it.
    #[cfg_attr(not(test), expect(dead_code, reason = "for those who read the table, and for its test"))]
    source: &'static str,
}

const fn at(
    name: &'static str,
    content: V,
    place: u64,
    magic: &'static [u8],
    source: &'static str,
) -> Signature {
    let anchor = SignatureAnchor::Start(place);
    Signature { name, content, anchor, count: 1, step: 0, magic, check: SignatureCheck::Magic, source }
}

const fn end(
    name: &'static str,
    content: V,
    (align, before): (u64, u64),
    magic: &'static [u8],
    source: &'static str,
) -> Signature {
    let anchor = SignatureAnchor::End { align, before };
    Signature { name, content, anchor, count: 1, step: 0, magic, check: SignatureCheck::Magic, source }
}

impl Signature {
    const fn times(self, count: u64, step: u64) -> Self {
        Self { count, step, ..self }
    }

    const fn checked(self, check: SignatureCheck) -> Self {
        Self { check, ..self }
    }

    /// Returns the positions of the magic number in a volume of `size` bytes.
    pub(crate) fn places(&self, size: u64) -> impl Iterator<Item = Range<u64>> {
        let first = match self.anchor {
            SignatureAnchor::Start(place) => Some(place),
            SignatureAnchor::End { align, before } => {
                size.checked_div(align).and_then(|units| units.checked_mul(align)?.checked_sub(before))
            }
        };
        let (step, length) = (self.step, self.magic.len() as u64);
        let place = move |number: u64| {
            let start = first?.checked_add(number.checked_mul(step)?)?;
            let end = start.checked_add(length)?;
            (end <= size).then_some(start..end)
        };
        (0..self.count).map_while(place)
    }
}

#[cfg(test)]
impl Signature {
    pub(crate) fn magic(&self) -> &'static [u8] {
        self.magic
    }

    pub(crate) fn source(&self) -> &'static str {
        self.source
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The bytes at the beginning that detection reads first.
const HEAD_BYTES: u64 = 68 * KIB;

const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_BIG: &[u8] = b"\xa9\x2b\x4e\xfc";
const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";
const PROMISE: &[u8] = b"Promise Technology, Inc.";
/// An uberblock, and the head of the name-value list, in both byte orders.
const UBERBLOCK: &[u8] = b"\x0c\xb1\xba\0\0\0\0\0";
const UBERBLOCK_BIG: &[u8] = b"\0\0\0\0\0\xba\xb1\x0c";
const ZFS_LIST: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01";
const ZFS_LIST_BIG: &[u8] = b"\x01\0\0\0\0\0\0\0\0\0\0\x01";
/// Each of the four labels has 128 KiB of uberblocks, in slots of 1 KiB or more.
const UBERBLOCK_COUNT: u64 = 128;
/// Revision 2, followed by the magic number.
const NILFS2: &[u8] = b"\x02\0\0\0\0\0\x34\x34";
const BLUESTORE: &[u8] = b"bluestore block device";
/// The log of XFS may begin in any of the first sectors of an external log device.
const XFS_LOG_SECTORS: u64 = 512;
/// The ZFS labels at the end of the device, and their uberblocks.
const ZFS_2: (u64, u64) = (256 * KIB, 496 * KIB);
const ZFS_3: (u64, u64) = (256 * KIB, 240 * KIB);
const ZFS_2_UBERBLOCKS: (u64, u64) = (256 * KIB, 384 * KIB);
const ZFS_3_UBERBLOCKS: (u64, u64) = (256 * KIB, 128 * KIB);

const fn fs(kind: K) -> V {
    V::FileSystem(kind)
}

/// All signatures, in the order in which detection tries them.
#[rustfmt::skip]
pub(crate) static SIGNATURES: &[Signature] = &[
    at("LVM2", V::LvmMember, 0x018, b"LVM2 001", "lvm.c"),
    at("LVM2", V::LvmMember, 0x218, b"LVM2 001", "lvm.c"),
    at("LVM2", V::LvmMember, 0x418, b"LVM2 001", "lvm.c"),
    at("LVM2", V::LvmMember, 0x618, b"LVM2 001", "lvm.c"),
    at("LUKS", V::Luks, 0, b"LUKS\xba\xbe", "luks.c"),
    at("BitLocker", V::BitLocker, 3, b"-FVE-FS-", "bitlocker.c"),
    at("Linux RAID 1.1", V::RaidMember, 0, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "linux_raid.c"),
    at("Linux RAID 1.2", V::RaidMember, 4 * KIB, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "linux_raid.c"),
    at("bcache", V::Bcache, 4 * KIB + 24, BCACHE, "bcache.c"),
    at("bcachefs", fs(K::Bcachefs), 4 * KIB + 24, BCACHEFS, "bcache.c"),
    at("NTFS", fs(K::Ntfs), 3, b"NTFS    ", "ntfs.c"),
    at("exFAT", fs(K::ExFat), 3, b"EXFAT   ", "exfat.c"),
    at("ReFS", fs(K::ReFs), 3, b"ReFS\0", "refs.c"),
    at("XFS", fs(K::Xfs), 0, b"XFSB", "xfs.c"),
    at("SquashFS", fs(K::SquashFs), 0, b"hsqs", "squashfs.c"),
    at("Cramfs", fs(K::CramFs), 0, b"\x45\x3d\xcd\x28", "cramfs.c"),
    at("APFS", fs(K::Apfs), 32, b"NXSB", "apfs.c"),
    at("F2FS", fs(K::F2fs), KIB, b"\x10\x20\xf5\xf2", "f2fs.c"),
    at("EROFS", fs(K::Erofs), KIB, b"\xe2\xe1\xf5\xe0", "erofs.c"),
    at("HFS+", fs(K::Hfs), KIB, b"H+\0\x04", "hfs.c"),
    at("HFS+", fs(K::Hfs), KIB, b"HX\0\x05", "hfs.c"),
    at("JFS", fs(K::Jfs), 32 * KIB, b"JFS1", "jfs.c"),
    at("ISO 9660", fs(K::Iso9660), 32 * KIB + 1, b"CD001", "iso9660.c"),
    at("UDF", fs(K::Udf), 32 * KIB + 1, b"BEA01", "udf.c"),
    at("Btrfs", fs(K::Btrfs), 64 * KIB + 64, b"_BHRfS_M", "btrfs.c"),
    at("ReiserFS", fs(K::ReiserFs), 64 * KIB + 52, b"ReIsEr", "reiserfs.c"),
    at("UFS2", fs(K::Ufs2), 64 * KIB + 1372, b"\x19\x01\x54\x19", "ufs.c"),
    at("ext", fs(K::Ext2), KIB + 56, b"\x53\xef", "ext.c").checked(SignatureCheck::Ext),
    at("FAT", fs(K::Fat), 510, b"\x55\xaa", "vfat.c").checked(SignatureCheck::Fat),
    // The rows below are weaker evidence, or a live file system of a row above may contain their
    // remnants.
    at("GFS", fs(K::Gfs2), 64 * KIB, b"\x01\x16\x19\x70", "gfs.c"),
    at("OCFS2", fs(K::Ocfs2), KIB, b"OCFSV2", "ocfs.c"),
    at("OCFS2", fs(K::Ocfs2), 2 * KIB, b"OCFSV2", "ocfs.c"),
    at("OCFS2", fs(K::Ocfs2), 4 * KIB, b"OCFSV2", "ocfs.c"),
    at("OCFS2", fs(K::Ocfs2), 8 * KIB, b"OCFSV2", "ocfs.c"),
    at("NILFS2", fs(K::Nilfs2), KIB, NILFS2, "nilfs.c"),
    at("UFS2", fs(K::Ufs2), 1372, b"\x19\x01\x54\x19", "ufs.c"),
    at("UFS2", fs(K::Ufs2), 8 * KIB + 1372, b"\x19\x01\x54\x19", "ufs.c"),
    at("UFS2", fs(K::Ufs2), 1372, b"\x19\x54\x01\x19", "ufs.c"),
    at("UFS2", fs(K::Ufs2), 8 * KIB + 1372, b"\x19\x54\x01\x19", "ufs.c"),
    at("UFS2", fs(K::Ufs2), 64 * KIB + 1372, b"\x19\x54\x01\x19", "ufs.c"),
    at("UFS1", fs(K::Ufs1), 1372, b"\x54\x19\x01\0", "ufs.c"),
    at("UFS1", fs(K::Ufs1), 8 * KIB + 1372, b"\x54\x19\x01\0", "ufs.c"),
    at("UFS1", fs(K::Ufs1), 64 * KIB + 1372, b"\x54\x19\x01\0", "ufs.c"),
    at("UFS1", fs(K::Ufs1), 1372, b"\0\x01\x19\x54", "ufs.c"),
    at("UFS1", fs(K::Ufs1), 8 * KIB + 1372, b"\0\x01\x19\x54", "ufs.c"),
    at("UFS1", fs(K::Ufs1), 64 * KIB + 1372, b"\0\x01\x19\x54", "ufs.c"),
    end("Linux RAID 0.90", V::RaidMember, (64 * KIB, 64 * KIB), MD, "linux_raid.c"),
    end("Linux RAID 0.90", V::RaidMember, (64 * KIB, 64 * KIB), MD_BIG, "linux_raid.c"),
    end("Linux RAID 1.0", V::RaidMember, (4 * KIB, 8 * KIB), MD, "linux_raid.c"),
    end("DRBD", V::Drbd, (4 * KIB, 4036), b"\x83\x74\x02\x6b", "drbd.c"),
    end("DRBD", V::Drbd, (4 * KIB, 4036), b"\x83\x74\x02\x6c", "drbd.c"),
    end("DRBD", V::Drbd, (4 * KIB, 4036), b"\x83\x74\x02\x6d", "drbd.c"),
    at("ZFS", fs(K::Zfs), 128 * KIB, UBERBLOCK, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    at("ZFS", fs(K::Zfs), 128 * KIB, UBERBLOCK_BIG, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    at("ZFS", fs(K::Zfs), 16 * KIB, ZFS_LIST, "zfs.c"),
    at("ZFS", fs(K::Zfs), 16 * KIB, ZFS_LIST_BIG, "zfs.c"),
    at("VMFS", fs(K::Vmfs), MIB, b"\x0d\xd0\x01\xc0", "vmfs.c"),
    at("VMFS", fs(K::Vmfs), 2 * MIB, b"\x5e\xf1\xab\x2f", "vmfs.c"),
    // The rows from here on count as contradictions and name no content.
    at("ZFS", V::Unknown, 384 * KIB, UBERBLOCK, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    at("ZFS", V::Unknown, 384 * KIB, UBERBLOCK_BIG, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    at("ZFS", V::Unknown, 272 * KIB, ZFS_LIST, "zfs.c"),
    at("ZFS", V::Unknown, 272 * KIB, ZFS_LIST_BIG, "zfs.c"),
    end("ZFS", V::Unknown, ZFS_2_UBERBLOCKS, UBERBLOCK, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    end("ZFS", V::Unknown, ZFS_2_UBERBLOCKS, UBERBLOCK_BIG, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    end("ZFS", V::Unknown, ZFS_2, ZFS_LIST, "zfs.c"),
    end("ZFS", V::Unknown, ZFS_2, ZFS_LIST_BIG, "zfs.c"),
    end("ZFS", V::Unknown, ZFS_3_UBERBLOCKS, UBERBLOCK, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    end("ZFS", V::Unknown, ZFS_3_UBERBLOCKS, UBERBLOCK_BIG, "zfs.c").times(UBERBLOCK_COUNT, KIB),
    end("ZFS", V::Unknown, ZFS_3, ZFS_LIST, "zfs.c"),
    end("ZFS", V::Unknown, ZFS_3, ZFS_LIST_BIG, "zfs.c"),
    // Swap of any page size, old or new, suspended or not.
    at("swap", V::Unknown, 0xff6, b"SWAPSPACE2", "swap.c"),
    at("swap", V::Unknown, 0x1ff6, b"SWAPSPACE2", "swap.c"),
    at("swap", V::Unknown, 0x3ff6, b"SWAPSPACE2", "swap.c"),
    at("swap", V::Unknown, 0x7ff6, b"SWAPSPACE2", "swap.c"),
    at("swap", V::Unknown, 0xfff6, b"SWAPSPACE2", "swap.c"),
    at("old swap", V::Unknown, 0xff6, b"SWAP-SPACE", "swap.c"),
    at("old swap", V::Unknown, 0x1ff6, b"SWAP-SPACE", "swap.c"),
    at("old swap", V::Unknown, 0x3ff6, b"SWAP-SPACE", "swap.c"),
    at("old swap", V::Unknown, 0x7ff6, b"SWAP-SPACE", "swap.c"),
    at("old swap", V::Unknown, 0xfff6, b"SWAP-SPACE", "swap.c"),
    at("TuxOnIce", V::Unknown, 0, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", "swap.c"),
    at("sleep", V::Unknown, 0xff6, b"S1SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0xff6, b"S2SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0xff6, b"ULSUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0xff6, b"LINHIB0001", "swap.c"),
    at("sleep", V::Unknown, 0x1ff6, b"S1SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x1ff6, b"S2SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x1ff6, b"ULSUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x1ff6, b"LINHIB0001", "swap.c"),
    at("sleep", V::Unknown, 0x3ff6, b"S1SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x3ff6, b"S2SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x3ff6, b"ULSUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x3ff6, b"LINHIB0001", "swap.c"),
    at("sleep", V::Unknown, 0x7ff6, b"S1SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x7ff6, b"S2SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x7ff6, b"ULSUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0x7ff6, b"LINHIB0001", "swap.c"),
    at("sleep", V::Unknown, 0xfff6, b"S1SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0xfff6, b"S2SUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0xfff6, b"ULSUSPEND", "swap.c"),
    at("sleep", V::Unknown, 0xfff6, b"LINHIB0001", "swap.c"),
    // Members of BIOS RAIDs, whose magic numbers are at the end.
    end("DDF RAID", V::Unknown, (512, 512), b"\xde\x11\xde\x11", "ddf_raid.c"),
    end("DDF RAID", V::Unknown, (512, 257 * 512), b"\xde\x11\xde\x11", "ddf_raid.c"),
    end("DDF RAID", V::Unknown, (512, 512), b"\x11\xde\x11\xde", "ddf_raid.c"),
    end("DDF RAID", V::Unknown, (512, 257 * 512), b"\x11\xde\x11\xde", "ddf_raid.c"),
    end("Intel RAID", V::Unknown, (512, 1024), b"Intel Raid ISM Cfg Sig. ", "isw_raid.c"),
    end("Intel RAID", V::Unknown, (4 * KIB, 8 * KIB), b"Intel Raid ISM Cfg Sig. ", "isw_raid.c"),
    end("LSI RAID", V::Unknown, (512, 512), b"$XIDE$", "lsi_raid.c"),
    end("VIA RAID", V::Unknown, (512, 512), b"\x55\xaa", "via_raid.c"),
    end("Silicon RAID", V::Unknown, (512, 512 - 0x60), b"\0\0\0\x2f", "silicon_raid.c"),
    end("NVIDIA RAID", V::Unknown, (512, 1024), b"NVIDIA  ", "nvidia_raid.c"),
    end("JMicron RAID", V::Unknown, (512, 512), b"JM", "jmicron_raid.c"),
    end("Adaptec RAID", V::Unknown, (512, 512), b"\x37\xfc\x4d\x1e", "adaptec_raid.c"),
    end("HighPoint RAID", V::Unknown, (512, 11 * 512), b"\xf3\x16\x78\x5a", "highpoint_raid.c"),
    end("HighPoint RAID", V::Unknown, (512, 11 * 512), b"\xfd\x16\x78\x5a", "highpoint_raid.c"),
    at("HighPoint RAID", V::Unknown, 4640, b"\xf0\x16\x78\x5a", "highpoint_raid.c"),
    at("HighPoint RAID", V::Unknown, 4640, b"\xfd\x16\x78\x5a", "highpoint_raid.c"),
    end("Promise RAID", V::Unknown, (512, 16 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 63 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 255 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 256 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 399 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 591 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 675 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 735 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 911 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 951 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 974 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 991 * 512), PROMISE, "promise_raid.c"),
    end("Promise RAID", V::Unknown, (512, 3087 * 512), PROMISE, "promise_raid.c"),
    // Other containers.
    at("Linux RAID 0.90 or 1.1", V::Unknown, 0, MD, "linux_raid.c"),
    at("Linux RAID 1.2", V::Unknown, 4 * KIB, MD, "linux_raid.c"),
    at("LUKS2 second header", V::Unknown, 0x4000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x8000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x1_0000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x2_0000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x4_0000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x8_0000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x10_0000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x20_0000, b"SKUL\xba\xbe", "luks.c"),
    at("LUKS2 second header", V::Unknown, 0x40_0000, b"SKUL\xba\xbe", "luks.c"),
    at("BitLocker", V::Unknown, 0, b"\xeb\x58\x90MSWIN4.1", "bitlocker.c"),
    at("LVM1", V::Unknown, 0, b"HM", "lvm.c"),
    at("device mapper snapshot", V::Unknown, 0, b"SnAp", "lvm.c"),
    at("dm-verity", V::Unknown, 0, b"verity\0\0", "lvm.c"),
    at("dm-integrity", V::Unknown, 0, b"integrt\0", "lvm.c"),
    at("VDO", V::Unknown, 0, b"dmvdo001", "vdo.c"),
    at("Stratis", V::Unknown, 512 + 4, STRATIS, "stratis.c"),
    at("Stratis", V::Unknown, 9 * 512 + 4, STRATIS, "stratis.c"),
    at("FileVault", V::Unknown, 88, b"CS", "cs_fvault2.c"),
    at("BlueStore", V::Unknown, 0, BLUESTORE, "bluestore.c"),
    at("DRBD manager", V::Unknown, 0, b"$DRBDmgr=q", "drbdmanage.c"),
    at("DRBD proxy", V::Unknown, 0, b"DRBDdlh*", "drbdproxy_datalog.c"),
    at("UBI", V::Unknown, 0, b"UBI#", "ubi.c"),
    at("mpool", V::Unknown, 0, b"mpoolDev", "mpool.c"),
    at("Oracle ASM", V::Unknown, 32, b"ORCLDISK", "ocfs.c"),
    at("bcachefs", V::Unknown, 2 * MIB + 24, BCACHEFS, "bcache.c"),
    end("bcachefs", V::Unknown, (512, MIB - 24), BCACHEFS, "bcache.c"),
    at("external XFS log", V::Unknown, 0, b"\xfe\xed\xba\xbe", "xfs.c").times(XFS_LOG_SECTORS, 512),
    // Other file systems, and other positions of those above.
    at("F2FS", V::Unknown, 5 * KIB, b"\x10\x20\xf5\xf2", "f2fs.c"),
    end("NILFS2", V::Unknown, (512, 8 * 512), NILFS2, "nilfs.c"),
    at("FAT", V::Unknown, 0x52, b"MSWIN", "vfat.c"),
    at("FAT", V::Unknown, 0x52, b"FAT32   ", "vfat.c"),
    at("FAT", V::Unknown, 0x36, b"MSDOS", "vfat.c"),
    at("FAT", V::Unknown, 0x36, b"FAT16   ", "vfat.c"),
    at("FAT", V::Unknown, 0x36, b"FAT12   ", "vfat.c"),
    at("FAT", V::Unknown, 0x36, b"FAT     ", "vfat.c"),
    at("UFS2", V::Unknown, 256 * KIB + 1372, b"\x19\x01\x54\x19", "ufs.c"),
    at("UFS2", V::Unknown, 256 * KIB + 1372, b"\x19\x54\x01\x19", "ufs.c"),
    at("UFS1", V::Unknown, 256 * KIB + 1372, b"\x54\x19\x01\0", "ufs.c"),
    at("UFS1", V::Unknown, 256 * KIB + 1372, b"\0\x01\x19\x54", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\x12\x56\x19\0", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\x12\x56\x19\0", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\x12\x56\x19\0", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\x12\x56\x19\0", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\0\x19\x56\x12", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\0\x19\x56\x12", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\0\x19\x56\x12", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\0\x19\x56\x12", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\x14\x50\x09\0", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\x14\x50\x09\0", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\x14\x50\x09\0", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\x14\x50\x09\0", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\0\x09\x50\x14", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\0\x09\x50\x14", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\0\x09\x50\x14", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\0\x09\x50\x14", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\x95\x21\x61\0", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\x95\x21\x61\0", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\x95\x21\x61\0", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\x95\x21\x61\0", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\0\x61\x21\x95", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\0\x61\x21\x95", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\0\x61\x21\x95", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\0\x61\x21\x95", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\x94\x19\x23\x05", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\x94\x19\x23\x05", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\x94\x19\x23\x05", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\x94\x19\x23\x05", "ufs.c"),
    at("UFS", V::Unknown, 1372, b"\x05\x23\x19\x94", "ufs.c"),
    at("UFS", V::Unknown, 8 * KIB + 1372, b"\x05\x23\x19\x94", "ufs.c"),
    at("UFS", V::Unknown, 64 * KIB + 1372, b"\x05\x23\x19\x94", "ufs.c"),
    at("UFS", V::Unknown, 256 * KIB + 1372, b"\x05\x23\x19\x94", "ufs.c"),
    at("HFS", V::Unknown, KIB, b"BD", "hfs.c"),
    at("ISO 9660", V::Unknown, 32 * KIB + 9, b"CDROM", "iso9660.c"),
    at("UDF", V::Unknown, 32 * KIB + 1, b"BOOT2", "udf.c"),
    at("UDF", V::Unknown, 32 * KIB + 1, b"CDW02", "udf.c"),
    at("UDF", V::Unknown, 32 * KIB + 1, b"NSR02", "udf.c"),
    at("UDF", V::Unknown, 32 * KIB + 1, b"NSR03", "udf.c"),
    at("UDF", V::Unknown, 32 * KIB + 1, b"TEA01", "udf.c"),
    at("Reiser4", V::Unknown, 64 * KIB, b"ReIsEr4", "reiserfs.c"),
    at("ReiserFS", V::Unknown, 8 * KIB + 52, b"ReIsErFs", "reiserfs.c"),
    at("ReiserFS", V::Unknown, 8 * KIB + 20, b"ReIsErFs", "reiserfs.c"),
    at("HPFS", V::Unknown, 8 * KIB, b"\x49\xe8\x95\xf9", "hpfs.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x7f\x13", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x8f\x13", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x13\x7f", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x13\x8f", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x68\x24", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x78\x24", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x24\x68", "minix.c"),
    at("Minix", V::Unknown, KIB + 16, b"\x24\x78", "minix.c"),
    at("Minix", V::Unknown, KIB + 24, b"\x5a\x4d", "minix.c"),
    at("Minix", V::Unknown, KIB + 24, b"\x4d\x5a", "minix.c"),
    at("Netware", V::Unknown, 4 * KIB, b"SPB5", "netware.c"),
    at("OCFS", V::Unknown, 8 * KIB, b"OracleCFS", "ocfs.c"),
    at("VxFS", V::Unknown, KIB, b"\xf5\xfc\x01\xa5", "vxfs.c"),
    at("VxFS", V::Unknown, 8 * KIB, b"\xa5\x01\xfc\xf5", "vxfs.c"),
    at("SquashFS", V::Unknown, 0, b"sqsh", "squashfs.c"),
    at("Cramfs", V::Unknown, 0, b"\x28\xcd\x3d\x45", "cramfs.c"),
    at("romfs", V::Unknown, 0, b"-rom1fs-", "romfs.c"),
    at("UBIFS", V::Unknown, 0, b"\x31\x18\x10\x06", "ubifs.c"),
    at("BFS", V::Unknown, 0, b"\xce\xfa\xad\x1b", "bfs.c"),
    at("BeFS", V::Unknown, 32, b"BFS1", "befs.c"),
    at("BeFS", V::Unknown, 32, b"1SFB", "befs.c"),
    at("BeFS", V::Unknown, 544, b"BFS1", "befs.c"),
    at("BeFS", V::Unknown, 544, b"1SFB", "befs.c"),
    at("exfs", V::Unknown, 0, b"EXFS", "exfs.c"),
    at("zonefs", V::Unknown, 0, b"SFOZ", "zonefs.c"),
    at("scoutfs", V::Unknown, 64 * KIB + 4, b"\x8b\x42\x3c\x10", "scoutfs.c"),
    at("Xenix", V::Unknown, 2 * KIB, b"\x2b\x55\x44", "sysv.c"),
    at("Xenix", V::Unknown, 2 * KIB, b"\x44\x55\x2b", "sysv.c"),
    at("System V", V::Unknown, 512 + 504, b"\x20\x7e\x18\xfd", "sysv.c"),
    at("System V", V::Unknown, 512 + 504, b"\xfd\x18\x7e\x20", "sysv.c"),
    at("System V", V::Unknown, 9 * KIB + 512 + 504, b"\x20\x7e\x18\xfd", "sysv.c"),
    at("System V", V::Unknown, 9 * KIB + 512 + 504, b"\xfd\x18\x7e\x20", "sysv.c"),
    at("System V", V::Unknown, 15 * KIB + 512 + 504, b"\x20\x7e\x18\xfd", "sysv.c"),
    at("System V", V::Unknown, 15 * KIB + 512 + 504, b"\xfd\x18\x7e\x20", "sysv.c"),
    at("System V", V::Unknown, 18 * KIB + 512 + 504, b"\x20\x7e\x18\xfd", "sysv.c"),
    at("System V", V::Unknown, 18 * KIB + 512 + 504, b"\xfd\x18\x7e\x20", "sysv.c"),
    // Partition tables. The code that needs a DOS table parses it instead.
    at("GPT", V::Unknown, 512, b"EFI PART", "gpt.c"),
    at("GPT", V::Unknown, 4 * KIB, b"EFI PART", "gpt.c"),
    end("GPT", V::Unknown, (512, 512), b"EFI PART", "gpt.c"),
    end("GPT", V::Unknown, (4 * KIB, 4 * KIB), b"EFI PART", "gpt.c"),
    at("a BSD disk label", V::Unknown, 64, b"\x57\x45\x56\x82", "bsd.c"),
    at("a BSD disk label", V::Unknown, 128, b"\x57\x45\x56\x82", "bsd.c"),
    at("a BSD disk label", V::Unknown, 512, b"\x57\x45\x56\x82", "bsd.c"),
    at("a Solaris disk label", V::Unknown, 512 + 12, b"\xee\xde\x0d\x60", "solaris_x86.c"),
    at("a Sun disk label", V::Unknown, 508, b"\xda\xbe", "sun.c"),
    at("an SGI disk label", V::Unknown, 0, b"\x0b\xe5\xa9\x41", "sgi.c"),
    at("a Mac partition map", V::Unknown, 0, b"\x45\x52", "mac.c"),
    at("an AIX disk label", V::Unknown, 0, b"\xc9\xc2\xd4\xc1", "aix.c"),
    at("an UnixWare disk label", V::Unknown, 29 * 512 + 4, b"\x0d\x60\xe5\xca", "unixware.c"),
    at("an Ultrix disk label", V::Unknown, 16384 - 72, b"\x02\x29\x57", "ultrix.c"),
];

/// The volume is read in pieces of this size, aligned to it.
const PIECE_BYTES: u64 = 64 << 10;
/// If a piece cannot be read, its sectors of this size are read one by one.
const SECTOR_BYTES: u64 = 4 << 10;

/// A volume with a cache of the pieces that were searched for signatures.
pub(crate) struct ProbedVolume<'a> {
    volume: &'a dyn ReadAt,
    size: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
    /// The sectors that could not be read. They are zeros in `pieces`.
    unreadable: Vec<u64>,
}

/// A signature that was found, and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundSignature {
    pub(crate) signature: &'static Signature,
    pub(crate) place: u64,
}

impl fmt::Display for FoundSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a signature of {} at byte {}", self.signature.name, self.place)
    }
}

/// A place that could not be read, so that it is unknown if it has a signature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnreadablePlace(pub(crate) u64);

impl<'a> ProbedVolume<'a> {
    pub(crate) fn of(volume: &'a dyn ReadAt) -> Self {
        Self { volume, size: volume.size(), pieces: BTreeMap::new(), unreadable: Vec::new() }
    }

    /// Returns the first bytes, which contain nearly all signatures. Parts that cannot be read are
    /// zeros.
    pub(crate) fn head(&mut self) -> Vec<u8> {
        self.bytes(0..HEAD_BYTES.min(self.size))
    }

    /// Returns bytes of the volume. Parts that cannot be read are zeros.
    fn bytes(&mut self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut place = range.start;
        while place < range.end {
            let start = place.saturating_sub(place.checked_rem(PIECE_BYTES).unwrap_or(0));
            let piece_end = start.saturating_add(PIECE_BYTES).min(range.end);
            let inside = |at: u64| to_usize(at.saturating_sub(start));
            let part = inside(place)..inside(piece_end);
            bytes.extend_from_slice(self.piece(start).get(part).unwrap_or_default());
            place = piece_end;
        }
        bytes
    }

    fn piece(&mut self, start: u64) -> &[u8] {
        let Self { volume, size, pieces, unreadable } = self;
        pieces.entry(start).or_insert_with(|| {
            let length = size.saturating_sub(start).min(PIECE_BYTES);
            let mut piece = vec![0; to_usize(length)];
            if volume.read_at(start, &mut piece).is_err() {
                let sector_bytes = to_usize(SECTOR_BYTES);
                let places =
                    (0..).map(|number: u64| start.saturating_add(number.saturating_mul(SECTOR_BYTES)));
                for (place, sector) in places.zip(piece.chunks_mut(sector_bytes)) {
                    if volume.read_at(place, sector).is_err() {
                        sector.fill(0);
                        unreadable.push(place);
                    }
                }
            }
            piece
        })
    }

    fn is_unreadable(&self, range: &Range<u64>) -> bool {
        let touches = |sector: &u64| *sector < range.end && sector.saturating_add(SECTOR_BYTES) > range.start;
        self.unreadable.iter().any(touches)
    }

    fn has(&mut self, signature: &Signature, place: Range<u64>) -> bool {
        self.bytes(place) == signature.magic
            && match signature.check {
                SignatureCheck::Magic => true,
                SignatureCheck::Fat => is_fat(&self.head()),
                SignatureCheck::Ext => ext_kind(&self.head()).is_some(),
            }
    }

    /// Returns the first position at which a signature is found.
    fn find(&mut self, signature: &'static Signature) -> Option<FoundSignature> {
        signature
            .places(self.size)
            .find(|place| self.has(signature, place.clone()))
            .map(|place| FoundSignature { signature, place: place.start })
    }

    /// Returns the content that the first matching row names. A place that cannot be read matches
    /// no row.
    pub(crate) fn content(&mut self) -> Option<V> {
        self.first_named(|_| true)
    }

    /// Does the same with the rows of the beginning alone.
    pub(crate) fn content_of_head(&mut self) -> Option<V> {
        self.first_named(|anchor| matches!(anchor, SignatureAnchor::Start(place) if place < HEAD_BYTES))
    }

    fn first_named(&mut self, is_wanted: impl Fn(SignatureAnchor) -> bool) -> Option<V> {
        let mut named = SIGNATURES
            .iter()
            .filter(|signature| signature.content != V::Unknown && is_wanted(signature.anchor));
        named.find(|signature| self.find(signature).is_some()).map(|signature| signature.content)
    }

    /// Finds the first signature other than those in `own_names` and those within `own_bytes`.
    ///
    /// # Errors
    /// A place where a signature may be cannot be read.
    pub(crate) fn find_other(
        &mut self,
        own_names: &[&str],
        own_bytes: &Range<u64>,
    ) -> Result<Option<FoundSignature>, UnreadablePlace> {
        for signature in SIGNATURES.iter().filter(|signature| !own_names.contains(&signature.name)) {
            for place in signature.places(self.size) {
                if own_bytes.start <= place.start && place.end <= own_bytes.end {
                    continue;
                }
                if self.has(signature, place.clone()) {
                    return Ok(Some(FoundSignature { signature, place: place.start }));
                }
                if self.is_unreadable(&place) {
                    return Err(UnreadablePlace(place.start));
                }
            }
        }
        Ok(None)
    }
}

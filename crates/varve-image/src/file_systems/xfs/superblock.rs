//! The superblock: the layout of the volume, and its features. All numbers are big-endian.
//!
//! A block number has the number of an allocation group in its upper bits, and the number of a
//! block in the group in its lower `group_block_bits` bits. An inode number goes on below: its
//! lowest `inodes_per_block_bits` bits are a place in the block.
//!
//! | at     | bytes | field                                          |
//! |-------:|------:|------------------------------------------------|
//! |      0 |     4 | `XFSB`                                         |
//! |      4 |     4 | bytes of a block                               |
//! |      8 |     8 | number of blocks                               |
//! |     32 |    16 | UUID                                           |
//! |     48 |     8 | first block of the log; 0 if it is elsewhere   |
//! |     56 |     8 | inode of the root folder                       |
//! | 84, 88 |  4, 4 | blocks of an allocation group, groups          |
//! |     96 |     4 | blocks of the log                              |
//! |    100 |     2 | version, and features of version 4             |
//! | 102, 104 | 2, 2 | bytes of a sector, of an inode                |
//! | 120..125 | 5   | logarithms: block, sector, inode, inodes of a block, blocks of a group |
//! |    126 |     1 | not 0 while the file system is being made      |
//! |    144 |     8 | free blocks                                    |
//! |    192 |     1 | logarithm of the blocks of a folder's block    |
//! |    200 |     4 | more features of version 4                     |
//! | 212, 216, 220 | 4 each | features that writers, readers, and the log need (version 5) |
//! |    224 |     4 | checksum, little-endian                        |
//! |    248 |    16 | UUID in metadata, if it is another one         |

use std::ops::Range;

use varve_block::to_usize;

use super::damaged;
use super::seal::matches_checksum;
use crate::bytes::fields::{array_at, be16_at, be32_at, be64_at, has_at, u8_at};
use crate::file_systems::file_system::FileSystemError;

/// The bytes that are read of it: the fields lie in the first of them.
pub(super) const SUPERBLOCK_BYTES: usize = 512;
const CHECKSUM_AT: usize = 224;

/// Features of version 4.
mod version_4 {
    pub(super) const LAZY_COUNTS: u32 = 0x2;
    pub(super) const FILE_TYPE: u32 = 0x200;
    /// In the field of the version: folders of version 2, which all Linux systems have made.
    pub(super) const FOLDERS_2: u16 = 0x2000;
    pub(super) const SHARED: u16 = 0x200;
    /// In the field of the version, also of version 5: folders that ignore the case of ASCII.
    pub(super) const FOLDS_CASE: u16 = 0x4000;
}

/// Features that a reader must support.
pub(super) mod incompatible {
    pub(crate) const FILE_TYPE: u32 = 0x1;
    pub(crate) const SPARSE_INODES: u32 = 0x2;
    pub(crate) const METADATA_UUID: u32 = 0x4;
    pub(crate) const BIG_TIME: u32 = 0x8;
    pub(crate) const NEEDS_REPAIR: u32 = 0x10;
    pub(crate) const LARGE_COUNTS: u32 = 0x20;
    pub(crate) const EXCHANGE: u32 = 0x40;
    pub(crate) const PARENTS: u32 = 0x80;
    pub(crate) const METADATA_FOLDERS: u32 = 0x100;
    pub(crate) const ZONES: u32 = 0x600;
    pub(crate) const KNOWN: u32 = FILE_TYPE
        | SPARSE_INODES
        | METADATA_UUID
        | BIG_TIME
        | NEEDS_REPAIR
        | LARGE_COUNTS
        | EXCHANGE
        | PARENTS;
}

/// Features that only a writer must support.
pub(super) mod read_only {
    pub(crate) const FREE_INODES: u32 = 0x1;
    pub(crate) const REVERSE_MAP: u32 = 0x2;
    pub(crate) const SHARED_EXTENTS: u32 = 0x4;
    pub(crate) const KNOWN: u32 = 0xf;
}

/// The fields that a reader needs. Every number has been checked against the others.
#[derive(Debug, Clone)]
pub(super) struct XfsSuperblock {
    pub(super) block_bytes: u32,
    pub(super) block_count: u64,
    pub(super) sector_bytes: u32,
    pub(super) inode_bytes: u16,
    pub(super) group_blocks: u32,
    pub(super) group_count: u32,
    pub(super) group_block_bits: u8,
    pub(super) inodes_per_block_bits: u8,
    /// The logarithm of the blocks of a folder's block.
    pub(super) folder_block_bits: u8,
    pub(super) root: u64,
    /// The first block of the log; 0 if it is on another volume.
    pub(super) log_start: u64,
    pub(super) log_blocks: u32,
    /// True if metadata has checksums (version 5).
    pub(super) has_checksums: bool,
    /// True if the entries of folders have the kinds of files.
    pub(super) has_kinds: bool,
    /// True if folders ignore case, so that their indexes have other hashes.
    pub(super) folds_case: bool,
    pub(super) incompatible: u32,
    pub(super) read_only: u32,
    /// The UUID in metadata.
    pub(super) uuid: [u8; 16],
    /// The UUID that programs show.
    pub(super) volume_uuid: [u8; 16],
    pub(super) free_blocks: u64,
    /// True if the count of free blocks is written at an unmount only.
    pub(super) has_lazy_counts: bool,
    is_being_made: bool,
}

impl XfsSuperblock {
    /// Parses the first sector of a volume. `sector` is the whole sector, or its first
    /// [`SUPERBLOCK_BYTES`] if its length is not yet known: then the checksum is not compared.
    pub(super) fn parse(sector: &[u8]) -> Result<Self, FileSystemError> {
        let wrong = |problem: &str| Err(damaged("superblock", problem));
        let unsupported = |feature: String| {
            Err(FileSystemError::Unsupported { what: "the XFS file system".into(), feature })
        };
        if !has_at(sector, 0, b"XFSB") {
            return wrong("its magic number is missing");
        }
        let version = be16_at(sector, 100);
        let has_checksums = match version & 0xf {
            4 => false,
            5 => true,
            other => return unsupported(format!("version {other}")),
        };
        if version & version_4::FOLDERS_2 == 0 {
            return unsupported("the first version of folders".into());
        }
        if version & version_4::SHARED != 0 {
            return unsupported("a read-only volume for several machines".into());
        }
        let sector_bytes = u32::from(be16_at(sector, 102));
        if has_checksums {
            let is_whole = to_usize(sector_bytes) == sector.len();
            if is_whole && !matches_checksum(sector, CHECKSUM_AT) {
                return wrong("it does not match its checksum");
            }
        }
        let incompatible = if has_checksums { be32_at(sector, 216) } else { 0 };
        let unknown = incompatible & !incompatible::KNOWN;
        if unknown != 0 {
            return unsupported(match unknown {
                _ if unknown & incompatible::METADATA_FOLDERS != 0 => "the folder of metadata".into(),
                _ if unknown & incompatible::ZONES != 0 => "a zoned realtime device".into(),
                _ => format!("the feature {unknown:#x}"),
            });
        }
        let uuid_at = if incompatible & incompatible::METADATA_UUID != 0 { 248 } else { 32 };
        let superblock = Self {
            block_bytes: be32_at(sector, 4),
            block_count: be64_at(sector, 8),
            sector_bytes,
            inode_bytes: be16_at(sector, 104),
            group_blocks: be32_at(sector, 84),
            group_count: be32_at(sector, 88),
            group_block_bits: u8_at(sector, 124),
            inodes_per_block_bits: u8_at(sector, 123),
            folder_block_bits: u8_at(sector, 192),
            root: be64_at(sector, 56),
            log_start: be64_at(sector, 48),
            log_blocks: be32_at(sector, 96),
            has_checksums,
            has_kinds: if has_checksums {
                incompatible & incompatible::FILE_TYPE != 0
            } else {
                be32_at(sector, 200) & version_4::FILE_TYPE != 0
            },
            folds_case: version & version_4::FOLDS_CASE != 0,
            incompatible,
            read_only: if has_checksums { be32_at(sector, 212) } else { 0 },
            uuid: array_at(sector, uuid_at),
            volume_uuid: array_at(sector, 32),
            free_blocks: be64_at(sector, 144),
            has_lazy_counts: be32_at(sector, 200) & version_4::LAZY_COUNTS != 0,
            is_being_made: u8_at(sector, 126) != 0,
        };
        superblock.check(sector)
    }

    /// Checks the fields, so that no later code shifts too far or uses an impossible size.
    fn check(self, sector: &[u8]) -> Result<Self, FileSystemError> {
        let wrong = |problem: &str| Err(damaged("superblock", problem));
        let is_power = |bytes: u32, bits: usize| 1_u32.checked_shl(u8_at(sector, bits).into()) == Some(bytes);
        if !(512..=65536).contains(&self.block_bytes) || !is_power(self.block_bytes, 120) {
            return wrong("its block size is impossible");
        }
        if !(512..=32768).contains(&self.sector_bytes)
            || !is_power(self.sector_bytes, 121)
            || self.sector_bytes > self.block_bytes
        {
            return wrong("its sector size is impossible");
        }
        let inode_bytes = u32::from(self.inode_bytes);
        let inode_bytes_min = if self.has_checksums { 512 } else { 256 };
        if !(inode_bytes_min..=2048).contains(&inode_bytes)
            || !is_power(inode_bytes, 122)
            || inode_bytes > self.block_bytes
            || inode_bytes.checked_shl(self.inodes_per_block_bits.into()) != Some(self.block_bytes)
        {
            return wrong("its inode size is impossible");
        }
        if 1_u32
            .checked_shl(self.folder_block_bits.into())
            .and_then(|blocks| blocks.checked_mul(self.block_bytes))
            .is_none_or(|bytes| bytes > 65536)
        {
            return wrong("the block size of its folders is impossible");
        }
        // The field has the logarithm of the blocks of a group, rounded up.
        let group_bits = self.group_blocks.checked_next_power_of_two().map(u32::trailing_zeros);
        if group_bits != Some(self.group_block_bits.into())
            || self.group_blocks < 8
            || self.group_block_bits > 31
        {
            return wrong("the size of its allocation groups is impossible");
        }
        let groups = self.block_count.div_ceil(self.group_blocks.into());
        if groups != u64::from(self.group_count) || groups == 0 {
            return wrong("the number of its allocation groups is impossible");
        }
        if self
            .block_count
            .checked_mul(self.block_bytes.into())
            .is_none_or(|bytes| i64::try_from(bytes).is_err())
        {
            return wrong("its number of blocks is impossible");
        }
        Ok(self)
    }

    /// Returns true if any of these features is set.
    pub(super) fn needs(&self, incompatible: u32) -> bool {
        self.incompatible & incompatible != 0
    }

    /// Returns true if any of these features for writers is set.
    pub(super) fn has(&self, read_only: u32) -> bool {
        self.read_only & read_only != 0
    }

    /// Returns true if only a writer with more features than this reader knows may change it.
    pub(super) fn has_unknown_read_only(&self) -> bool {
        self.read_only & !read_only::KNOWN != 0
    }

    /// Returns true if groups have a tree of free inodes.
    pub(super) fn has_free_inode_tree(&self) -> bool {
        self.has(read_only::FREE_INODES)
    }

    /// Returns the reason to doubt its state that the superblock itself has.
    pub(super) fn doubt(&self) -> Option<&'static str> {
        if self.is_being_made {
            return Some("it was being made");
        }
        self.needs(incompatible::NEEDS_REPAIR).then_some("it is marked as to be repaired")
    }

    /// Returns the number of blocks of a group: the last one may be shorter.
    pub(super) fn blocks_of_group(&self, group: u32) -> u32 {
        let before = u64::from(group).saturating_mul(self.group_blocks.into());
        let rest = self.block_count.saturating_sub(before);
        u32::try_from(rest).unwrap_or(u32::MAX).min(self.group_blocks)
    }

    /// Returns the position of a block among all blocks of the volume; `None` if there is no such
    /// block.
    pub(super) fn position(&self, block: u64) -> Option<u64> {
        let group = u32::try_from(block.checked_shr(self.group_block_bits.into())?).ok()?;
        let mask = 1_u64.checked_shl(self.group_block_bits.into())?.saturating_sub(1);
        self.position_in_group(group, u32::try_from(block & mask).ok()?)
    }

    /// Returns the position of a block of a group among all blocks of the volume.
    pub(super) fn position_in_group(&self, group: u32, block: u32) -> Option<u64> {
        let exists = group < self.group_count && block < self.blocks_of_group(group);
        let before = u64::from(group).checked_mul(self.group_blocks.into())?;
        exists.then(|| before.saturating_add(block.into()))
    }

    /// Returns the positions of `count` blocks from `block` on, if all of them are in one group.
    pub(super) fn positions(&self, block: u64, count: u64) -> Option<Range<u64>> {
        let last = block.checked_add(count.checked_sub(1)?)?;
        let bits = u32::from(self.group_block_bits);
        let is_one_group = block.checked_shr(bits) == last.checked_shr(bits);
        let first = self.position(block).filter(|_| is_one_group)?;
        Some(first..self.position(last)?.saturating_add(1))
    }

    /// Returns the position of the block of an inode, and the place of the inode in it.
    pub(super) fn inode_place(&self, inode: u64) -> Option<(u64, usize)> {
        let bits = u32::from(self.inodes_per_block_bits);
        let mask = 1_u64.checked_shl(bits)?.saturating_sub(1);
        let place = to_usize(inode & mask);
        let at = place.saturating_mul(usize::from(self.inode_bytes));
        Some((self.position(inode.checked_shr(bits)?)?, at))
    }
}

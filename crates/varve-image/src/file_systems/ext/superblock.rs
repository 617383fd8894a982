//! The superblock: the layout of an ext file system, and the state in which it was left.

use super::damaged;
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{array_at, put, u8_at, u16_at, u32_at};
use crate::file_systems::file_system::FileSystemError;

/// Its offset from the beginning, for every block size.
pub(super) const SUPERBLOCK_AT: u64 = 1024;
pub(super) const SUPERBLOCK_BYTES: usize = 1024;

const MAGIC: u16 = 0xef53;
const CHECKSUM_AT: usize = 0x3fc;
/// The lower and upper halves of the count of free clusters.
const FREE_COUNT_AT: [usize; 2] = [0xc, 0x158];
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// Features that a reader may ignore.
pub(super) mod compatible {
    pub(crate) const PREALLOCATED_FOLDERS: u32 = 0x1;
    pub(crate) const JOURNAL: u32 = 0x4;
    pub(crate) const XATTRS: u32 = 0x8;
    pub(crate) const RESIZE_INODE: u32 = 0x10;
    pub(crate) const FOLDER_INDEX: u32 = 0x20;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
    pub(crate) const FAST_COMMITS: u32 = 0x400;
    pub(crate) const STABLE_INODES: u32 = 0x800;
    pub(crate) const ORPHAN_FILE: u32 = 0x1000;
}

/// Features that a reader must support.
pub(super) mod incompatible {
    pub(crate) const COMPRESSION: u32 = 0x1;
    pub(crate) const FILE_TYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const JOURNAL_DEVICE: u32 = 0x8;
    pub(crate) const META_GROUPS: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const WIDE: u32 = 0x80;
    pub(crate) const MULTI_MOUNT: u32 = 0x100;
    pub(crate) const FLEX_GROUPS: u32 = 0x200;
    pub(crate) const VALUE_INODES: u32 = 0x400;
    pub(crate) const CHECKSUM_SEED: u32 = 0x2000;
    pub(crate) const LARGE_FOLDERS: u32 = 0x4000;
    pub(crate) const INLINE_DATA: u32 = 0x8000;
    pub(crate) const ENCRYPTION: u32 = 0x1_0000;
    pub(crate) const CASE_FOLDING: u32 = 0x2_0000;
    pub(crate) const KNOWN: u32 = FILE_TYPE
        | RECOVER
        | META_GROUPS
        | EXTENTS
        | WIDE
        | MULTI_MOUNT
        | FLEX_GROUPS
        | VALUE_INODES
        | CHECKSUM_SEED
        | LARGE_FOLDERS
        | INLINE_DATA
        | ENCRYPTION
        | CASE_FOLDING;
}

/// Features that only a writer must support.
pub(super) mod read_only {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const LARGE_FILES: u32 = 0x2;
    pub(crate) const HUGE_FILES: u32 = 0x8;
    pub(crate) const GROUP_CHECKSUM: u32 = 0x10;
    pub(crate) const MANY_FOLDERS: u32 = 0x20;
    pub(crate) const EXTRA_FIELDS: u32 = 0x40;
    pub(crate) const QUOTA: u32 = 0x100;
    pub(crate) const CLUSTERS: u32 = 0x200;
    pub(crate) const METADATA_CHECKSUM: u32 = 0x400;
    pub(crate) const PROJECTS: u32 = 0x2000;
    pub(crate) const ORPHANS_PRESENT: u32 = 0x1_0000;
}

/// The fields that a reader needs. Every number has been checked against the others.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    pub(super) block_bytes: u32,
    pub(super) block_count: u64,
    pub(super) first_data_block: u64,
    /// The blocks of an allocation unit; 1 without bigalloc.
    pub(super) cluster_blocks: u64,
    pub(super) blocks_per_group: u64,
    pub(super) clusters_per_group: u64,
    pub(super) inodes_per_group: u32,
    pub(super) inode_count: u32,
    pub(super) inode_bytes: u16,
    pub(super) descriptor_bytes: u16,
    pub(super) reserved_descriptor_blocks: u16,
    pub(super) first_meta_group: u32,
    pub(super) backup_groups: [u32; 2],
    pub(super) compatible: u32,
    pub(super) incompatible: u32,
    pub(super) read_only: u32,
    pub(super) uuid: [u8; 16],
    pub(super) label: [u8; 16],
    /// The inode of the journal; 0 if the journal is not on this volume.
    pub(super) journal_inode: u32,
    /// The inodes of the quotas and of the file of orphans; 0 for each that does not exist.
    pub(super) internal_inodes: [u32; 4],
    pub(super) creator: u32,
    pub(super) checksum_seed: u32,
    /// The seed for the hashes of names in indexes.
    pub(super) hash_seed: [u32; 4],
    /// True if those hashes treat the bytes of names as unsigned.
    pub(super) has_unsigned_hashes: bool,
    is_valid: bool,
    has_errors: bool,
    has_orphans: bool,
}

impl Superblock {
    pub(super) fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, FileSystemError> {
        let wrong = |problem: &str| Err(damaged("superblock", problem));
        if u16_at(bytes, 0x38) != MAGIC {
            return wrong("its magic number is missing");
        }
        let incompatible = u32_at(bytes, 0x60);
        let unknown = incompatible & !incompatible::KNOWN;
        if unknown != 0 {
            let feature = match unknown {
                _ if unknown & incompatible::JOURNAL_DEVICE != 0 => "a journal for another disk".into(),
                _ if unknown & incompatible::COMPRESSION != 0 => "compression by e2compr".into(),
                _ => format!("the feature {unknown:#x}"),
            };
            return Err(FileSystemError::Unsupported { what: "the ext file system".into(), feature });
        }
        let Some(block_bytes) =
            1024_u32.checked_shl(u32_at(bytes, 0x18)).filter(|size| *size <= BLOCK_BYTES_MAX && *size > 0)
        else {
            return wrong("its block size is impossible");
        };
        let (wide, clusters) =
            (incompatible & incompatible::WIDE != 0, u32_at(bytes, 0x64) & read_only::CLUSTERS != 0);
        let high = if wide { u64::from(u32_at(bytes, 0x150)) } else { 0 };
        let cluster_shift = u32_at(bytes, 0x1c).checked_sub(u32_at(bytes, 0x18)).unwrap_or(u32::MAX);
        let cluster_blocks = if clusters { 1_u64.checked_shl(cluster_shift).unwrap_or(0) } else { 1 };
        let dynamic = u32_at(bytes, 0x4c) > 0;
        let superblock = Self {
            block_bytes,
            block_count: high << 32 | u64::from(u32_at(bytes, 4)),
            first_data_block: u64::from(u32_at(bytes, 0x14)),
            cluster_blocks,
            blocks_per_group: u64::from(u32_at(bytes, 0x20)),
            clusters_per_group: u64::from(u32_at(bytes, if clusters { 0x24 } else { 0x20 })),
            inodes_per_group: u32_at(bytes, 0x28),
            inode_count: u32_at(bytes, 0),
            inode_bytes: if dynamic { u16_at(bytes, 0x58) } else { 128 },
            descriptor_bytes: if wide { u16_at(bytes, 0xfe) } else { 32 },
            reserved_descriptor_blocks: u16_at(bytes, 0xce),
            first_meta_group: u32_at(bytes, 0x104),
            backup_groups: [u32_at(bytes, 0x24c), u32_at(bytes, 0x250)],
            compatible: u32_at(bytes, 0x5c),
            incompatible,
            read_only: u32_at(bytes, 0x64),
            uuid: array_at(bytes, 0x68),
            label: array_at(bytes, 0x78),
            journal_inode: u32_at(bytes, 0xe0),
            internal_inodes: [0x240, 0x244, 0x26c, 0x280].map(|at| u32_at(bytes, at)),
            creator: u32_at(bytes, 0x48),
            checksum_seed: if incompatible & incompatible::CHECKSUM_SEED != 0 {
                u32_at(bytes, 0x270)
            } else {
                crc32c_from(!0, &array_at::<16>(bytes, 0x68))
            },
            hash_seed: [0xec, 0xf0, 0xf4, 0xf8].map(|at| u32_at(bytes, at)),
            has_unsigned_hashes: u32_at(bytes, 0x160) & 2 != 0,
            is_valid: u16_at(bytes, 0x3a) & 1 != 0,
            has_errors: u16_at(bytes, 0x3a) & 2 != 0,
            has_orphans: u32_at(bytes, 0xe8) != 0 || u16_at(bytes, 0x3a) & 4 != 0,
        };
        if superblock.has(read_only::METADATA_CHECKSUM) {
            if u8_at(bytes, 0x175) != 1 {
                return wrong("its kind of checksums is unknown");
            }
            if checksum(bytes) != u32_at(bytes, CHECKSUM_AT) {
                return wrong("it does not match its checksum");
            }
        }
        superblock.check()
    }

    /// Checks the fields, so that no later code divides by zero or uses an impossible size.
    fn check(self) -> Result<Self, FileSystemError> {
        let wrong = |problem: &str| Err(damaged("superblock", problem));
        let bits = u64::from(self.block_bytes).saturating_mul(8);
        if self.block_count <= self.first_data_block || self.first_data_block > 1 {
            return wrong("it has no blocks");
        }
        if self.cluster_blocks == 0
            || self.cluster_blocks > bits
            || self.clusters_per_group == 0
            || self.clusters_per_group > bits
            || self.clusters_per_group.checked_mul(self.cluster_blocks) != Some(self.blocks_per_group)
        {
            return wrong("the number of blocks in its groups is impossible");
        }
        if self.inodes_per_group == 0 || u64::from(self.inodes_per_group) > bits {
            return wrong("the number of inodes in its groups is impossible");
        }
        if !self.inode_bytes.is_power_of_two()
            || self.inode_bytes < 128
            || u32::from(self.inode_bytes) > self.block_bytes
        {
            return wrong("its inode size is impossible");
        }
        if !self.descriptor_bytes.is_power_of_two()
            || self.descriptor_bytes < 32
            || u32::from(self.descriptor_bytes) > self.block_bytes
        {
            return wrong("the size of its group descriptors is impossible");
        }
        if self.group_count() > u64::from(u32::MAX) {
            return wrong("it has too many groups");
        }
        Ok(self)
    }

    /// Returns true if any of these features for writers is set.
    pub(super) fn has(&self, read_only: u32) -> bool {
        self.read_only & read_only != 0
    }

    /// Returns true if any of these features is set.
    pub(super) fn needs(&self, incompatible: u32) -> bool {
        self.incompatible & incompatible != 0
    }

    pub(super) fn group_count(&self) -> u64 {
        self.block_count.saturating_sub(self.first_data_block).div_ceil(self.blocks_per_group.max(1))
    }

    /// Returns the number of blocks of a group: the last one may be shorter.
    pub(super) fn blocks_of_group(&self, group: u32) -> u64 {
        let before = u64::from(group).saturating_mul(self.blocks_per_group);
        let data_blocks = self.block_count.saturating_sub(self.first_data_block);
        data_blocks.saturating_sub(before).min(self.blocks_per_group)
    }

    pub(super) fn first_block_of_group(&self, group: u32) -> u64 {
        u64::from(group).saturating_mul(self.blocks_per_group).saturating_add(self.first_data_block)
    }

    /// Returns true if a group begins with a copy of the superblock.
    pub(super) fn group_has_superblock(&self, group: u32) -> bool {
        if self.compatible & compatible::SPARSE_SUPER2 != 0 {
            return group == 0 || self.backup_groups.contains(&group);
        }
        if group <= 1 || !self.has(read_only::SPARSE_SUPER) {
            return true;
        }
        let is_power = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        [3, 5, 7].into_iter().any(is_power)
    }

    /// Returns true if a deletion is unfinished.
    pub(super) fn has_orphans(&self) -> bool {
        self.has_orphans || self.has(read_only::ORPHANS_PRESENT)
    }

    /// Returns true if the journal has transactions to replay.
    pub(super) fn needs_recovery(&self) -> bool {
        self.needs(incompatible::RECOVER)
    }

    /// Returns true if no errors were recorded, so that the metadata can be trusted once the
    /// journal is empty.
    pub(super) fn is_in_order(&self) -> bool {
        self.is_valid && !self.has_errors
    }

    /// Returns true if the file system was left in a clean state: unmounted, no errors recorded, no
    /// deletion unfinished.
    pub(super) fn is_clean(&self) -> bool {
        self.is_in_order() && !self.has_orphans() && !self.needs_recovery()
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c_from(!0, bytes.get(..CHECKSUM_AT).unwrap_or_default())
}

/// Lowers the count of free clusters in the bytes of a superblock.
pub(super) fn take_free_clusters(superblock: &Superblock, bytes: &mut [u8], count: u64) {
    let [low_at, high_at] = FREE_COUNT_AT;
    let is_wide = superblock.needs(incompatible::WIDE);
    let high = if is_wide { u64::from(u32_at(bytes, high_at)) } else { 0 };
    let free = (high << 32 | u64::from(u32_at(bytes, low_at))).saturating_sub(count);
    let [one, two, three, four, high @ ..] = free.to_le_bytes();
    put(bytes, low_at, &[one, two, three, four]);
    if is_wide {
        put(bytes, high_at, &high);
    }
    if superblock.has(read_only::METADATA_CHECKSUM) {
        let code = checksum(bytes);
        put(bytes, CHECKSUM_AT, &code.to_le_bytes());
    }
}

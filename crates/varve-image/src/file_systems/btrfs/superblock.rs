//! The superblock: 4 KiB at 64 KiB, with copies at 64 MiB and 256 GiB if the device has these
//! places.
//!
//! | offset | bytes | of a superblock                 | offset | bytes | of a superblock               |
//! |-------:|------:|---------------------------------|-------:|------:|-------------------------------|
//! |      0 |    32 | checksum of bytes 32..4096      |    160 |     4 | bytes of the first chunks     |
//! |     32 |    16 | UUID of the file system         |    164 |     8 | generation of the chunk tree  |
//! |     48 |     8 | its own place                   |    188 |     8 | features that readers need    |
//! |     56 |     8 | flags                           |    196 |     2 | kind of the checksums         |
//! |     64 |     8 | `_BHRfS_M`                      |    198 |     1 | level of the root tree        |
//! |     72 |     8 | generation                      |    199 |     1 | level of the chunk tree       |
//! |     80 |     8 | the root tree                   |    200 |     1 | level of the log tree         |
//! |     88 |     8 | the chunk tree                  |    201 |     8 | number of this device         |
//! |     96 |     8 | the log tree; 0: none           |    209 |     8 | bytes of this device          |
//! |    120 |     8 | used bytes                      |    217 |     8 | bytes of it that chunks have  |
//! |    136 |     8 | number of devices               |    267 |    16 | UUID of this device           |
//! |    144 |     4 | bytes of a sector               |    571 |    16 | UUID in the headers of nodes  |
//! |    148 |     4 | bytes of a node                 |    811 |  2048 | the chunks of the chunk tree  |
//! |    180 |     8 | features that writers need      |        |       |                               |
//!
//! All numbers are little-endian.

use super::checksum::{CHECKSUM_ROOM, ChecksumKind};
use super::damaged;
use super::tree_root::TreeRoot;
use crate::bytes::fields::{array_at, has_at, u8_at, u16_at, u32_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;
use varve_block::to_usize;

/// The places of the superblock and its copies.
pub(super) const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: usize = 4096;
const FIRST_CHUNKS_AT: usize = 811;
const FIRST_CHUNKS_BYTES_MAX: usize = 2048;

const IS_METADATA_DUMP: u64 = 3 << 33;
/// The UUID of the file system, its trees or its checksums are being changed by a tool.
const IS_BEING_CHANGED: u64 = 0x1f << 36;
/// Other file systems grow from it.
const IS_SEED: u64 = 1 << 32;

/// Features that change what a reader must do.
mod feature {
    pub(super) const METADATA_UUID: u64 = 1 << 10;
    pub(super) const ZONED: u64 = 1 << 12;
    pub(super) const EXTENT_TREE_V2: u64 = 1 << 13;
    pub(super) const STRIPE_TREE: u64 = 1 << 14;
    /// Mixed back references, a default subvolume, mixed block groups, LZO, zstd, large metadata,
    /// extended inode references, RAID 5 and 6, skinny metadata, no holes, RAID1 with 3 and 4
    /// copies, and simple quotas. They change nothing for a reader, or are visible in the items.
    pub(super) const HARMLESS: u64 = 0x3ff | 1 << 11 | 1 << 16;
}

/// Features that a writer must know.
pub(super) mod read_only_feature {
    pub(in super::super) const FREE_SPACE_TREE_VALID: u64 = 1 << 1;
    pub(in super::super) const BLOCK_GROUP_TREE: u64 = 1 << 3;
    /// Those above, a tree of free space that may be out of date, and verified files.
    pub(in super::super) const KNOWN: u64 = 0xf;
}

/// The facts of a valid superblock.
#[derive(Debug, Clone)]
pub(super) struct BtrfsSuperblock {
    pub(super) generation: u64,
    pub(super) checksum: ChecksumKind,
    pub(super) sector_bytes: u32,
    pub(super) node_bytes: u32,
    pub(super) chunk_root: TreeRoot,
    pub(super) root: TreeRoot,
    /// The tree of logs: of the changes that `fsync` wrote after the last commit.
    pub(super) log_root: Option<TreeRoot>,
    pub(super) uuid: [u8; 16],
    /// The UUID in the headers of nodes.
    pub(super) metadata_uuid: [u8; 16],
    pub(super) device: u64,
    pub(super) device_uuid: [u8; 16],
    /// Keys and chunks of the chunk tree itself.
    pub(super) first_chunks: Vec<u8>,
    /// The bytes that extents have.
    pub(super) used_bytes: u64,
    pub(super) device_count: u64,
    pub(super) device_bytes: u64,
    /// The bytes of the device that chunks have.
    pub(super) device_used_bytes: u64,
    pub(super) read_only_features: u64,
    pub(super) is_seed: bool,
    /// True if the first superblock is damaged and this is a copy.
    pub(super) is_copy: bool,
}

impl BtrfsSuperblock {
    /// Reads the first superblock, or the newest copy if the first one is damaged.
    ///
    /// A mount reads the first one only. A commit writes the others after it, so a disk that was
    /// copied while it was in use may have newer ones, without the trees that they name.
    ///
    /// # Errors
    /// [`FileSystemError`] of the first superblock, if no copy is valid either, or if it needs a
    /// feature that is not supported.
    pub(super) fn read(volume: &dyn ReadAt) -> Result<Self, FileSystemError> {
        let [first, copies @ ..] = PLACES;
        match Self::read_at(volume, first) {
            // A superblock with an unsupported feature is intact, and a copy may be older than the
            // feature.
            first @ (Ok(_) | Err(FileSystemError::Unsupported { .. })) => first,
            Err(error) => {
                let copies = copies.into_iter().filter_map(|place| Self::read_at(volume, place).ok());
                let newest = copies.max_by_key(|copy| copy.generation).ok_or(error)?;
                Ok(Self { is_copy: true, ..newest })
            }
        }
    }

    /// Checks that every superblock of the device is one of the same commit.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn check_copies(&self, volume: &dyn ReadAt) -> Result<(), String> {
        let has_room = |place: &u64| place.saturating_add(SUPERBLOCK_BYTES as u64) <= self.device_bytes;
        for place in PLACES.into_iter().filter(has_room) {
            let copy = Self::read_at(volume, place);
            let is_same = copy.is_ok_and(|copy| {
                (copy.uuid, copy.device_uuid, copy.generation, copy.root)
                    == (self.uuid, self.device_uuid, self.generation, self.root)
            });
            if !is_same {
                return Err(format!("the superblock at byte {place} is not a copy of the first one"));
            }
        }
        Ok(())
    }

    fn read_at(volume: &dyn ReadAt, place: u64) -> Result<Self, FileSystemError> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        let read = volume.read_at(place, &mut bytes);
        read.map_err(|source| FileSystemError::Read { what: "superblock".into(), source })?;
        Self::parse(&bytes, place)
    }

    fn parse(bytes: &[u8], place: u64) -> Result<Self, FileSystemError> {
        let wrong = |problem: &str| damaged("superblock", problem);
        if !has_at(bytes, 64, b"_BHRfS_M") {
            return Err(wrong("it is not one of Btrfs"));
        }
        let unsupported = |feature: String| {
            let what = "Btrfs file system".into();
            Err(FileSystemError::Unsupported { what, feature })
        };
        let number = u16_at(bytes, 196);
        let Some(checksum) = ChecksumKind::parse(number) else {
            return unsupported(format!("the checksum of kind {number}"));
        };
        if !checksum.is_of(bytes, bytes.get(CHECKSUM_ROOM..).unwrap_or_default()) {
            return Err(wrong("it does not match its checksum"));
        }
        if u64_at(bytes, 48) != place {
            return Err(wrong("it belongs to another place"));
        }
        let flags = u64_at(bytes, 56);
        if flags & IS_METADATA_DUMP != 0 {
            return unsupported("an image that has metadata only".into());
        }
        if flags & IS_BEING_CHANGED != 0 {
            return unsupported("a conversion that was not finished".into());
        }
        let features = u64_at(bytes, 188);
        for (bit, name) in [
            (feature::ZONED, "a zoned device"),
            (feature::EXTENT_TREE_V2, "the second version of the extent tree"),
            (feature::STRIPE_TREE, "a tree of RAID stripes"),
        ] {
            if features & bit != 0 {
                return unsupported(name.into());
            }
        }
        let unknown = features & !(feature::HARMLESS | feature::METADATA_UUID);
        if unknown != 0 {
            return unsupported(format!("the feature {unknown:#x}"));
        }
        let (sector_bytes, node_bytes) = (u32_at(bytes, 144), u32_at(bytes, 148));
        let is_size = |bytes: u32| (4096..=65536).contains(&bytes) && bytes.is_power_of_two();
        if !is_size(sector_bytes) || !is_size(node_bytes) || node_bytes < sector_bytes {
            return Err(wrong("the sizes of its sectors and nodes are impossible"));
        }
        let first_bytes = to_usize(u32_at(bytes, 160));
        if first_bytes > FIRST_CHUNKS_BYTES_MAX {
            return Err(wrong("its list of chunks is too long"));
        }
        let first_end = FIRST_CHUNKS_AT.saturating_add(first_bytes);
        let generation = u64_at(bytes, 72);
        let uuid = array_at(bytes, 32);
        let log_root = TreeRoot {
            logical: u64_at(bytes, 96),
            level: u8_at(bytes, 200),
            generation: generation.wrapping_add(1),
        };
        let has_metadata_uuid = features & feature::METADATA_UUID != 0;
        Ok(Self {
            generation,
            checksum,
            sector_bytes,
            node_bytes,
            chunk_root: TreeRoot {
                logical: u64_at(bytes, 88),
                level: u8_at(bytes, 199),
                generation: u64_at(bytes, 164),
            },
            root: TreeRoot { logical: u64_at(bytes, 80), level: u8_at(bytes, 198), generation },
            log_root: Some(log_root).filter(|root| root.logical != 0),
            uuid,
            metadata_uuid: if has_metadata_uuid { array_at(bytes, 571) } else { uuid },
            device: u64_at(bytes, 201),
            device_uuid: array_at(bytes, 267),
            first_chunks: bytes.get(FIRST_CHUNKS_AT..first_end).unwrap_or_default().to_vec(),
            used_bytes: u64_at(bytes, 120),
            device_count: u64_at(bytes, 136),
            device_bytes: u64_at(bytes, 209),
            device_used_bytes: u64_at(bytes, 217),
            read_only_features: u64_at(bytes, 180),
            is_seed: flags & IS_SEED != 0,
            is_copy: false,
        })
    }
}

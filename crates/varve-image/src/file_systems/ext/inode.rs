//! Inodes: all metadata of a file except its names.

use super::superblock::{incompatible, read_only};
use super::{ExtFileSystem, damaged};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{array_at, put, u16_at, u32_at};
use crate::file_systems::file_system::{DeviceNumber, FileKind, FileStatus, FileSystemError};
use crate::file_systems::file_time::FileTime;
use crate::file_systems::unix_files::kind_of_mode;
use varve_block::to_usize;

pub(super) const ROOT: u32 = 2;
const OLD_BYTES: usize = 128;
const CHECKSUM_AT: usize = 124;
const HIGH_CHECKSUM_AT: usize = 130;
/// The bytes of an inode that hold its block map, its link target or its content.
pub(super) const MAP_BYTES: usize = 60;

const IS_INDEXED: u32 = 0x1000;
const FOLDS_CASE: u32 = 0x4000_0000;
pub(super) const HAS_HUGE_COUNT: u32 = 0x4_0000;
const HAS_EXTENTS: u32 = 0x8_0000;
const HAS_INLINE_DATA: u32 = 0x1000_0000;
const IS_ENCRYPTED: u32 = 0x800;

/// An inode as stored.
#[derive(Clone)]
pub(super) struct ExtInode {
    pub(super) number: u32,
    bytes: Vec<u8>,
    kind: FileKind,
    pub(super) size: u64,
    /// The seed for the checksums of everything that belongs to it.
    pub(super) checksum_seed: u32,
}

impl ExtInode {
    pub(super) fn kind(&self) -> FileKind {
        self.kind
    }

    pub(super) fn map(&self) -> [u8; MAP_BYTES] {
        array_at(&self.bytes, 40)
    }

    pub(super) fn has_extents(&self) -> bool {
        self.flags() & HAS_EXTENTS != 0
    }

    pub(super) fn has_inline_data(&self) -> bool {
        self.flags() & HAS_INLINE_DATA != 0
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.flags() & IS_ENCRYPTED != 0
    }

    /// Returns true if it is a folder with an index.
    pub(super) fn is_indexed(&self) -> bool {
        self.flags() & IS_INDEXED != 0
    }

    /// Returns true if it is a folder that ignores case.
    pub(super) fn folds_case(&self) -> bool {
        self.flags() & FOLDS_CASE != 0
    }

    pub(super) fn links(&self) -> u16 {
        u16_at(&self.bytes, 26)
    }

    /// Returns the block with its extended attributes; 0 if there is none.
    pub(super) fn xattr_block(&self) -> u64 {
        u64::from(u16_at(&self.bytes, 118)) << 32 | u64::from(u32_at(&self.bytes, 104))
    }

    /// Returns the bytes after its fields: room for extended attributes.
    pub(super) fn spare(&self) -> &[u8] {
        let fields_end = OLD_BYTES.saturating_add(usize::from(self.extra_bytes()));
        self.bytes.get(fields_end..).unwrap_or_default()
    }

    pub(super) fn flags(&self) -> u32 {
        u32_at(&self.bytes, 32)
    }

    fn extra_bytes(&self) -> u16 {
        if self.bytes.len() > OLD_BYTES { u16_at(&self.bytes, 128) } else { 0 }
    }

    /// Returns true if its fields include one of four bytes at `at`.
    fn reaches(&self, at: usize) -> bool {
        at.saturating_add(4) <= OLD_BYTES.saturating_add(usize::from(self.extra_bytes()))
    }

    /// Decodes a time: the lower 32 bits of the seconds are at `seconds_at`, two more bits and the
    /// nanoseconds at `extra_at`.
    fn time(&self, seconds_at: usize, extra_at: usize) -> FileTime {
        let seconds = i64::from(u32_at(&self.bytes, seconds_at).cast_signed());
        let extra = if self.reaches(extra_at) { u32_at(&self.bytes, extra_at) } else { 0 };
        let seconds = seconds.saturating_add(i64::from(extra & 3) << 32);
        FileTime::new(seconds, extra >> 2)
    }

    fn device(&self) -> Option<DeviceNumber> {
        if !matches!(self.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            return None;
        }
        let (old, new) = (u32_at(&self.bytes, 40), u32_at(&self.bytes, 44));
        Some(if old != 0 {
            DeviceNumber { major: old >> 8 & 0xff, minor: old & 0xff }
        } else {
            DeviceNumber { major: new >> 8 & 0xfff, minor: new & 0xff | new >> 12 & 0xf_ff00 }
        })
    }

    fn owner(&self, low: usize, high: usize) -> u32 {
        u32::from(u16_at(&self.bytes, high)) << 16 | u32::from(u16_at(&self.bytes, low))
    }
}

impl ExtFileSystem {
    /// Reads and checks an inode that is in use.
    pub(super) fn inode(&self, number: u32) -> Result<ExtInode, FileSystemError> {
        let absent = || FileSystemError::Absent { what: format!("inode {number}") };
        let inode = self.inode_if_used(number)?;
        // An inode that holds the value of an extended attribute has links too.
        inode.filter(|inode| inode.links() > 0).ok_or_else(absent)
    }

    /// Reads an inode. Returns `None` if it was never used.
    pub(super) fn inode_if_used(&self, number: u32) -> Result<Option<ExtInode>, FileSystemError> {
        let what = || format!("inode {number}");
        let (block, start) = self.inode_place(number)?;
        let block = self.metadata(block, what)?;
        let end = start.saturating_add(usize::from(self.superblock.inode_bytes));
        let bytes = block.get(start..end).ok_or_else(|| damaged(what(), "it is cut off"))?.to_vec();
        self.parse_inode(number, bytes)
    }

    /// Returns the block that has an inode, and the offset within it.
    pub(super) fn inode_place(&self, number: u32) -> Result<(u64, usize), FileSystemError> {
        let superblock = &self.superblock;
        let absent = || FileSystemError::Absent { what: format!("inode {number}") };
        let index = number.checked_sub(1).filter(|_| number <= superblock.inode_count).ok_or_else(absent)?;
        let group = index.checked_div(superblock.inodes_per_group).unwrap_or(0);
        let place = u64::from(index.checked_rem(superblock.inodes_per_group).unwrap_or(0));
        if u64::from(group) >= superblock.group_count() {
            return Err(absent());
        }
        let table = self.group(group)?.inode_table;
        let at = place.saturating_mul(u64::from(superblock.inode_bytes));
        let block_bytes = u64::from(superblock.block_bytes).max(1);
        let block = table.saturating_add(at.checked_div(block_bytes).unwrap_or(0));
        Ok((block, to_usize(at.checked_rem(block_bytes).unwrap_or(0))))
    }

    fn parse_inode(&self, number: u32, bytes: Vec<u8>) -> Result<Option<ExtInode>, FileSystemError> {
        let what = || format!("inode {number}");
        let mode = u16_at(&bytes, 0);
        if mode == 0 {
            return Ok(None);
        }
        let seed = crc32c_from(self.superblock.checksum_seed, &number.to_le_bytes());
        let checksum_seed = crc32c_from(seed, &array_at::<4>(&bytes, 100));
        let unknown = || damaged(what(), &format!("its kind, {:o}, is unknown", mode >> 12));
        let kind = kind_of_mode(mode.into()).ok_or_else(unknown)?;
        let has_high = kind == FileKind::File || self.superblock.needs(incompatible::LARGE_FOLDERS);
        let high = if has_high { u64::from(u32_at(&bytes, 108)) } else { 0 };
        let size = high << 32 | u64::from(u32_at(&bytes, 4));
        if i64::try_from(size).is_err() {
            return Err(damaged(what(), "its size is impossible"));
        }
        let inode = ExtInode { number, bytes, kind, size, checksum_seed };
        if usize::from(inode.extra_bytes()) > inode.bytes.len().saturating_sub(OLD_BYTES) {
            return Err(damaged(what(), "its fields exceed its length"));
        }
        if self.superblock.has(read_only::METADATA_CHECKSUM) && !inode.matches_checksum() {
            return Err(damaged(what(), "it does not match its checksum"));
        }
        Ok(Some(inode))
    }

    pub(super) fn status_of(&self, inode: &ExtInode) -> FileStatus {
        let bytes = &inode.bytes;
        let mut allocated = u64::from(u32_at(bytes, 28));
        if self.superblock.has(read_only::HUGE_FILES) {
            allocated |= u64::from(u16_at(bytes, 116)) << 32;
        }
        let unit =
            if inode.flags() & HAS_HUGE_COUNT != 0 { u64::from(self.superblock.block_bytes) } else { 512 };
        let has_size = matches!(inode.kind, FileKind::File | FileKind::SymbolicLink);
        FileStatus {
            kind: inode.kind,
            mode: u16_at(bytes, 0) & 0o7777,
            uid: inode.owner(2, 120),
            gid: inode.owner(24, 122),
            links: u32::from(inode.links()),
            size: if has_size { inode.size } else { 0 },
            allocated: allocated.saturating_mul(unit),
            modified: inode.time(16, 136),
            changed: Some(inode.time(12, 132)),
            accessed: Some(inode.time(8, 140)),
            created: inode.reaches(144).then(|| inode.time(144, 148)),
            device: inode.device(),
        }
    }
}

impl ExtInode {
    fn matches_checksum(&self) -> bool {
        let recorded = u32::from(u16_at(&self.bytes, CHECKSUM_AT));
        match checksum(self.checksum_seed, &self.bytes) {
            (code, true) => code == u32::from(u16_at(&self.bytes, HIGH_CHECKSUM_AT)) << 16 | recorded,
            (code, false) => code & 0xffff == recorded,
        }
    }
}

/// Returns the checksum of an inode, and true if the inode has room for its upper half.
fn checksum(seed: u32, inode: &[u8]) -> (u32, bool) {
    let mut bytes = inode.to_vec();
    let mut clear = |at: usize| bytes.get_mut(at..at.saturating_add(2)).unwrap_or_default().fill(0);
    clear(CHECKSUM_AT);
    let has_high = inode.len() > OLD_BYTES && u16_at(inode, 128) >= 4;
    if has_high {
        clear(HIGH_CHECKSUM_AT);
    }
    (crc32c_from(seed, &bytes), has_high)
}

/// Sets the checksum of an inode whose other bytes have changed.
pub(super) fn set_checksum(seed: u32, inode: &mut [u8]) {
    let (code, has_high) = checksum(seed, inode);
    let [low, next, high, highest] = code.to_le_bytes();
    put(inode, CHECKSUM_AT, &[low, next]);
    if has_high {
        put(inode, HIGH_CHECKSUM_AT, &[high, highest]);
    }
}

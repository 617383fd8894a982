//! Inodes.
//!
//! | offset | bytes | of an inode           | offset | bytes | of an inode                         |
//! |-------:|------:|-----------------------|-------:|------:|--------------------------------------|
//! |     16 |     8 | size                  |     56 |     8 | device: minor in the lower 20 bits  |
//! |     24 |     8 | bytes on the device   |     64 |     8 | flags; 1: data without checksums    |
//! |     40 |     4 | links                 |    112 |    12 | time of access                      |
//! |     44 |     4 | owner                 |    124 |    12 | time of the last change             |
//! |     48 |     4 | group                 |    136 |    12 | time of the last change of content  |
//! |     52 |     4 | kind and permissions  |    148 |    12 | time of creation                    |
//!
//! A time is seconds since 1970 (8 bytes) and nanoseconds (4 bytes).

use crate::bytes::fields::{u32_at, u64_at};
use crate::file_systems::file_system::{DeviceNumber, FileKind, FileStatus};
use crate::file_systems::file_time::FileTime;
use crate::file_systems::unix_files::kind_of_mode;

const INODE_BYTES: usize = 160;
const HAS_NO_CHECKSUMS: u64 = 1;
const MODE_MASK: u32 = 0o7777;
const MINOR_BITS: u32 = 20;

/// An inode.
pub(super) struct BtrfsInode {
    pub(super) status: FileStatus,
    /// The stored size, which folders have, too.
    pub(super) size: u64,
    pub(super) has_checksums: bool,
}

fn time_at(bytes: &[u8], at: usize) -> FileTime {
    FileTime::new(u64_at(bytes, at).cast_signed(), u32_at(bytes, at.saturating_add(8)))
}

impl BtrfsInode {
    /// Reads the item of an inode.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < INODE_BYTES {
            return Err("it is too short");
        }
        let mode = u32_at(bytes, 52);
        let kind = kind_of_mode(mode).ok_or("its kind is unknown")?;
        let size = u64_at(bytes, 16);
        let shown_size = if matches!(kind, FileKind::File | FileKind::SymbolicLink) { size } else { 0 };
        let device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice).then(|| {
            let number = u64_at(bytes, 56);
            let part = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
            DeviceNumber { major: part(number >> MINOR_BITS), minor: part(number & 0xf_ffff) }
        });
        let status = FileStatus {
            uid: u32_at(bytes, 44),
            gid: u32_at(bytes, 48),
            links: u32_at(bytes, 40),
            allocated: u64_at(bytes, 24),
            modified: time_at(bytes, 136),
            changed: Some(time_at(bytes, 124)),
            accessed: Some(time_at(bytes, 112)),
            created: Some(time_at(bytes, 148)),
            device,
            ..FileStatus::new(kind, u16::try_from(mode & MODE_MASK).unwrap_or(0), shown_size)
        };
        Ok(Self { status, size, has_checksums: u64_at(bytes, 64) & HAS_NO_CHECKSUMS == 0 })
    }
}

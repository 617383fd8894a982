//! Inodes: all metadata of a file except its names. All numbers are big-endian.
//!
//! | at     | bytes | field                                                     |
//! |-------:|------:|-----------------------------------------------------------|
//! |      0 |     2 | `IN`                                                      |
//! |      2 |     2 | kind and mode                                             |
//! |   4, 5 |  1, 1 | version (1, 2; 3 if the file system has version 5), form of the content |
//! |      6 |     2 | links, in version 1                                       |
//! |  8, 12 |  4, 4 | owner, group                                              |
//! |     16 |     4 | links                                                     |
//! |     24 |     8 | extents of the content, if counters are large             |
//! |     32 |  3× 8 | times of access, change of content, change                |
//! | 56, 64 |  8, 8 | size, blocks                                              |
//! |     76 |     4 | extents of the content; or of attributes, if counters are large |
//! |     80 |     2 | extents of attributes                                     |
//! | 82, 83 |  1, 1 | offset of the attributes in units of 8 bytes, their form  |
//! |     90 |     2 | flags                                                     |
//! |    100 |     4 | checksum, little-endian (version 3, as all that follows)  |
//! |    120 |     8 | more flags                                                |
//! |    144 |     8 | time of creation                                          |
//! |    152 |     8 | number of the inode                                       |
//! |    160 |    16 | UUID                                                      |

use super::seal::matches_checksum;
use super::{XfsFiles, damaged};
use crate::bytes::fields::{array_at, be16_at, be32_at, be64_at, has_at, u8_at};
use crate::file_systems::file_system::{DeviceNumber, FileKind, FileStatus, FileSystemError};
use crate::file_systems::file_time::FileTime;
use crate::file_systems::unix_files::kind_of_mode;

/// The bytes of the fields, before and since version 3.
pub(super) const OLD_FIELDS_BYTES: usize = 100;
pub(super) const FIELDS_BYTES: usize = 176;
pub(super) const INODE_CHECKSUM_AT: usize = 100;
const IS_REALTIME: u16 = 0x1;
const IS_SHARED: u64 = 0x2;
const HAS_BIG_TIMES: u64 = 0x8;
const HAS_LARGE_COUNTS: u64 = 0x10;
/// Times count from here, if they are big: the first time that 32 bits can hold, in 1901.
const BIG_TIMES_START: i64 = -(1 << 31);

/// The form in which content or attributes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum XfsForm {
    Device,
    /// In the inode.
    Local,
    /// A list of extents in the inode.
    Extents,
    /// A tree of extents, with its root in the inode.
    Tree,
}

/// The two parts of an inode that hold bytes or extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum XfsFork {
    Content,
    Attributes,
}

/// An inode as stored.
#[derive(Clone)]
pub(super) struct XfsInode {
    pub(super) number: u64,
    bytes: Vec<u8>,
    kind: FileKind,
    pub(super) size: u64,
}

impl XfsInode {
    pub(super) fn kind(&self) -> FileKind {
        self.kind
    }

    fn version(&self) -> u8 {
        u8_at(&self.bytes, 4)
    }

    fn more_flags(&self) -> u64 {
        if self.version() >= 3 { be64_at(&self.bytes, 120) } else { 0 }
    }

    fn has_large_counts(&self) -> bool {
        self.more_flags() & HAS_LARGE_COUNTS != 0
    }

    /// Returns true if its blocks are on the realtime device.
    pub(super) fn is_realtime(&self) -> bool {
        be16_at(&self.bytes, 90) & IS_REALTIME != 0
    }

    /// Returns true if other files may share its blocks.
    pub(super) fn is_shared(&self) -> bool {
        self.more_flags() & IS_SHARED != 0
    }

    /// Returns the form of a fork; `None` if the inode has no such fork.
    pub(super) fn form(&self, fork: XfsFork) -> Result<Option<XfsForm>, FileSystemError> {
        let at = match fork {
            XfsFork::Content => 5,
            XfsFork::Attributes if u8_at(&self.bytes, 82) == 0 => return Ok(None),
            XfsFork::Attributes => 83,
        };
        Ok(Some(match u8_at(&self.bytes, at) {
            0 => XfsForm::Device,
            1 => XfsForm::Local,
            2 => XfsForm::Extents,
            3 => XfsForm::Tree,
            other => {
                let problem = format!("the form of its content, {other}, is unknown");
                return Err(damaged(what(self.number), &problem));
            }
        }))
    }

    /// Returns true if the bytes of a fork are in the inode.
    pub(super) fn is_local(&self, fork: XfsFork) -> Result<bool, FileSystemError> {
        Ok(self.form(fork)? == Some(XfsForm::Local))
    }

    /// Returns the bytes of a fork in the inode.
    pub(super) fn fork(&self, fork: XfsFork) -> &[u8] {
        let fields = if self.version() >= 3 { FIELDS_BYTES } else { OLD_FIELDS_BYTES };
        let room = self.bytes.get(fields..).unwrap_or_default();
        let split = match u8_at(&self.bytes, 82) {
            0 => room.len(),
            coded => usize::from(coded).saturating_mul(8),
        };
        let (content, attributes) = room.split_at_checked(split).unwrap_or((room, &[]));
        match fork {
            XfsFork::Content => content,
            XfsFork::Attributes => attributes,
        }
    }

    /// Returns the number of extents of a fork.
    pub(super) fn extent_count(&self, fork: XfsFork) -> u64 {
        match (fork, self.has_large_counts()) {
            (XfsFork::Content, true) => be64_at(&self.bytes, 24),
            (XfsFork::Content, false) | (XfsFork::Attributes, true) => be32_at(&self.bytes, 76).into(),
            (XfsFork::Attributes, false) => be16_at(&self.bytes, 80).into(),
        }
    }

    fn links(&self) -> u32 {
        if self.version() == 1 { be16_at(&self.bytes, 6).into() } else { be32_at(&self.bytes, 16) }
    }

    fn time(&self, at: usize) -> FileTime {
        if self.more_flags() & HAS_BIG_TIMES != 0 {
            let nanoseconds = i128::from(be64_at(&self.bytes, at));
            return FileTime::from_wide_nanoseconds(nanoseconds)
                .minus_seconds(BIG_TIMES_START.saturating_neg());
        }
        let seconds = i64::from(be32_at(&self.bytes, at).cast_signed());
        FileTime::new(seconds, be32_at(&self.bytes, at.saturating_add(4)))
    }

    fn device(&self) -> Option<DeviceNumber> {
        if !matches!(self.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            return None;
        }
        let coded = be32_at(self.fork(XfsFork::Content), 0);
        Some(DeviceNumber { major: coded >> 18, minor: coded & 0x3_ffff })
    }

    pub(super) fn status(&self, block_bytes: u32) -> FileStatus {
        let bytes = &self.bytes;
        let has_size = matches!(self.kind, FileKind::File | FileKind::SymbolicLink);
        FileStatus {
            kind: self.kind,
            mode: be16_at(bytes, 2) & 0o7777,
            uid: be32_at(bytes, 8),
            gid: be32_at(bytes, 12),
            links: self.links(),
            size: if has_size { self.size } else { 0 },
            allocated: be64_at(bytes, 64).saturating_mul(block_bytes.into()),
            modified: self.time(40),
            changed: Some(self.time(48)),
            accessed: Some(self.time(32)),
            created: (self.version() >= 3).then(|| self.time(144)),
            device: self.device(),
        }
    }
}

pub(super) fn what(inode: u64) -> String {
    format!("inode {inode}")
}

impl XfsFiles {
    /// Reads and checks an inode that is in use.
    pub(super) fn inode(&self, number: u64) -> Result<XfsInode, FileSystemError> {
        let absent = || FileSystemError::Absent { what: what(number) };
        let superblock = &self.superblock;
        let (position, start) = superblock.inode_place(number).ok_or_else(absent)?;
        let block = self.block_at(position, || what(number))?;
        let end = start.saturating_add(usize::from(superblock.inode_bytes));
        let bytes = block.get(start..end).ok_or_else(|| damaged(what(number), "it is cut off"))?.to_vec();
        let wrong = |problem: &str| Err(damaged(what(number), problem));
        if !has_at(&bytes, 0, b"IN") {
            return wrong("its magic number is missing");
        }
        if superblock.has_checksums {
            if !matches_checksum(&bytes, INODE_CHECKSUM_AT) {
                return wrong("it does not match its checksum");
            }
            if be64_at(&bytes, 152) != number || array_at::<16>(&bytes, 160) != superblock.uuid {
                return wrong("it belongs to another place");
            }
        }
        let versions = if superblock.has_checksums { 3..=3 } else { 1..=2 };
        if !versions.contains(&u8_at(&bytes, 4)) {
            return wrong("its version is impossible");
        }
        let mode = be16_at(&bytes, 2);
        if mode == 0 {
            return Err(absent());
        }
        let Some(kind) = kind_of_mode(mode.into()) else {
            return wrong(&format!("its kind, {:o}, is unknown", mode >> 12));
        };
        let size = be64_at(&bytes, 56);
        if i64::try_from(size).is_err() {
            return wrong("its size is impossible");
        }
        Ok(XfsInode { number, bytes, kind, size })
    }
}

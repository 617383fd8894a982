//! Extents of files.
//!
//! | offset | bytes | of an extent                         | offset | bytes | of one that is not inline        |
//! |-------:|------:|--------------------------------------|-------:|------:|-----------------------------------|
//! |      8 |     8 | bytes after decompression            |     21 |     8 | address; 0: a hole               |
//! |     16 |     1 | compression: zlib, LZO, zstd         |     29 |     8 | bytes at the address             |
//! |     17 |     1 | encryption, 0                        |     37 |     8 | offset after decompression       |
//! |     18 |     2 | other encoding, 0                    |     45 |     8 | bytes in the file                |
//! |     20 |     1 | 0: inline, 1: stored, 2: never written |   21 |       | content, if it is inline         |

use super::compression::Compression;
use super::key::{TreeKey, kind};
use super::tree_root::TreeRoot;
use super::trees::{TreeItem, Trees};
use super::{damaged, unsupported};
use crate::bytes::fields::{u8_at, u16_at, u64_at};
use crate::file_systems::file_system::FileSystemError;

const INLINE_AT: usize = 21;
const STORED_BYTES: usize = 53;
/// The kernel stores at most 128 KiB as one compressed extent.
const COMPRESSED_BYTES_MAX: u64 = 128 << 10;

/// A file in its subvolume, for messages.
#[derive(Clone, Copy)]
pub(super) struct FileOfSubvolume {
    pub(super) root: TreeRoot,
    pub(super) subvolume: u64,
    pub(super) inode: u64,
}

impl FileOfSubvolume {
    /// Names a place in a file.
    pub(super) fn what(&self, offset: u64) -> String {
        let Self { subvolume, inode, .. } = self;
        format!("content of inode {inode} of subvolume {subvolume} at {offset}")
    }
}

/// A part of a file.
pub(super) struct BtrfsExtent {
    pub(super) start: u64,
    /// Greater than the start.
    pub(super) end: u64,
    pub(super) source: ExtentSource,
}

/// The source of the bytes of an extent.
pub(super) enum ExtentSource {
    /// Zeros.
    Hole,
    /// The bytes are in the tree.
    Inline(InlineContent),
    /// The bytes are at this address.
    Stored { logical: u64 },
    /// The bytes are in a compressed extent, from `offset` on.
    Compressed { packed: PackedExtent, offset: u64 },
}

/// Content in a leaf.
pub(super) struct InlineContent {
    item: TreeItem,
    pub(super) compression: Option<Compression>,
}

impl InlineContent {
    pub(super) fn bytes(&self) -> &[u8] {
        self.item.data().get(INLINE_AT..).unwrap_or_default()
    }
}

/// A compressed extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PackedExtent {
    pub(super) logical: u64,
    pub(super) stored_bytes: u64,
    pub(super) content_bytes: u64,
    pub(super) compression: Compression,
}

impl BtrfsExtent {
    /// Returns the part of a file that has the byte at `offset`.
    ///
    /// # Errors
    /// [`FileSystemError`]
    pub(super) fn at(trees: &Trees, file: &FileOfSubvolume, offset: u64) -> Result<Self, FileSystemError> {
        let key = TreeKey::new(file.inode, kind::FILE_EXTENT, offset);
        let item = trees.last_up_to(&file.root, &key)?.filter(|item| item.key().is_beside(&key));
        if let Some(item) = item {
            let start = item.key().offset;
            let extent = Self::parse(item, file, start, trees.superblock().sector_bytes.into())?;
            if extent.end > offset {
                return Ok(extent);
            }
        }
        let next = TreeKey::new(file.inode, kind::FILE_EXTENT, offset.saturating_add(1));
        let last = TreeKey { offset: u64::MAX, ..key };
        let next = trees.range(&file.root, next, last).next().transpose()?;
        let end = next.map_or(u64::MAX, |item| item.key().offset);
        Ok(Self { start: offset, end: end.max(offset.saturating_add(1)), source: ExtentSource::Hole })
    }

    /// Reads an item. The end is `start` if it has no bytes.
    fn parse(
        item: TreeItem,
        file: &FileOfSubvolume,
        start: u64,
        sector_bytes: u64,
    ) -> Result<Self, FileSystemError> {
        let what = || file.what(start);
        let data = item.data();
        let content_bytes = u64_at(data, 8);
        if (u8_at(data, 17), u16_at(data, 18)) != (0, 0) {
            return Err(unsupported(what(), "encryption of Btrfs"));
        }
        let compression = match u8_at(data, 16) {
            0 => None,
            1 => Some(Compression::Zlib),
            2 => Some(Compression::Lzo),
            3 => Some(Compression::Zstd),
            number => return Err(unsupported(what(), &format!("the compression of kind {number}"))),
        };
        let form = u8_at(data, 20);
        if data.len() < if form == 0 { INLINE_AT } else { STORED_BYTES } {
            return Err(damaged(what(), "its extent is too short"));
        }
        if form == 0 {
            let stored = data.len().saturating_sub(INLINE_AT) as u64;
            let length = if compression.is_some() { content_bytes } else { stored };
            if start > 0 || length > COMPRESSED_BYTES_MAX {
                return Err(damaged(what(), "its inline extent has an impossible place or length"));
            }
            let source = ExtentSource::Inline(InlineContent { item, compression });
            return Ok(Self { start, end: length, source });
        }
        let (logical, stored_bytes) = (u64_at(data, 21), u64_at(data, 29));
        let (offset, length) = (u64_at(data, 37), u64_at(data, 45));
        let is_aligned = |number: u64| number.is_multiple_of(sector_bytes);
        if ![start, logical, stored_bytes, offset, length].into_iter().all(is_aligned) {
            return Err(damaged(what(), "its extent does not consist of whole sectors"));
        }
        let end = start.checked_add(length).ok_or_else(|| damaged(what(), "its extent has no end"))?;
        let source = match (form, logical, compression) {
            (1, 0, _) | (2, ..) => ExtentSource::Hole,
            (1, _, None) => {
                let last = offset.checked_add(length).filter(|last| *last <= stored_bytes);
                let logical = logical.checked_add(offset).filter(|_| last.is_some());
                let logical =
                    logical.ok_or_else(|| damaged(what(), "its extent is shorter than its part"))?;
                ExtentSource::Stored { logical }
            }
            (1, _, Some(compression)) => {
                let last = offset.checked_add(length);
                if stored_bytes > COMPRESSED_BYTES_MAX
                    || content_bytes > COMPRESSED_BYTES_MAX
                    || last.is_none_or(|last| last > content_bytes)
                {
                    return Err(damaged(what(), "its compressed extent has an impossible length"));
                }
                let packed = PackedExtent { logical, stored_bytes, content_bytes, compression };
                ExtentSource::Compressed { packed, offset }
            }
            _ => return Err(damaged(what(), "its extent is of an unknown form")),
        };
        Ok(Self { start, end, source })
    }
}

//! An entry: the root of a Venti tree and its sizes. 40 bytes, big-endian.
//!
//! | at | size | what          |                                                                                       |
//! |---:|-----:|---------------|---------------------------------------------------------------------------------------|
//! |  0 |    4 | generation    |                                                                                       |
//! |  4 |    2 | pointer_bytes | the size of a pointer block                                                           |
//! |  6 |    2 | leaf_bytes    | the size of a leaf                                                                    |
//! |  8 |    1 | flags         | 1 in use, 2 leaves are entries, 0x1c the depth, 0x20 was in its writer's memory, 0x40 big sizes |
//! |  9 |    5 | zero          |                                                                                       |
//! | 14 |    6 | size          | of the file in bytes                                                                  |
//! | 20 |   20 | score         | of the topmost block                                                                  |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BlockKind, Score};

use super::{VENTI_SCORE_BYTES, decode_big, encode_big};
use crate::entry::{Entry, Layout};
use crate::shape::Shape;

/// The size of an entry.
pub const VENTI_ENTRY_BYTES: usize = 40;

const IN_USE: u8 = 0x01;
const ENTRIES: u8 = 0x02;
const DEPTH_MASK: u8 = 0x1c;
const DEPTH_SHIFT: u8 = 2;
const LOCAL: u8 = 0x20;
const BIG: u8 = 0x40;
const BLOCK_BYTES_MIN: u32 = 256;
/// The meaning of size 0 in some old archives.
const BLOCK_BYTES_OLD: u32 = 4096;
const SIZE_MAX: u64 = (1 << 48) - 1;

/// A tree, and the generation of its slot in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VentiEntry {
    /// Distinguishes a file from an earlier one in the same slot.
    pub generation: u32,
    /// The tree of its bytes or entries.
    pub tree: Entry,
}

/// The reason why bytes are not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeVentiEntryError {
    #[error("an entry of {actual} bytes is invalid: a Venti entry has {VENTI_ENTRY_BYTES} bytes")]
    Length { actual: usize },
    /// A size that no block has, or a depth that is too small for the size.
    #[error(
        "the entry is invalid: {size} bytes at depth {depth}, in leaves of {leaf_bytes} and pointer blocks of {pointer_bytes} bytes"
    )]
    Sizes {
        leaf_bytes: u32,
        pointer_bytes: u32,
        /// The levels of pointer blocks.
        depth: u8,
        /// The size of the file.
        size: u64,
    },
}

impl VentiEntry {
    /// Decodes an entry; `None` if the slot is not in use.
    ///
    /// # Errors
    /// [`DecodeVentiEntryError`] names the numbers that no writer would have written.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeVentiEntryError> {
        let wrong_length = || DecodeVentiEntryError::Length { actual: bytes.len() };
        let whole: &[u8; VENTI_ENTRY_BYTES] = bytes.try_into().map_err(|_| wrong_length())?;
        let (head, score) = whole
            .split_first_chunk::<{ VENTI_ENTRY_BYTES - VENTI_SCORE_BYTES }>()
            .ok_or_else(wrong_length)?;
        let &[g0, g1, g2, g3, p0, p1, d0, d1, flags, _, _, _, _, _, s0, s1, s2, s3, s4, s5] = head;
        if flags & IN_USE == 0 {
            return Ok(None);
        }
        let block_bytes = |high, low| {
            let value = u16::from_be_bytes([high, low]);
            if flags & BIG == 0 { u32::from(value) } else { decode_big(value).unwrap_or(u32::MAX) }
        };
        let (mut pointer_bytes, mut leaf_bytes) = (block_bytes(p0, p1), block_bytes(d0, d1));
        if (pointer_bytes, leaf_bytes) == (0, 0) {
            (pointer_bytes, leaf_bytes) = (BLOCK_BYTES_OLD, BLOCK_BYTES_OLD);
        }
        let depth = (flags & DEPTH_MASK) >> DEPTH_SHIFT;
        let size = u64::from_be_bytes([0, 0, s0, s1, s2, s3, s4, s5]);
        let leaf_kind = if flags & ENTRIES == 0 { BlockKind::Data } else { BlockKind::Directory };
        let shape = Shape { leaf_kind, leaf_bytes, pointer_bytes };
        let root = Score::try_from(score).map_err(|_| wrong_length())?;
        let wrong_sizes = DecodeVentiEntryError::Sizes { leaf_bytes, pointer_bytes, depth, size };
        if leaf_bytes < BLOCK_BYTES_MIN || pointer_bytes < BLOCK_BYTES_MIN {
            return Err(wrong_sizes);
        }
        let tree = Entry::venti(&shape, depth, size, root).ok_or(wrong_sizes)?;
        Ok(Some(Self { generation: u32::from_be_bytes([g0, g1, g2, g3]), tree }))
    }

    /// Encodes the entry. Returns `None` for a tree that Venti cannot express: one that is cut by
    /// content, is too deep or too large, or has other scores. `was_local` sets a mark that vac
    /// leaves on most entries and that readers ignore.
    #[must_use]
    pub fn encode(&self, was_local: bool) -> Option<[u8; VENTI_ENTRY_BYTES]> {
        let Self { generation, tree } = self;
        let depth =
            tree.depth().checked_shl(u32::from(DEPTH_SHIFT)).filter(|depth| depth & !DEPTH_MASK == 0)?;
        if tree.layout() == Layout::ContentCut || tree.depth() > 7 || tree.size() > SIZE_MAX {
            return None;
        }
        let mut flags = IN_USE | depth;
        if tree.leaf_kind() == BlockKind::Directory {
            flags |= ENTRIES;
        }
        if was_local {
            flags |= LOCAL;
        }
        let small = |bytes: u32| u16::try_from(bytes).ok();
        let (pointer_bytes, leaf_bytes) = match (small(tree.pointer_bytes()), small(tree.leaf_bytes())) {
            (Some(pointer_bytes), Some(leaf_bytes)) => (pointer_bytes, leaf_bytes),
            _ => {
                flags |= BIG;
                (encode_big(tree.pointer_bytes())?, encode_big(tree.leaf_bytes())?)
            }
        };
        let mut bytes = Vec::with_capacity(VENTI_ENTRY_BYTES);
        bytes.extend_from_slice(&generation.to_be_bytes());
        bytes.extend_from_slice(&pointer_bytes.to_be_bytes());
        bytes.extend_from_slice(&leaf_bytes.to_be_bytes());
        bytes.extend_from_slice(&[flags, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(tree.size().to_be_bytes().get(2..)?);
        bytes.extend_from_slice(tree.root().as_bytes());
        bytes.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(flags: u8, sizes: [u8; 4], size: u64) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 5];
        bytes.extend_from_slice(&sizes);
        bytes.extend_from_slice(&[flags, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&size.to_be_bytes()[2..]);
        bytes.extend_from_slice(&[9; 20]);
        bytes
    }

    const SIZES: [u8; 4] = [0x1f, 0xf4, 0x20, 0];

    #[test]
    fn entries_survive() {
        for (flags, sizes, size) in [
            (0x21, SIZES, 8192),
            (0x23, SIZES, 40),
            (0x29, SIZES, 3_350_529),
            // Deeper than necessary.
            (0x2d, SIZES, 1),
            (0x61, [0xea, 0x65, 0x80, 0x06], 65_536),
        ] {
            let bytes = bytes(flags, sizes, size);
            let entry = VentiEntry::decode(&bytes).unwrap().unwrap();
            assert_eq!((entry.generation, entry.tree.size()), (5, size));
            assert_eq!(entry.encode(true).unwrap().as_slice(), bytes, "{flags:x}");
        }
        assert_eq!(VentiEntry::decode(&bytes(0x20, SIZES, 1)), Ok(None));
        let old = VentiEntry::decode(&bytes(0x01, [0; 4], 0)).unwrap().unwrap();
        assert_eq!((old.tree.leaf_bytes(), old.tree.pointer_bytes()), (4096, 4096));
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        assert!(VentiEntry::decode(&[0; 39]).is_err());
        for (flags, sizes, size) in [
            (0x01, SIZES, 8193),
            (0x05, SIZES, 3_350_529),
            (0x01, [0, 255, 0x20, 0], 1),
            (0x01, [0x1f, 0xf4, 0, 255], 1),
            (0x41, [0xff, 0xff, 0x80, 0x06], 1),
        ] {
            let refused = VentiEntry::decode(&bytes(flags, sizes, size));
            assert!(matches!(refused, Err(DecodeVentiEntryError::Sizes { .. })), "{flags:x} {refused:?}");
        }
    }
}

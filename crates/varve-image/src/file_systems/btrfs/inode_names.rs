//! The names of an inode, as the inode has them itself.
//!
//! | offset | bytes | of a name          | offset | bytes | of a name in a long list |
//! |-------:|------:|--------------------|-------:|------:|---------------------------|
//! |        |       |                    |      0 |     8 | inode of the folder      |
//! |      0 |     8 | place in the folder |     8 |     8 | place in the folder      |
//! |      8 |     2 | bytes of the name  |     16 |     2 | bytes of the name        |
//! |     10 |       | name               |     18 |       | name                     |
//!
//! An item has one of these after the other. In the first form, the key has the folder.

use super::key::{TreeKey, kind};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{u16_at, u64_at};

const HEAD_BYTES: usize = 10;
const LONG_HEAD_BYTES: usize = 18;

/// A name of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InodeName {
    pub(super) folder: u64,
    /// The place of the entry in the folder.
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// Returns the key of the item in the second form that has this name.
pub(super) fn long_key(inode: u64, folder: u64, name: &[u8]) -> TreeKey {
    let seed = u32::try_from(folder & u64::from(u32::MAX)).unwrap_or(0);
    TreeKey::new(inode, kind::LONG_NAMES_OF_INODE, crc32c_from(seed, name).into())
}

/// Reads all names of an item.
///
/// # Errors
/// The contradiction, in words.
pub(super) fn names_of(key: &TreeKey, mut rest: &[u8]) -> Result<Vec<InodeName>, &'static str> {
    let is_long = key.kind == kind::LONG_NAMES_OF_INODE;
    let head_bytes = if is_long { LONG_HEAD_BYTES } else { HEAD_BYTES };
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (folder, head) =
            if is_long { (u64_at(rest, 0), rest.get(8..).unwrap_or_default()) } else { (key.offset, rest) };
        let end = head_bytes.saturating_add(usize::from(u16_at(head, 8)));
        let (now, after) = rest.split_at_checked(end).ok_or("a name of an inode is cut off")?;
        let name = now.get(head_bytes..).unwrap_or_default().to_vec();
        names.push(InodeName { folder, index: u64_at(head, 0), name });
        rest = after;
    }
    Ok(names)
}

/// Returns the bytes of an item with these names.
pub(super) fn bytes_of(key: &TreeKey, names: &[InodeName]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for InodeName { folder, index, name } in names {
        if key.kind == kind::LONG_NAMES_OF_INODE {
            bytes.extend_from_slice(&folder.to_le_bytes());
        }
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend_from_slice(name);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        let name = |folder, index, name: &[u8]| InodeName { folder, index, name: name.into() };
        let short = TreeKey::new(257, kind::NAMES_OF_INODE, 256);
        let names = vec![name(256, 7, b"one"), name(256, 9, b"another")];
        let bytes = bytes_of(&short, &names);
        assert_eq!(names_of(&short, &bytes), Ok(names));
        assert!(names_of(&short, &bytes[..bytes.len().saturating_sub(1)]).is_err());
        let long = long_key(257, 256, b"one");
        let names = vec![name(256, 7, b"one"), name(300, 9, b"another")];
        assert_eq!(names_of(&long, &bytes_of(&long, &names)), Ok(names));
        // As the kernel has it for this name in the root folder.
        assert_eq!(long.kind, 13);
    }
}

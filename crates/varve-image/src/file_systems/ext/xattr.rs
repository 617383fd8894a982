//! Extended attributes: after the fields of an inode, in a block of their own, and long values in
//! inodes of their own.

use super::inode::{ExtInode, MAP_BYTES};
use super::{ExtFileSystem, damaged};
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{array_at, u8_at, u16_at, u32_at};
use crate::file_systems::file_system::{FileSystemError, Xattr};
use varve_block::to_usize;

const MAGIC: u32 = 0xea02_0000;
const ENTRY_BYTES: usize = 16;
const BLOCK_HEAD_BYTES: usize = 32;
const CHECKSUM_AT: usize = 16;
/// The longest value that Linux accepts.
const VALUE_BYTES_MAX: u32 = 64 << 10;

const SYSTEM: u8 = 7;
const ENCRYPTION: u8 = 9;
/// The attribute that holds the rest of inline content when the inode has no room.
const INLINE_DATA: (u8, &[u8]) = (SYSTEM, b"data");

fn prefix(index: u8) -> Option<&'static [u8]> {
    Some(match index {
        0 => b"",
        1 => b"user.",
        2 => b"system.posix_acl_access",
        3 => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        SYSTEM => b"system.",
        8 => b"system.richacl",
        10 => b"gnu.",
        _ => return None,
    })
}

/// An attribute as stored.
struct ExtXattrEntry<'a> {
    index: u8,
    name: &'a [u8],
    /// The inode that holds the value; 0 if the value is in this list.
    inode: u32,
    value_at: usize,
    value_bytes: u32,
}

/// Iterates over the attributes of a list, up to its end or its first invalid entry.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = Result<ExtXattrEntry<'_>, &'static str>> {
    std::iter::from_fn(move || {
        if rest.len() < 4 || u32_at(rest, 0) == 0 {
            return None;
        }
        let name_end = ENTRY_BYTES.saturating_add(usize::from(u8_at(rest, 0)));
        let Some(name) = rest.get(ENTRY_BYTES..name_end) else {
            rest = &[];
            return Some(Err("a name is cut off"));
        };
        let entry = ExtXattrEntry {
            index: u8_at(rest, 1),
            name,
            inode: u32_at(rest, 4),
            value_at: usize::from(u16_at(rest, 2)),
            value_bytes: u32_at(rest, 8),
        };
        rest = rest.get(name_end.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(entry))
    })
}

impl ExtFileSystem {
    /// Returns all attributes that the kernel would show.
    pub(super) fn xattrs_of(&self, inode: &ExtInode) -> Result<Vec<Xattr>, FileSystemError> {
        let mut found = Vec::new();
        self.visit_xattrs(inode, |entry, value| {
            let is_hidden = entry.index == ENCRYPTION || (entry.index, entry.name) == INLINE_DATA;
            if let Some(prefix) = prefix(entry.index).filter(|_| !is_hidden) {
                let value = match entry.index {
                    2 | 3 => access_list(&value)
                        .ok_or_else(|| damaged(what(inode), "an access control list is malformed"))?,
                    _ => value,
                };
                found.push(Xattr { name: [prefix, entry.name].concat(), value });
            }
            Ok(())
        })?;
        found.sort();
        Ok(found)
    }

    /// Returns inline content: from the place of the block map, continued in an attribute. Zeros
    /// follow if the file is longer.
    pub(super) fn inline_data(&self, inode: &ExtInode) -> Result<Vec<u8>, FileSystemError> {
        let mut data = inode.map().to_vec();
        let size = to_usize(inode.size);
        if size > MAP_BYTES {
            self.visit_xattrs(inode, |entry, value| {
                if (entry.index, entry.name) == INLINE_DATA {
                    data.extend_from_slice(&value);
                }
                Ok(())
            })?;
        }
        data.truncate(size);
        Ok(data)
    }

    fn visit_xattrs(
        &self,
        inode: &ExtInode,
        mut visit: impl FnMut(&ExtXattrEntry<'_>, Vec<u8>) -> Result<(), FileSystemError>,
    ) -> Result<(), FileSystemError> {
        let mut visit_list = |list: &[u8], values: &[u8]| {
            for entry in entries(list) {
                let entry = entry.map_err(|problem| damaged(what(inode), problem))?;
                let value = self.value(inode, &entry, values)?;
                visit(&entry, value)?;
            }
            Ok::<(), FileSystemError>(())
        };
        let spare = inode.spare();
        if u32_at(spare, 0) == MAGIC {
            let list = spare.get(4..).unwrap_or_default();
            visit_list(list, list)?;
        }
        if inode.xattr_block() != 0 {
            let block = self.metadata(inode.xattr_block(), || what(inode))?;
            if u32_at(&block, 0) != MAGIC {
                return Err(damaged(what(inode), "their block is malformed"));
            }
            if self.has_checksums() {
                let (before, rest) = block.split_at_checked(CHECKSUM_AT).unwrap_or((&block, &[]));
                let seed = crc32c_from(self.superblock.checksum_seed, &inode.xattr_block().to_le_bytes());
                let code = crc32c_from(crc32c_from(seed, before), &[0; 4]);
                if crc32c_from(code, rest.get(4..).unwrap_or_default()) != u32_at(&block, CHECKSUM_AT) {
                    return Err(damaged(what(inode), "their block does not match its checksum"));
                }
            }
            visit_list(block.get(BLOCK_HEAD_BYTES..).unwrap_or_default(), &block)?;
        }
        Ok(())
    }

    fn value(
        &self,
        inode: &ExtInode,
        entry: &ExtXattrEntry<'_>,
        values: &[u8],
    ) -> Result<Vec<u8>, FileSystemError> {
        let length = to_usize(entry.value_bytes);
        if entry.value_bytes > VALUE_BYTES_MAX {
            return Err(damaged(what(inode), "a value exceeds the maximum length"));
        }
        if entry.inode == 0 {
            let value = values.get(entry.value_at..).and_then(|rest| rest.get(..length));
            return value.map(<[u8]>::to_vec).ok_or_else(|| damaged(what(inode), "a value is cut off"));
        }
        let holder = self.inode(entry.inode)?;
        let mut value = vec![0; length];
        if holder.has_inline_data() || self.read_inode(&holder, 0, &mut value)? < length {
            return Err(damaged(what(inode), "a value is cut off"));
        }
        Ok(value)
    }
}

fn what(inode: &ExtInode) -> String {
    format!("attributes of inode {}", inode.number)
}

/// Converts an access list from the format of ext to that of the kernel: the same entries, all of
/// one length.
fn access_list(stored: &[u8]) -> Option<Vec<u8>> {
    const USER: u16 = 2;
    const GROUP: u16 = 8;
    let (version, mut rest) = stored.split_first_chunk::<4>()?;
    if *version != 1_u32.to_le_bytes() {
        return None;
    }
    let mut list = 2_u32.to_le_bytes().to_vec();
    while let Some((entry, after)) = rest.split_first_chunk::<4>() {
        list.extend_from_slice(entry);
        let has_owner = [USER, GROUP].contains(&u16_at(entry, 0));
        if has_owner && after.len() < 4 {
            return None;
        }
        list.extend_from_slice(&if has_owner { array_at(after, 0) } else { [0xff; 4] });
        rest = after.get(if has_owner { 4 } else { 0 }..)?;
    }
    rest.is_empty().then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_become_those_of_the_kernel() {
        let stored =
            [&[1, 0, 0, 0][..], &[1, 0, 6, 0], &[2, 0, 4, 0, 0xe8, 3, 0, 0], &[0x20, 0, 4, 0]].concat();
        let list = access_list(&stored).unwrap();
        let none = [0xff; 4];
        let expected =
            [&[2, 0, 0, 0][..], &[1, 0, 6, 0], &none, &[2, 0, 4, 0, 0xe8, 3, 0, 0], &[0x20, 0, 4, 0], &none];
        assert_eq!(list, expected.concat());
        for cut in [3, 5, 9, 14] {
            assert_eq!(access_list(&stored[..cut]), None, "{cut}");
        }
    }
}

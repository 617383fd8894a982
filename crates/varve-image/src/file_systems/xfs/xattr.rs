//! Extended attributes: in the inode, or in blocks that are sorted by hashes of the names. Long
//! values have blocks of their own.
//!
//! | in the inode        | offset | in a block, from       | field                                 |
//! |---------------------|-------:|------------------------|---------------------------------------|
//! | bytes of all        |      0 | 0                      | the next block                        |
//! | entries             |      2 | 12, 56 (version 4, 5)  | entries                               |
//! | length of a name    |      4 | 32, 80                 | hash, place of a name, its namespace  |
//! | length of a value   |      5 | a place, +0            | length of a value, of a name; both    |
//! | namespace           |      6 | a place, +0            | first block of a value, its length, length of a name; the name |
//! | name, value         |      7 |                        |                                       |

use std::collections::BTreeSet;

use varve_block::to_usize;

use super::inode::{XfsFork, XfsForm, XfsInode, what};
use super::seal::XfsBlockKind;
use super::{XfsFiles, damaged};
use crate::bytes::fields::{array_at, be16_at, be32_at, u8_at};
use crate::file_systems::file_system::{FileSystemError, Xattr};

/// The longest value that Linux accepts.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The limit on all values of a file, which are kept in memory.
const VALUES_BYTES_MAX: usize = 64 << 20;
/// The header of a block of a long value, in version 5.
const VALUE_HEAD_BYTES: usize = 56;
const LEVELS_MAX: usize = 8;
const LEAVES_MAX: usize = 1 << 16;

mod flag {
    pub(super) const LOCAL: u8 = 1;
    pub(super) const TRUSTED: u8 = 2;
    pub(super) const SECURITY: u8 = 4;
    /// The name of the file itself and its folder: not an attribute for programs.
    pub(super) const PARENT: u8 = 8;
    pub(super) const UNFINISHED: u8 = 0x80;
}

const LEAF: XfsBlockKind = XfsBlockKind { name: "a block of its attributes", magics: [0xfbee, 0x3bee] };
const NODE: XfsBlockKind = XfsBlockKind { name: "a block of its attributes", magics: [0xfebe, 0x3ebe] };
const VALUE: XfsBlockKind = XfsBlockKind { name: "a value", magics: [0, 0x5841_524d] };

/// Converts an access control list to the form that Linux shows.
///
/// | stored, big-endian            | shown, little-endian                      |
/// |-------------------------------|-------------------------------------------|
/// | 4: number of entries          | 4: version 2                              |
/// | 4, 4, 2, 2: tag, owner, permissions, nothing | 2, 2, 4: tag, permissions, owner |
fn access_list(stored: &[u8]) -> Option<Vec<u8>> {
    const USER: u32 = 2;
    const GROUP: u32 = 8;
    let count = to_usize(be32_at(stored, 0));
    let (entries, _) = stored.get(4..)?.as_chunks::<12>();
    let mut list = 2_u32.to_le_bytes().to_vec();
    for entry in entries.get(..count)? {
        let tag = be32_at(entry, 0);
        let owner = if [USER, GROUP].contains(&tag) { be32_at(entry, 4) } else { u32::MAX };
        list.extend_from_slice(&u16::try_from(tag).ok()?.to_le_bytes());
        list.extend_from_slice(&be16_at(entry, 8).to_le_bytes());
        list.extend_from_slice(&owner.to_le_bytes());
    }
    Some(list)
}

/// The attributes of one file that were found.
struct XfsXattrs<'a> {
    inode: &'a XfsInode,
    found: Vec<Xattr>,
    value_bytes: usize,
}

impl XfsXattrs<'_> {
    fn add(&mut self, flags: u8, name: &[u8], value: Vec<u8>) -> Result<(), FileSystemError> {
        let wrong = |problem: &str| damaged(what(self.inode.number), problem);
        self.value_bytes = self.value_bytes.saturating_add(value.len()).saturating_add(name.len());
        if self.value_bytes > VALUES_BYTES_MAX {
            return Err(wrong("its attributes exceed the maximum length"));
        }
        let is_trusted = flags & flag::TRUSTED != 0;
        let list_name: Option<&[u8]> = match name {
            b"SGI_ACL_FILE" if is_trusted => Some(b"system.posix_acl_access"),
            b"SGI_ACL_DEFAULT" if is_trusted => Some(b"system.posix_acl_default"),
            _ => None,
        };
        let xattr = match list_name {
            Some(name) => {
                let value = access_list(&value);
                let value = value.ok_or_else(|| wrong("an access control list is malformed"))?;
                Xattr { name: name.to_vec(), value }
            }
            None => {
                let prefix: &[u8] = match flags {
                    _ if is_trusted => b"trusted.",
                    _ if flags & flag::SECURITY != 0 => b"security.",
                    _ => b"user.",
                };
                Xattr { name: [prefix, name].concat(), value }
            }
        };
        self.found.push(xattr);
        Ok(())
    }
}

fn is_hidden(flags: u8) -> bool {
    flags & (flag::PARENT | flag::UNFINISHED) != 0
}

impl XfsFiles {
    /// Returns all attributes that the kernel would show.
    pub(super) fn xattrs_of(&self, inode: &XfsInode) -> Result<Vec<Xattr>, FileSystemError> {
        let mut xattrs = XfsXattrs { inode, found: Vec::new(), value_bytes: 0 };
        match inode.form(XfsFork::Attributes)? {
            Some(XfsForm::Local) => add_local(inode, &mut xattrs)?,
            Some(XfsForm::Extents | XfsForm::Tree) if inode.extent_count(XfsFork::Attributes) > 0 => {
                self.add_from_blocks(inode, &mut xattrs)?;
            }
            _ => {}
        }
        xattrs.found.sort();
        Ok(xattrs.found)
    }

    fn attribute_block(&self, inode: &XfsInode, logical: u64) -> Result<Vec<u8>, FileSystemError> {
        let found = self.fork_blocks(inode, XfsFork::Attributes, logical, 1)?;
        let (bytes, at) =
            found.ok_or_else(|| damaged(what(inode.number), "a block of its attributes is a hole"))?;
        self.check_block(&bytes, at, &[LEAF, NODE], || what(inode.number))?;
        Ok(bytes)
    }

    fn add_from_blocks(&self, inode: &XfsInode, xattrs: &mut XfsXattrs<'_>) -> Result<(), FileSystemError> {
        let is_sealed = self.superblock.has_checksums;
        let mut logical = 0_u64;
        let mut block = self.attribute_block(inode, logical)?;
        for _ in 0..LEVELS_MAX {
            if LEAF.is_of(&block, is_sealed) {
                break;
            }
            // The first child has the lowest hashes; all leaves follow it.
            logical = be32_at(&block, if is_sealed { 68 } else { 20 }).into();
            block = self.attribute_block(inode, logical)?;
        }
        let mut seen = BTreeSet::from([logical]);
        loop {
            if !LEAF.is_of(&block, is_sealed) {
                return Err(damaged(what(inode.number), "a block of its attributes is of the wrong kind"));
            }
            self.add_from_leaf(inode, &block, xattrs)?;
            logical = be32_at(&block, 0).into();
            if logical == 0 {
                return Ok(());
            }
            if !seen.insert(logical) || seen.len() > LEAVES_MAX {
                return Err(damaged(what(inode.number), "the blocks of its attributes form a circle"));
            }
            block = self.attribute_block(inode, logical)?;
        }
    }

    fn add_from_leaf(
        &self,
        inode: &XfsInode,
        block: &[u8],
        xattrs: &mut XfsXattrs<'_>,
    ) -> Result<(), FileSystemError> {
        let cut_off = || damaged(what(inode.number), "an attribute is longer than its block");
        let (count_at, entries_at) = if self.superblock.has_checksums { (56, 80) } else { (12, 32) };
        let (entries, _) = block.get(entries_at..).unwrap_or_default().as_chunks::<8>();
        for entry in entries.get(..usize::from(be16_at(block, count_at))).ok_or_else(cut_off)? {
            let flags = u8_at(entry, 6);
            if is_hidden(flags) {
                continue;
            }
            let rest = block.get(usize::from(be16_at(entry, 4))..).ok_or_else(cut_off)?;
            if flags & flag::LOCAL != 0 {
                let name_end = usize::from(u8_at(rest, 2)).saturating_add(3);
                let end = name_end.saturating_add(be16_at(rest, 0).into());
                let name = rest.get(3..name_end).ok_or_else(cut_off)?;
                xattrs.add(flags, name, rest.get(name_end..end).ok_or_else(cut_off)?.to_vec())?;
            } else {
                let name_end = usize::from(u8_at(rest, 8)).saturating_add(9);
                let name = rest.get(9..name_end).ok_or_else(cut_off)?;
                let length = to_usize(be32_at(rest, 4));
                xattrs.add(flags, name, self.long_value(inode, be32_at(rest, 0), length)?)?;
            }
        }
        Ok(())
    }

    /// Reads a value that has blocks of its own. In version 5, each block has a header.
    fn long_value(&self, inode: &XfsInode, first: u32, length: usize) -> Result<Vec<u8>, FileSystemError> {
        if length > VALUE_BYTES_MAX {
            return Err(damaged(what(inode.number), "a value exceeds the maximum length"));
        }
        let mut value = Vec::new();
        let mut logical = u64::from(first);
        while value.len() < length {
            let found = self.fork_blocks(inode, XfsFork::Attributes, logical, 1)?;
            let (bytes, at) = found.ok_or_else(|| damaged(what(inode.number), "a value is a hole"))?;
            let mut part = bytes.as_slice();
            if self.superblock.has_checksums {
                self.check_block(&bytes, at, &[VALUE], || what(inode.number))?;
                part = bytes.get(VALUE_HEAD_BYTES..).unwrap_or_default();
            }
            value.extend_from_slice(part);
            logical = logical.saturating_add(1);
        }
        value.truncate(length);
        Ok(value)
    }
}

fn add_local(inode: &XfsInode, xattrs: &mut XfsXattrs<'_>) -> Result<(), FileSystemError> {
    let bytes = inode.fork(XfsFork::Attributes);
    let cut_off = || damaged(what(inode.number), "an attribute is longer than the inode");
    let mut rest = bytes.get(4..usize::from(be16_at(bytes, 0))).ok_or_else(cut_off)?;
    for _ in 0..u8_at(bytes, 2) {
        let [name_bytes, value_bytes, flags] = array_at::<3>(rest, 0);
        let name_end = usize::from(name_bytes).saturating_add(3);
        let end = name_end.saturating_add(value_bytes.into());
        let name = rest.get(3..name_end).ok_or_else(cut_off)?;
        let value = rest.get(name_end..end).ok_or_else(cut_off)?;
        if !is_hidden(flags) {
            xattrs.add(flags, name, value.to_vec())?;
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_become_those_of_the_kernel() {
        let entry = |tag: u32, owner: u32, permissions: u16| {
            [&tag.to_be_bytes()[..], &owner.to_be_bytes(), &permissions.to_be_bytes(), &[0, 0]].concat()
        };
        let stored = [&2_u32.to_be_bytes()[..], &entry(1, 7, 6), &entry(2, 1000, 4)].concat();
        let shown =
            [&[2, 0, 0, 0][..], &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff], &[2, 0, 4, 0, 0xe8, 3, 0, 0]].concat();
        assert_eq!(access_list(&stored), Some(shown));
        assert_eq!(access_list(&stored[..27]), None);
        assert_eq!(access_list(&[]), None);
    }
}

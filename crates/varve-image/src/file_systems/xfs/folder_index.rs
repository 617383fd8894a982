//! The index of a large folder: hashes of names, in the part of the folder behind its names.
//!
//! | part           | offset (version 4, 5) | field                                           |
//! |----------------|----------------------:|-------------------------------------------------|
//! | header         | 0                     | the next block                                  |
//! |                | 8                     | magic number                                    |
//! |                | 12, 56                | number of entries                               |
//! |                | 14, 58                | level, in a block that has others below         |
//! | entries        | 16, 64                | a hash, and a block below or the place of an entry in units of 8 bytes |

use super::XfsFiles;
use super::folder::{NAMES_BYTES, entry_at};
use super::inode::{XfsFork, XfsForm, XfsInode, what};
use super::seal::XfsBlockKind;
use crate::bytes::fields::{be16_at, be32_at};
use crate::file_systems::file_system::{FileSystemError, FolderChild};
use varve_block::to_usize;

const LEAF: XfsBlockKind = XfsBlockKind { name: "a block of its index", magics: [0xd2f1, 0x3df1] };
const LEAF_OF_MANY: XfsBlockKind = XfsBlockKind { name: "a block of its index", magics: [0xd2ff, 0x3dff] };
const NODE: XfsBlockKind = XfsBlockKind { name: "a block of its index", magics: [0xfebe, 0x3ebe] };
/// The kernel allows five levels.
const LEVELS_MAX: usize = 8;
/// Entries with one hash may fill some blocks.
const LEAVES_MAX: usize = 64;

/// Computes the hash of a name.
fn name_hash(name: &[u8]) -> u32 {
    let mut hash = 0_u32;
    let (fours, rest) = name.as_chunks::<4>();
    for four in fours {
        let [one, two, three, four] = four.map(u32::from);
        hash = one << 21 ^ two << 14 ^ three << 7 ^ four ^ hash.rotate_left(28);
    }
    let joined = rest.iter().fold(0_u32, |joined, byte| joined << 7 ^ u32::from(*byte));
    let bits = u32::try_from(rest.len()).unwrap_or(0).saturating_mul(7);
    if rest.is_empty() { hash } else { joined ^ hash.rotate_left(bits) }
}

/// A block of an index.
struct XfsIndexBlock {
    bytes: Vec<u8>,
    is_leaf: bool,
    head: usize,
    count: usize,
}

impl XfsIndexBlock {
    fn entry(&self, number: usize) -> (u32, u32) {
        let at = self.head.saturating_add(number.saturating_mul(8));
        (be32_at(&self.bytes, at), be32_at(&self.bytes, at.saturating_add(4)))
    }

    /// Returns the number of the first entry whose hash is not less.
    fn first_from(&self, hash: u32) -> usize {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from.midpoint(to);
            if self.entry(middle).0 < hash { from = middle.saturating_add(1) } else { to = middle }
        }
        from
    }

    fn next(&self) -> u32 {
        be32_at(&self.bytes, 0)
    }
}

impl XfsFiles {
    fn index_block(&self, folder: &XfsInode, block: u64) -> Result<Option<XfsIndexBlock>, FileSystemError> {
        let found = self.fork_blocks(folder, XfsFork::Content, block, self.folder_blocks())?;
        let Some((bytes, at)) = found else { return Ok(None) };
        self.check_block(&bytes, at, &[LEAF, LEAF_OF_MANY, NODE], || what(folder.number))?;
        let is_leaf = !NODE.is_of(&bytes, self.superblock.has_checksums);
        let (count_at, head) = if self.superblock.has_checksums { (56, 64) } else { (12, 16) };
        let room = bytes.len().saturating_sub(head).checked_div(8).unwrap_or(0);
        let count = usize::from(be16_at(&bytes, count_at)).min(room);
        Ok(Some(XfsIndexBlock { bytes, is_leaf, head, count }))
    }

    /// Looks up a name by the index of a folder. Returns `None` if the folder has no index, or if
    /// it does not give a certain answer.
    pub(super) fn child_by_index(
        &self,
        folder: &XfsInode,
        name: &[u8],
    ) -> Result<Option<Option<FolderChild>>, FileSystemError> {
        let block_bytes = u64::from(self.superblock.block_bytes).max(1);
        let mut block = NAMES_BYTES.checked_div(block_bytes).unwrap_or(0);
        // Names with these signs may be shown differently than they are stored.
        let is_plain = !name.iter().any(|byte| b"%/\0".contains(byte)) && !self.superblock.folds_case;
        if folder.form(XfsFork::Content)? == Some(XfsForm::Local) || !is_plain {
            return Ok(None);
        }
        let hash = name_hash(name);
        for _ in 0..LEVELS_MAX {
            let Some(index) = self.index_block(folder, block)? else { return Ok(None) };
            if index.is_leaf {
                return self.child_in_leaves(folder, name, hash, index);
            }
            let at = index.first_from(hash);
            if at >= index.count {
                return Ok(Some(None));
            }
            block = index.entry(at).1.into();
        }
        Ok(None)
    }

    fn child_in_leaves(
        &self,
        folder: &XfsInode,
        name: &[u8],
        hash: u32,
        mut leaf: XfsIndexBlock,
    ) -> Result<Option<Option<FolderChild>>, FileSystemError> {
        for _ in 0..LEAVES_MAX {
            for number in leaf.first_from(hash)..leaf.count {
                let (found, place) = leaf.entry(number);
                if found != hash {
                    return Ok(Some(None));
                }
                // A place of 0 is that of a name that was removed.
                if place != 0
                    && let Some(child) = self.child_at(folder, name, place)?
                {
                    return Ok(Some(Some(child)));
                }
            }
            if leaf.next() == 0 {
                return Ok(Some(None));
            }
            match self.index_block(folder, leaf.next().into())? {
                Some(next) if next.is_leaf => leaf = next,
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns the child whose entry lies at `place`, in units of 8 bytes, if it has this name.
    fn child_at(
        &self,
        folder: &XfsInode,
        name: &[u8],
        place: u32,
    ) -> Result<Option<FolderChild>, FileSystemError> {
        let at = u64::from(place).saturating_mul(8);
        let step = self.folder_blocks();
        let bytes = step.saturating_mul(self.superblock.block_bytes.into()).max(1);
        let logical = at.checked_div(bytes).unwrap_or(0).saturating_mul(step);
        let inside = to_usize(at.checked_rem(bytes).unwrap_or(0));
        let Some((block, end)) = self.names_block(folder, logical)? else { return Ok(None) };
        let entries = block.get(..end).unwrap_or_default();
        let Ok((Some(entry), _)) = entry_at(entries, inside, self.superblock.has_kinds) else {
            return Ok(None);
        };
        Ok(if entry.name == name { self.child_of(&entry, true) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_kernel() {
        // `xfs_db -c 'hash NAME'` prints these.
        for (name, hash) in [(&b"a"[..], 0x61), (b".", 0x2e), (b"..", 0x172e)] {
            assert_eq!(name_hash(name), hash, "{name:?}");
        }
    }
}

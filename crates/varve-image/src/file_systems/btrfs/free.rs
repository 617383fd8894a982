//! The free bytes of the device, if all evidence agrees.
//!
//! Btrfs is whole after every commit, so there is no sign of an unmount. A volume is not trusted
//! if it has logs. Every statement is compared with a second one:
//!
//! | statement                   | compared with                                             |
//! |-----------------------------|-----------------------------------------------------------|
//! | the first superblock        | its copies, of the same generation                        |
//! | the chunks                  | the block groups, and the extents of the device           |
//! | the extents of the device   | their count and their sum in the superblock               |
//! | the used extents            | the used bytes of each block group and of the superblock, |
//! |                             | and the tree of free space, if there is a valid one       |

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use varve_block::to_usize;

use super::key::{TreeKey, kind, object};
use super::listing_marks::ListingMarks;
use super::subvolumes::find_root;
use super::superblock::{PLACES, read_only_feature};
use super::tree_root::TreeRoot;
use super::trees::TreeItem;
use super::{Btrfs, Folder};
use crate::bytes::fields::u64_at;
use crate::bytes::ranges::Ranges;
use crate::file_systems::file_system::{FileSystem, FileSystemError};

/// The beginning of a device, which boot loaders may use.
const RESERVED_BYTES: u64 = 1 << 20;
/// Nothing else is stored in this many bytes from a superblock on.
const SUPERBLOCK_ROOM: u64 = 64 << 10;

/// A block group: the part of the address space that a chunk has.
struct BtrfsBlockGroup {
    length: u64,
    used: u64,
}

fn said(error: FileSystemError) -> String {
    error.to_string()
}

fn range_of(start: u64, length: u64) -> Result<Range<u64>, String> {
    let end = start.checked_add(length).ok_or("an extent has no end")?;
    Ok(start..end)
}

fn addresses_of(groups: &BTreeMap<u64, BtrfsBlockGroup>) -> Ranges {
    groups.iter().map(|(start, group)| *start..start.saturating_add(group.length)).collect()
}

impl Btrfs {
    /// Returns the free ranges of the volume, in bytes, if all evidence agrees.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(crate) fn proven_free(&self) -> Result<Vec<Range<u64>>, String> {
        self.check_live()?;
        let groups = self.block_groups()?;
        let free = self.free_addresses(&groups)?;
        if self.trees.superblock().read_only_features & read_only_feature::FREE_SPACE_TREE_VALID != 0 {
            // `mkfs.btrfs` leaves entries for chunks that it has removed.
            let everything: Ranges = std::iter::once(0..u64::MAX).collect();
            let outside = everything.without(&addresses_of(&groups));
            if self.stated_free()?.without(&outside) != free {
                return Err("its tree of free space contradicts its extents".into());
            }
        }
        let mut places = self.unallocated(&groups)?;
        let chunks = self.trees.bytes().chunks();
        for range in free.iter() {
            let mut at = range.start;
            while at < range.end {
                let copies = chunks.locate(at).map_err(|_| "free space lies on no device".to_owned())?;
                let length = copies.length.min(range.end.saturating_sub(at));
                for place in copies.places {
                    places.push(range_of(place, length)?);
                }
                at = at.saturating_add(length);
            }
        }
        places.sort_by_key(|place| place.start);
        let reserved = PLACES.map(|place| place..place.saturating_add(SUPERBLOCK_ROOM));
        let reserved: Ranges = std::iter::once(0..RESERVED_BYTES).chain(reserved).collect();
        let device = self.trees.superblock().device_bytes;
        let beyond: Ranges = std::iter::once(device..u64::MAX).collect();
        let places: Ranges = places.into_iter().collect();
        Ok(places.without(&reserved).without(&beyond).into_iter().collect())
    }

    /// Checks that the volume is whole and in use by nothing, and that it has a root folder.
    ///
    /// # Errors
    /// The failed check, in words.
    fn check_live(&self) -> Result<(), String> {
        let superblock = self.trees.superblock();
        if superblock.log_root.is_some() {
            return Err("the file system has changes in its logs".into());
        }
        if let Some(warning) = &self.warning {
            return Err(warning.clone());
        }
        if superblock.device_count != 1 || superblock.is_seed {
            return Err("it has several devices".into());
        }
        if superblock.read_only_features & !read_only_feature::KNOWN != 0 {
            return Err("it has a feature that is not supported".into());
        }
        let volume = self.trees.bytes().volume();
        if superblock.device_bytes > volume.size() {
            return Err("it is larger than its volume".into());
        }
        superblock.check_copies(volume)?;
        let id = self.root();
        let subvolume = self.subvolumes.get(&self.trees, object::TOP_SUBVOLUME).map_err(said)?;
        let root = self.find(subvolume.id, subvolume.root_folder).map_err(said)?;
        let folder = Folder { trees: &self.trees, subvolume: &subvolume, inode: root.number, id };
        folder.visit(&ListingMarks::default(), 0, &mut |_| ControlFlow::Continue(())).map_err(said)
    }

    fn tree(&self, id: u64) -> Result<TreeRoot, String> {
        let found = find_root(&self.trees, id).map_err(said)?;
        found.map(|(root, _)| root).ok_or_else(|| format!("it has no tree with the number {id}"))
    }

    /// Passes all items of a tree to `visit`.
    fn each(&self, id: u64, mut visit: impl FnMut(&TreeItem) -> Result<(), String>) -> Result<(), String> {
        for item in self.trees.items(&self.tree(id)?) {
            visit(&item.map_err(said)?)?;
        }
        Ok(())
    }

    /// Returns all block groups by their addresses: those of the chunks.
    fn block_groups(&self) -> Result<BTreeMap<u64, BtrfsBlockGroup>, String> {
        let features = self.trees.superblock().read_only_features;
        let has_own_tree = features & read_only_feature::BLOCK_GROUP_TREE != 0;
        let tree = if has_own_tree { object::BLOCK_GROUP_TREE } else { object::EXTENT_TREE };
        let mut groups = BTreeMap::new();
        self.each(tree, |item| {
            let TreeKey { object, kind, offset } = item.key();
            if kind == kind::BLOCK_GROUP {
                groups.insert(object, BtrfsBlockGroup { length: offset, used: u64_at(item.data(), 0) });
            }
            Ok(())
        })?;
        let chunks = self.trees.bytes().chunks().lengths();
        if !chunks.eq(groups.iter().map(|(start, group)| (*start, group.length))) {
            return Err("its block groups are not those of its chunks".into());
        }
        Ok(groups)
    }

    /// Returns the addresses that no extent has.
    fn free_addresses(&self, groups: &BTreeMap<u64, BtrfsBlockGroup>) -> Result<Ranges, String> {
        let superblock = self.trees.superblock();
        let mut used = Ranges::default();
        let mut used_of: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last_end = 0;
        self.each(object::EXTENT_TREE, |item| {
            let TreeKey { object, kind, offset } = item.key();
            let length = match kind {
                kind::EXTENT => offset,
                kind::TREE_EXTENT => superblock.node_bytes.into(),
                _ => return Ok(()),
            };
            let extent = range_of(object, length)?;
            let group = groups.range(..=object).next_back();
            let group = group.filter(|(start, group)| extent.end <= start.saturating_add(group.length));
            let (start, _) = group.ok_or("an extent lies in no block group")?;
            if extent.start < last_end {
                return Err("two of its extents overlap".into());
            }
            last_end = extent.end;
            let sum = used_of.entry(*start).or_default();
            *sum = sum.saturating_add(length);
            used.add(extent);
            Ok(())
        })?;
        if !groups.iter().all(|(start, group)| used_of.get(start).copied().unwrap_or(0) == group.used) {
            return Err("a block group counts other used bytes than its extents have".into());
        }
        if used_of.values().fold(0, |sum: u64, used| sum.saturating_add(*used)) != superblock.used_bytes {
            return Err("the superblock counts other used bytes than the extents have".into());
        }
        Ok(addresses_of(groups).without(&used))
    }

    /// Returns the free addresses according to the tree of free space.
    fn stated_free(&self) -> Result<Ranges, String> {
        let sector_bytes = u64::from(self.trees.superblock().sector_bytes);
        let mut free = Ranges::default();
        self.each(object::FREE_SPACE_TREE, |item| {
            let TreeKey { object, kind, offset } = item.key();
            if kind == kind::FREE_EXTENT {
                free.add(range_of(object, offset)?);
            }
            if kind == kind::FREE_BITMAP {
                let sectors = (object..range_of(object, offset)?.end).step_by(to_usize(sector_bytes));
                let bits = item.data().iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
                for (start, is_free) in sectors.zip(bits) {
                    if is_free {
                        free.add(range_of(start, sector_bytes)?);
                    }
                }
            }
            Ok(())
        })?;
        Ok(free)
    }

    /// Returns the places of the device that no chunk has.
    fn unallocated(&self, groups: &BTreeMap<u64, BtrfsBlockGroup>) -> Result<Vec<Range<u64>>, String> {
        let superblock = self.trees.superblock();
        let mut allocated = Ranges::default();
        let mut stated = BTreeMap::new();
        let mut last_end = 0;
        let mut sum = 0_u64;
        self.each(object::DEVICE_TREE, |item| {
            let TreeKey { object, kind, offset } = item.key();
            if kind != kind::DEVICE_EXTENT {
                return Ok(());
            }
            let length = u64_at(item.data(), 24);
            let extent = range_of(offset, length)?;
            if object != superblock.device || extent.start < last_end || extent.end > superblock.device_bytes
            {
                return Err("the extents of the device contradict each other".into());
            }
            last_end = extent.end;
            sum = sum.saturating_add(length);
            stated.insert(offset, u64_at(item.data(), 16));
            allocated.add(extent);
            Ok(())
        })?;
        let chunks = self.trees.bytes().chunks();
        let mut count = 0_usize;
        for group in groups.keys() {
            for place in chunks.first_places(*group) {
                count = count.saturating_add(1);
                if stated.get(&place) != Some(group) {
                    return Err("a chunk is not in the extents of the device".into());
                }
            }
        }
        if count != stated.len() || sum != superblock.device_used_bytes {
            return Err("the device has other extents than its chunks and its superblock state".into());
        }
        let all: Ranges = std::iter::once(0..superblock.device_bytes).collect();
        Ok(all.without(&allocated).into_iter().collect())
    }
}

//! The places of a file on the device, if nothing else has them.

use std::ops::Range;

use super::extent::{BtrfsExtent, ExtentSource};
use super::key::{TreeKey, kind, object};
use super::subvolumes::find_root;
use super::{Btrfs, FoundInode};
use crate::bytes::fields::u64_at;
use crate::file_systems::file_system::FileSystemError;

/// The places of a file with very many pieces are not collected.
const PLACES_MAX: usize = 1 << 20;

impl Btrfs {
    /// Returns the places of a file; `None` if its bytes are not stored as they are, are stored
    /// twice, or may belong to another file or snapshot, too.
    pub(super) fn places_of(&self, found: &FoundInode) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        let superblock = self.trees.superblock();
        if self.warning.is_some() || superblock.log_root.is_some() {
            return Ok(None);
        }
        let Some((extents, _)) = find_root(&self.trees, object::EXTENT_TREE)? else { return Ok(None) };
        let content = found.content();
        let end = content.size.checked_next_multiple_of(u64::from(superblock.sector_bytes));
        let Some(end) = end else { return Ok(None) };
        let (mut at, mut places) = (0, Vec::new());
        while at < end {
            let extent = BtrfsExtent::at(&self.trees, &content.file, at)?;
            let stop = extent.end.min(end);
            match extent.source {
                ExtentSource::Hole => {}
                ExtentSource::Inline(_) | ExtentSource::Compressed { .. } => return Ok(None),
                ExtentSource::Stored { logical } => {
                    let key = TreeKey::new(content.file.inode, kind::FILE_EXTENT, extent.start);
                    let Some(item) = self.trees.find(&content.file.root, &key)? else { return Ok(None) };
                    // The generation, and the address and length of the whole extent.
                    let [generation, first, length] = [0, 21, 29].map(|place| u64_at(item.data(), place));
                    let key = TreeKey::new(first, kind::EXTENT, length);
                    let owner = self.trees.find(&extents, &key)?;
                    let is_alone = owner.is_some_and(|owner| u64_at(owner.data(), 0) == 1)
                        // A snapshot has only what is older.
                        && generation > found.subvolume.last_snapshot;
                    if !is_alone || places.len() >= PLACES_MAX {
                        return Ok(None);
                    }
                    let mut logical = logical;
                    let mut left = stop.saturating_sub(extent.start);
                    while left > 0 {
                        let Ok(copies) = self.trees.bytes().chunks().locate(logical) else { return Ok(None) };
                        let [place] = copies.places.as_slice() else { return Ok(None) };
                        let length = copies.length.min(left);
                        places.push(*place..place.saturating_add(length));
                        logical = logical.saturating_add(length);
                        left = left.saturating_sub(length);
                    }
                }
            }
            at = stop;
        }
        Ok(Some(places))
    }
}

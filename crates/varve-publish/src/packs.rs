//! Packs: objects that hold several stored blocks, one after the other. The blocks that a profile
//! lists lie in packs in the order of first access, so that a reader needs few requests for them.
//!
//! Invariant: a pack has at most [`PACK_BYTES_MAX`] bytes, or one block.

use std::collections::{BTreeMap, BTreeSet};

use varve_edition::{DiskProfile, DiskShape, ObjectName, ObjectPart, PAGE_ENTRIES_MAX};
use varve_remote::TargetError;

use crate::uploads::Uploads;

/// The way in which blocks become objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PublicationLayout {
    /// Blocks that a profile lists are packed, and all others are objects by themselves.
    #[default]
    Packs,
    /// Each block, page and profile is an object by itself.
    Files,
}

/// The longest pack in bytes, unless it holds one block.
const PACK_BYTES_MAX: usize = 4 << 20;

/// The blocks of a profile are packed on so many pages of a map, those that are read first. While
/// a map is written, the entries of these pages are in memory, 80 KiB for each.
const PACKED_PAGES_MAX: usize = 1024;

/// The blocks of a disk that are packed, each with its place in the order of first access.
#[derive(Debug, Default)]
pub(crate) struct PackingOrder {
    places: BTreeMap<u64, usize>,
    pages: BTreeSet<u64>,
}

impl PackingOrder {
    pub(crate) fn new(profile: &DiskProfile, shape: &DiskShape) -> Self {
        let mut order = Self::default();
        let block_bytes = u64::from(shape.block_bytes.get());
        for read in profile.reads() {
            let end = read.range.end.min(shape.size).div_ceil(block_bytes);
            for block in read.range.start / block_bytes..end {
                let page = block / u64::from(PAGE_ENTRIES_MAX);
                if order.pages.len() < PACKED_PAGES_MAX || order.pages.contains(&page) {
                    order.pages.insert(page);
                    let next = order.places.len();
                    order.places.entry(block).or_insert(next);
                }
            }
        }
        order
    }

    /// Returns the place of a block in the order; `None` if it is not packed.
    pub(crate) fn place(&self, block: u64) -> Option<usize> {
        self.places.get(&block).copied()
    }

    pub(crate) fn block_count(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns true if a block of this page of level 0 is packed.
    pub(crate) fn has_page(&self, page: u64) -> bool {
        self.pages.contains(&page)
    }
}

/// Fills packs with stored blocks, and uploads them. `K` identifies a block for the caller.
pub(crate) struct PackWriter<'a, K> {
    uploads: &'a Uploads<'a>,
    bytes: Vec<u8>,
    /// The blocks of the pack that is being filled.
    waiting: Vec<(K, WaitingPart)>,
    /// The blocks of the packs that are uploaded.
    placed: Vec<(K, ObjectPart)>,
}

/// A stored block in a pack that has no name yet.
#[derive(Debug, Clone, Copy)]
struct WaitingPart {
    name: ObjectName,
    offset: u32,
    bytes: u32,
}

impl<'a, K> PackWriter<'a, K> {
    pub(crate) fn new(uploads: &'a Uploads<'a>) -> Self {
        Self { uploads, bytes: Vec::new(), waiting: Vec::new(), placed: Vec::new() }
    }

    /// Adds a stored block. A block that the pack has already is not added a second time.
    pub(crate) fn add(&mut self, key: K, stored: &[u8]) -> Result<(), TargetError> {
        if !self.bytes.is_empty() && self.bytes.len() + stored.len() > PACK_BYTES_MAX {
            self.upload()?;
        }
        let name = ObjectName::of(stored);
        let same = self.waiting.iter().map(|(_, part)| *part).find(|part| part.name == name);
        let part = same.unwrap_or_else(|| {
            let offset = u32::try_from(self.bytes.len()).expect("a pack has at most 4 MiB before it");
            self.bytes.extend_from_slice(stored);
            WaitingPart { name, offset, bytes: u32::try_from(stored.len()).expect("16 MiB at most") }
        });
        self.waiting.push((key, part));
        Ok(())
    }

    /// Uploads the last pack, and returns the places of all blocks.
    pub(crate) fn finish(mut self) -> Result<Vec<(K, ObjectPart)>, TargetError> {
        self.upload()?;
        Ok(self.placed)
    }

    fn upload(&mut self) -> Result<(), TargetError> {
        let pack = std::mem::take(&mut self.bytes);
        if pack.is_empty() {
            return Ok(());
        }
        let object = self.uploads.put_object(pack)?;
        self.placed.extend(self.waiting.drain(..).map(|(key, WaitingPart { name, offset, bytes })| {
            (key, ObjectPart { object, offset, bytes, name })
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use varve_edition::{ProfileRead, PublishedBlockBytes};

    use super::*;

    const BLOCK: u64 = 128 << 10;

    fn order(size: u64, reads: &[std::ops::Range<u64>]) -> PackingOrder {
        let reads =
            (0..).zip(reads).map(|(milliseconds, range)| ProfileRead { milliseconds, range: range.clone() });
        let profile = DiskProfile::from_reads(size, reads);
        PackingOrder::new(&profile, &DiskShape { size, block_bytes: PublishedBlockBytes::default() })
    }

    #[test]
    fn blocks_are_in_the_order_of_first_access() {
        let order = order(10 * BLOCK, &[5 * BLOCK..6 * BLOCK, BLOCK - 4096..BLOCK + 4096, 0..4096]);
        let places: Vec<_> = (0..10).map(|block| order.place(block)).collect();
        assert_eq!(places[..6], [Some(1), Some(2), None, None, None, Some(0)]);
        assert!(order.has_page(0) && !order.has_page(1));
    }

    #[test]
    fn a_profile_of_a_larger_disk_is_cut_off() {
        let profile = DiskProfile::from_reads(1 << 40, [ProfileRead { milliseconds: 0, range: 0..1 << 40 }]);
        let shape = DiskShape { size: 3 * BLOCK + 5, block_bytes: PublishedBlockBytes::default() };
        let order = PackingOrder::new(&profile, &shape);
        assert_eq!((order.place(3), order.place(4)), (Some(3), None));
    }

    #[test]
    fn the_pages_in_memory_are_bounded() {
        let page = BLOCK * u64::from(PAGE_ENTRIES_MAX);
        let reads: Vec<_> = (0..1500).map(|number| number * page..number * page + 4096).collect();
        let order = order(1 << 40, &reads);
        assert!(order.has_page(1023) && !order.has_page(1024));
        assert_eq!(order.place(1024 * 1024), None);
    }
}

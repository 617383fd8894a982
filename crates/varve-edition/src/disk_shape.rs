//! The division of a published disk into blocks and pages.

use std::fmt;
use std::ops::Range;

use crate::PAGE_ENTRIES_MAX;

/// The size of a disk's blocks: a power of two from 64 KiB to 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedBlockBytes(u32);

impl PublishedBlockBytes {
    /// Makes a block size; `None` if it is not a power of two from 64 KiB to 1 MiB.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok()?;
        (bytes.is_power_of_two() && (64 << 10..=1 << 20).contains(&bytes)).then_some(Self(bytes))
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for PublishedBlockBytes {
    fn default() -> Self {
        Self(128 << 10)
    }
}

impl fmt::Display for PublishedBlockBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The size of a disk and of its blocks. Everything about its map follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShape {
    pub size: u64,
    pub block_bytes: PublishedBlockBytes,
}

impl DiskShape {
    /// Returns the number of blocks. The last one may be shorter than the others.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.size.div_ceil(u64::from(self.block_bytes.0))
    }

    /// Returns the number of pages of level 0: the number of entries of the root.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.block_count().div_ceil(u64::from(PAGE_ENTRIES_MAX))
    }

    /// Returns the number of entries of a page of level 0; 0 beyond the end.
    #[must_use]
    pub fn page_entry_count(&self, page: u64) -> u32 {
        let first = page.saturating_mul(u64::from(PAGE_ENTRIES_MAX));
        let left = self.block_count().saturating_sub(first).min(u64::from(PAGE_ENTRIES_MAX));
        u32::try_from(left).unwrap_or(PAGE_ENTRIES_MAX)
    }

    /// Returns the bytes of the disk that a block holds; an empty range beyond the end.
    #[must_use]
    pub fn block_range(&self, block: u64) -> Range<u64> {
        let bytes = u64::from(self.block_bytes.0);
        let start = block.saturating_mul(bytes).min(self.size);
        start..start.saturating_add(bytes).min(self.size)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn block_sizes_are_powers_of_two() {
        for bytes in [65_536, 131_072, 262_144, 524_288, 1_048_576] {
            assert_eq!(u64::from(PublishedBlockBytes::new(bytes).unwrap().get()), bytes);
        }
        for bytes in [0, 1, 32_768, 65_537, 98_304, 2_097_152, 1 << 32, u64::MAX] {
            assert_eq!(PublishedBlockBytes::new(bytes), None, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn pages_and_blocks_cover_the_disk(size in prop_oneof![0_u64..1 << 34, any::<u64>()], shift in 16_u32..=20) {
            let block_bytes = PublishedBlockBytes::new(1 << shift).unwrap();
            let shape = DiskShape { size, block_bytes };
            let last_page = shape.page_count().saturating_sub(1);
            let entries = u128::from(last_page) * 1024 + u128::from(shape.page_entry_count(last_page));
            prop_assert_eq!(entries, u128::from(shape.block_count()));
            prop_assert_eq!(shape.page_entry_count(shape.page_count()), 0);
            if let Some(last) = shape.block_count().checked_sub(1) {
                prop_assert_eq!(shape.block_range(last).end, size);
                prop_assert!(!shape.block_range(last).is_empty());
            }
            prop_assert!(shape.block_range(shape.block_count()).is_empty());
        }
    }
}

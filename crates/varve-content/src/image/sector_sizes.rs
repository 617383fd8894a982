//! The sizes of a disk's sectors. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The sizes that disks have: from 512 bytes to 64 KiB.
const SECTOR_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;

/// The sizes of the sectors of a disk, in bytes. Each is a power of two, from 512 to 65,536.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorSizes {
    /// The unit of the disk's addresses: partition tables count in it.
    logical: u32,
    /// The unit that the disk writes at once, which is not smaller.
    physical: u32,
}

impl SectorSizes {
    /// Returns `None` if a disk cannot have sectors of `logical` bytes. A `physical` size that is
    /// impossible is taken for the logical one.
    #[must_use]
    pub fn new(logical: u64, physical: u64) -> Option<Self> {
        let possible = |bytes: u64| {
            let bytes = u32::try_from(bytes).ok()?;
            (bytes.is_power_of_two() && SECTOR_BYTES.contains(&bytes)).then_some(bytes)
        };
        let logical = possible(logical)?;
        Some(Self { logical, physical: possible(physical).map_or(logical, |bytes| bytes.max(logical)) })
    }

    /// Returns the unit of the disk's addresses.
    #[must_use]
    pub fn logical(self) -> u32 {
        self.logical
    }

    /// Returns the unit that the disk writes at once.
    #[must_use]
    pub fn physical(self) -> u32 {
        self.physical
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_disk_has_are_not_believed() {
        let sizes =
            |logical, physical| SectorSizes::new(logical, physical).map(|of| (of.logical, of.physical));
        assert_eq!(sizes(512, 4096), Some((512, 4096)));
        assert_eq!(sizes(4096, 512), Some((4096, 4096)));
        assert_eq!(sizes(2048, 0), Some((2048, 2048)));
        for logical in [0, 1, 256, 513, 520, 131_072, u64::MAX] {
            assert_eq!(sizes(logical, 4096), None, "{logical}");
        }
    }
}

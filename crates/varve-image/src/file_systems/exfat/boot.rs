//! The boot region: twelve sectors that describe the layout of the volume, followed by a copy of
//! them.
//!
//! | offset | bytes | meaning                                                        |
//! |-------:|------:|----------------------------------------------------------------|
//! |      3 |     8 | `EXFAT   `                                                     |
//! |     72 |     8 | sectors of the volume                                          |
//! |     80 |     4 | where the table begins, in sectors                             |
//! |     84 |     4 | sectors of the table                                           |
//! |     88 |     4 | where the clusters begin, in sectors                           |
//! |     92 |     4 | how many clusters                                              |
//! |     96 |     4 | the root folder's first cluster                                |
//! |    106 |     2 | bit 0: the second table is the newer one; bit 1: in use; not part of the checksum |
//! |    108 |     1 | bytes of a sector, as a power of two                           |
//! |    109 |     1 | sectors of a cluster, as a power of two                        |
//! |    110 |     1 | how many tables                                                |
//! |    112 |     1 | how full it is; not part of the checksum                       |
//!
//! The twelfth sector repeats the checksum of the eleven before it.

use crate::bytes::fields::{has_at, u8_at, u16_at, u32_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::clusters::damaged;
use crate::file_systems::file_system::FileSystemError;

const SECTORS: usize = 12;
const CHECKED_SECTORS: usize = 11;
const SECTOR_SHIFTS: std::ops::RangeInclusive<u32> = 9..=12;
/// Clusters have 32 MiB at most.
const CLUSTER_SHIFT_MAX: u32 = 25;
/// Higher cluster numbers are reserved.
const CLUSTER_COUNT_MAX: u32 = 0xffff_fff5;

#[derive(Debug)]
pub(super) struct ExfatBootSector {
    pub(super) table_start: u64,
    pub(super) heap_start: u64,
    pub(super) cluster_bytes: u64,
    pub(super) cluster_count: u32,
    /// The root folder's first cluster.
    pub(super) root: u32,
    /// True if it was mounted when it was last written.
    pub(super) is_dirty: bool,
}

impl ExfatBootSector {
    /// Reads the boot region, or its copy if the first is damaged.
    pub(super) fn read(volume: &dyn ReadAt) -> Result<Self, FileSystemError> {
        let region = |start: u64, shift: u32| {
            let mut bytes = vec![0; SECTORS << shift];
            volume.read_at(start, &mut bytes).ok()?;
            Self::decode(&bytes, shift)
        };
        let mut places =
            SECTOR_SHIFTS.map(|shift| (0, shift)).chain(SECTOR_SHIFTS.map(|shift| (12 << shift, shift)));
        places
            .find_map(|(start, shift)| region(start, shift))
            .ok_or_else(|| damaged("boot region", "neither it nor its copy is valid".into()))
    }

    fn decode(region: &[u8], shift: u32) -> Option<Self> {
        let sector_bytes = 1_usize.checked_shl(shift)?;
        let cluster_shift = u32::from(u8_at(region, 109)).checked_add(shift)?;
        let is_one = has_at(region, 3, b"EXFAT   ")
            && u32::from(u8_at(region, 108)) == shift
            && cluster_shift <= CLUSTER_SHIFT_MAX
            && has_at(region, 510, &[0x55, 0xaa]);
        let (checked, recorded) = region.split_at_checked(CHECKED_SECTORS.checked_mul(sector_bytes)?)?;
        if !is_one || u32_at(recorded, 0) != checksum(checked) {
            return None;
        }
        let bytes = |sectors: u64| sectors.checked_shl(shift).filter(|bytes| bytes >> shift == sectors);
        let (table_sectors, table_count) = (u64::from(u32_at(region, 84)), u8_at(region, 110));
        let is_second = u16_at(region, 106) & 1 == 1 && table_count == 2;
        let table_sector =
            u64::from(u32_at(region, 80)).checked_add(if is_second { table_sectors } else { 0 })?;
        let cluster_count = u32_at(region, 92);
        let heap_start = bytes(u64::from(u32_at(region, 88)))?;
        let heap_bytes = u64::from(cluster_count).checked_shl(cluster_shift)?;
        let table_bytes = u64::from(cluster_count).checked_add(2)?.checked_mul(4)?;
        let fits = (1..=2).contains(&table_count)
            && cluster_count <= CLUSTER_COUNT_MAX
            && table_bytes <= bytes(table_sectors)?
            && heap_start.checked_add(heap_bytes)? <= bytes(u64_at(region, 72))?;
        fits.then_some(Self {
            table_start: bytes(table_sector)?,
            heap_start,
            cluster_bytes: 1_u64.checked_shl(cluster_shift)?,
            cluster_count,
            root: u32_at(region, 96),
            is_dirty: u16_at(region, 106) & 2 != 0,
        })
    }
}

fn checksum(sectors: &[u8]) -> u32 {
    let counted = sectors.iter().enumerate().filter(|(at, _)| !matches!(at, 106 | 107 | 112));
    counted.fold(0_u32, |sum, (_, byte)| sum.rotate_right(1).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "numbers that the test itself has made")]
mod tests {
    use super::*;

    /// A boot region of a volume of 4096 sectors with clusters of 4 KiB.
    fn region() -> Vec<u8> {
        let mut region = vec![0; SECTORS * 512];
        region[3..11].copy_from_slice(b"EXFAT   ");
        region[72..80].copy_from_slice(&4096_u64.to_le_bytes());
        for (at, value) in [(80, 24_u32), (84, 8), (88, 32), (92, 500), (96, 4)] {
            region[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        (region[108], region[109], region[110]) = (9, 3, 1);
        region[510..512].copy_from_slice(&[0x55, 0xaa]);
        seal(region)
    }

    fn seal(mut region: Vec<u8>) -> Vec<u8> {
        let sum = checksum(&region[..CHECKED_SECTORS * 512]).to_le_bytes();
        region[CHECKED_SECTORS * 512..].as_chunks_mut::<4>().0.fill(sum);
        region
    }

    #[test]
    fn a_region_is_believed_if_its_checksum_is_right_and_its_numbers_fit() {
        let boot = ExfatBootSector::decode(&region(), 9).unwrap();
        assert_eq!((boot.table_start, boot.heap_start), (24 * 512, 32 * 512));
        assert_eq!((boot.cluster_bytes, boot.cluster_count, boot.root), (4096, 500, 4));
        for at in [72, 80, 88, 92, 96, 600] {
            let mut changed = region();
            changed[at] ^= 1;
            assert!(ExfatBootSector::decode(&changed, 9).is_none(), "{at}: not what its checksum says");
        }
        for (at, value) in [(92, 0xffff_ffff_u32), (92, 600), (84, 1), (88, u32::MAX)] {
            let mut changed = region();
            changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(ExfatBootSector::decode(&seal(changed), 9).is_none(), "{at}: {value} is impossible");
        }
        let mut changed = region();
        (changed[106], changed[112]) = (2, 77);
        assert!(ExfatBootSector::decode(&changed, 9).unwrap().is_dirty, "these may change at any time");
    }

    #[test]
    fn the_copy_is_as_good() {
        let mut volume = vec![0; 4096 * 512];
        volume[12 * 512..24 * 512].copy_from_slice(&region());
        assert_eq!(ExfatBootSector::read(&volume).unwrap().root, 4);
        volume[12 * 512 + 96] ^= 1;
        assert!(ExfatBootSector::read(&volume).is_err());
        assert!(ExfatBootSector::read(&Vec::new()).is_err());
    }
}

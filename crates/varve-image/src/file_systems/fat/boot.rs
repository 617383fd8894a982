//! The boot sector describes the layout of the volume.
//!
//! | offset | bytes | meaning                                                |
//! |-------:|------:|--------------------------------------------------------|
//! |     11 |     2 | bytes of a sector                                      |
//! |     13 |     1 | sectors of a cluster                                   |
//! |     14 |     2 | sectors before the first table                         |
//! |     16 |     1 | how many tables                                        |
//! |     17 |     2 | entries of the root folder; 0 with 32 bits             |
//! |     19 |     2 | sectors of the volume, or 0                            |
//! |     22 |     2 | sectors of a table; 0 with 32 bits                     |
//! |     32 |     4 | sectors of the volume, if the other number is 0        |
//! |     36 |     4 | sectors of a table, with 32 bits                       |
//! |     40 |     2 | with 32 bits: bit 7: only one table is kept up to date; the lower four: its number |
//! |     44 |     4 | the root folder's first cluster, with 32 bits          |

use std::ops::Range;

use super::entry::ENTRY_BYTES;
use crate::bytes::fields::{u8_at, u16_at, u32_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::clusters::{TableWidth, damaged};
use crate::file_systems::file_system::FileSystemError;

/// With fewer clusters, the table has 12 bits.
const TWELVE_BITS_BELOW: u64 = 4085;
/// With fewer clusters, the table has 16 bits.
const SIXTEEN_BITS_BELOW: u64 = 65525;
/// Higher cluster numbers are reserved.
const CLUSTER_COUNT_MAX: u64 = 0x0fff_fff5;

pub(super) struct FatBootSector {
    pub(super) width: TableWidth,
    pub(super) table_start: u64,
    pub(super) heap_start: u64,
    pub(super) cluster_bytes: u64,
    pub(super) cluster_count: u32,
    pub(super) root: FatRootFolder,
}

/// The position of the root folder.
pub(super) enum FatRootFolder {
    /// An area of its own.
    Range(Range<u64>),
    /// Clusters, as for other folders.
    Cluster(u32),
}

impl FatBootSector {
    pub(super) fn read(volume: &dyn ReadAt) -> Result<Self, FileSystemError> {
        let mut sector = [0; 512];
        let read = volume.read_at(0, &mut sector);
        read.map_err(|source| FileSystemError::Read { what: "boot sector".into(), source })?;
        Self::decode(&sector).ok_or_else(|| damaged("boot sector", "its fields are inconsistent".into()))
    }

    fn decode(sector: &[u8; 512]) -> Option<Self> {
        let sector_bytes = u64::from(u16_at(sector, 11));
        let cluster_sectors = u64::from(u8_at(sector, 13));
        if !(512..=4096).contains(&sector_bytes)
            || !sector_bytes.is_power_of_two()
            || !cluster_sectors.is_power_of_two()
        {
            return None;
        }
        let small_table = u64::from(u16_at(sector, 22));
        let table_sectors = if small_table == 0 { u64::from(u32_at(sector, 36)) } else { small_table };
        let small_total = u64::from(u16_at(sector, 19));
        let total = if small_total == 0 { u64::from(u32_at(sector, 32)) } else { small_total };
        let table_count = u64::from(u8_at(sector, 16));
        let reserved = u64::from(u16_at(sector, 14));
        let root_bytes = u64::from(u16_at(sector, 17)).checked_mul(ENTRY_BYTES)?;
        let root_sector = table_sectors.checked_mul(table_count)?.checked_add(reserved)?;
        let heap_sector = root_bytes.div_ceil(sector_bytes).checked_add(root_sector)?;
        let cluster_count = total.checked_sub(heap_sector)?.checked_div(cluster_sectors)?;
        let has_large_table = small_table == 0;
        let width = match cluster_count {
            _ if has_large_table => TableWidth::TwentyEight,
            0..TWELVE_BITS_BELOW => TableWidth::Twelve,
            TWELVE_BITS_BELOW..SIXTEEN_BITS_BELOW => TableWidth::Sixteen,
            _ => return None,
        };
        // One of several tables may be the only one that is kept up to date.
        let flags = u64::from(u16_at(sector, 40));
        let active = if has_large_table && flags & 0x80 != 0 { flags & 0xf } else { 0 };
        if active >= table_count {
            return None;
        }
        let table_sector = table_sectors.checked_mul(active)?.checked_add(reserved)?;
        let root_start = root_sector.checked_mul(sector_bytes)?;
        let root = if has_large_table {
            FatRootFolder::Cluster(u32_at(sector, 44))
        } else {
            FatRootFolder::Range(root_start..root_start.checked_add(root_bytes)?)
        };
        Some(Self {
            width,
            table_start: table_sector.checked_mul(sector_bytes)?,
            heap_start: heap_sector.checked_mul(sector_bytes)?,
            cluster_bytes: cluster_sectors.checked_mul(sector_bytes)?,
            cluster_count: u32::try_from(cluster_count.min(CLUSTER_COUNT_MAX)).ok()?,
            root,
        })
    }
}

//! The boot sector of NTFS.
//!
//! | offset | bytes | meaning                                                                      |
//! |-------:|------:|------------------------------------------------------------------------------|
//! |     11 |     2 | bytes of a sector                                                            |
//! |     13 |     1 | sectors of a cluster; above 128: the power of two, negative                  |
//! |     48 |     8 | the first cluster of the file table                                          |
//! |     64 |     1 | clusters of a record; if negative, the power of two of its bytes, negative   |

use super::damaged;
use crate::bytes::fields::{u8_at, u16_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

const BOOT_BYTES: usize = 512;
/// Records and clusters of other sizes are made by no program.
const RECORD_BYTES: std::ops::RangeInclusive<u64> = 512..=16 << 10;
const CLUSTER_BYTES: std::ops::RangeInclusive<u64> = 256..=2 << 20;

/// The sizes that all other structures depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct NtfsBoot {
    pub(super) cluster_bytes: u64,
    pub(super) record_bytes: u64,
    /// The position of the first record of the file table on the volume.
    pub(super) table_at: u64,
}

impl NtfsBoot {
    pub(super) fn read(volume: &dyn ReadAt) -> Result<Self, FileSystemError> {
        let mut boot = [0; BOOT_BYTES];
        let read = volume.read_at(0, &mut boot);
        read.map_err(|source| FileSystemError::Read { what: "NTFS boot sector".into(), source })?;
        let sectors = match u8_at(&boot, 13) {
            count @ 0..=128 => u64::from(count),
            power => 1_u64.checked_shl(u32::from(power.wrapping_neg())).unwrap_or(0),
        };
        let cluster_bytes = sectors.saturating_mul(u16_at(&boot, 11).into());
        let record_bytes = sized(u8_at(&boot, 64), cluster_bytes);
        let is_sized = CLUSTER_BYTES.contains(&cluster_bytes) && RECORD_BYTES.contains(&record_bytes);
        if !is_sized || !cluster_bytes.is_power_of_two() || !record_bytes.is_power_of_two() {
            return Err(damaged("NTFS boot sector", "it has impossible sizes"));
        }
        let table_at = u64_at(&boot, 48).checked_mul(cluster_bytes).filter(|at| *at < volume.size());
        let table_at =
            table_at.ok_or_else(|| damaged("NTFS boot sector", "its file table is beyond its end"))?;
        Ok(Self { cluster_bytes, record_bytes, table_at })
    }
}

/// Returns the bytes of a structure whose size is in clusters, or a negative power of two in bytes.
fn sized(size: u8, cluster_bytes: u64) -> u64 {
    match size {
        count @ 0..=127 => cluster_bytes.saturating_mul(count.into()),
        power => 1_u64.checked_shl(u32::from(power.wrapping_neg())).unwrap_or(0),
    }
}

//! Volume descriptors: one in each sector, from sector 16 on.
//!
//! | offset | bytes | meaning                                      |
//! |-------:|------:|----------------------------------------------|
//! |      0 |     1 | 1 primary, 2 supplementary, 255 the last one |
//! |      1 |     5 | `CD001`                                      |
//! |     88 |     3 | of a supplementary one: `%/@`, `%/C` or `%/E` for Joliet |
//! |    128 |     2 | bytes of a block                             |
//! |    156 |    34 | the root folder's record                     |

use crate::bytes::fields::{has_at, u8_at, u16_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;

const FIRST_SECTOR: u64 = 16;
/// More descriptors than any tool writes.
const COUNT_MAX: u64 = 64;
const SECTOR_BYTES: u64 = 2048;
const ROOT_AT: u64 = 156;

pub(super) struct VolumeDescriptor {
    pub(super) block_bytes: u64,
    /// The position of the root's record.
    pub(super) root: u64,
}

impl VolumeDescriptor {
    pub(super) fn primary(volume: &dyn ReadAt) -> Result<Self, FileSystemError> {
        let found = Self::find(volume, &|sector| u8_at(sector, 0) == 1)?;
        found.ok_or_else(|| super::damaged("volume", "it has no primary descriptor".into()))
    }

    pub(super) fn joliet(volume: &dyn ReadAt) -> Result<Option<Self>, FileSystemError> {
        let is_joliet = |sector: &[u8]| {
            let escapes: [&[u8]; 3] = [b"%/@", b"%/C", b"%/E"];
            u8_at(sector, 0) == 2 && escapes.iter().any(|escape| has_at(sector, 88, escape))
        };
        Self::find(volume, &is_joliet)
    }

    fn find(volume: &dyn ReadAt, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Option<Self>, FileSystemError> {
        for number in 0..COUNT_MAX {
            let position = FIRST_SECTOR.saturating_add(number).saturating_mul(SECTOR_BYTES);
            let mut sector = [0; 2048];
            let read = volume.read_at(position, &mut sector);
            read.map_err(|source| FileSystemError::Read { what: "volume descriptor".into(), source })?;
            if !has_at(&sector, 1, b"CD001") || u8_at(&sector, 0) == 255 {
                break;
            }
            let block_bytes = u64::from(u16_at(&sector, 128));
            if wanted(&sector) && [512, 1024, 2048].contains(&block_bytes) {
                return Ok(Some(Self { block_bytes, root: position.saturating_add(ROOT_AT) }));
            }
        }
        Ok(None)
    }
}

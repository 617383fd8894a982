//! Decides if an NTFS file system is live, or the remnant of one that was overwritten.

use std::ops::Range;

use varve_block::to_usize;

use super::NtfsFiles;
use crate::bytes::fields::{u8_at, u16_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::{FileId, FileSystem, FileSystemError};

const TABLE: FileId = FileId(0);
const TABLE_COPY: FileId = FileId(1);
const BITMAP: FileId = FileId(6);
const BOOT_BYTES: usize = 512;
/// The first records of the table, of which there is a copy.
const COPY_BYTES: usize = 4096;
/// The bytes of the bitmap that are read at a time.
const BITMAP_BYTES: usize = 64 << 10;

fn said(error: FileSystemError) -> String {
    error.to_string()
}

impl NtfsFiles {
    /// Checks that the copies of the boot sector and of the first records agree with the originals,
    /// and that the volume has all sectors.
    ///
    /// # Errors
    /// The failed check, in words.
    pub(crate) fn check_live(&self) -> Result<(), String> {
        let mut boot = [0; BOOT_BYTES];
        let unreadable = |error| format!("a boot sector cannot be read: {error}");
        self.volume.read_at(0, &mut boot).map_err(unreadable)?;
        // The last sector is not counted, and has the copy.
        let copy_at = u64_at(&boot, 40).checked_mul(u64::from(u16_at(&boot, 11)));
        let copy_at = copy_at.filter(|at| at.saturating_add(BOOT_BYTES as u64) <= self.volume.size());
        let copy_at = copy_at.ok_or("it is larger than its volume")?;
        let mut copy = [0; BOOT_BYTES];
        self.volume.read_at(copy_at, &mut copy).map_err(unreadable)?;
        if copy != boot {
            return Err("the copy of its boot sector differs".into());
        }
        let (mut records, mut copy) = ([0; COPY_BYTES], [0; COPY_BYTES]);
        let length = self.read_at(TABLE_COPY, 0, &mut copy).map_err(said)?;
        self.read_at(TABLE, 0, &mut records).map_err(said)?;
        if length == 0 || records.get(..length) != copy.get(..length) {
            return Err("the copy of its first records differs".into());
        }
        Ok(())
    }

    /// Checks that the bitmap marks all these bytes as in use.
    ///
    /// # Errors
    /// The failed check, in words.
    pub(crate) fn check_in_use(&self, places: &[Range<u64>]) -> Result<(), String> {
        let mut boot = [0; BOOT_BYTES];
        self.volume
            .read_at(0, &mut boot)
            .map_err(|error| format!("the boot sector cannot be read: {error}"))?;
        let cluster_bytes = u64::from(u16_at(&boot, 11)).saturating_mul(u64::from(u8_at(&boot, 13)));
        for place in places {
            let clusters = place.start.checked_div(cluster_bytes).zip(place.end.checked_add(cluster_bytes));
            let Some((first, end)) = clusters else { return Err("its clusters have no size".into()) };
            let end = end.saturating_sub(1).checked_div(cluster_bytes).unwrap_or(0);
            if !self.are_used(first..end).map_err(said)? {
                return Err("the bitmap of clusters does not mark all of its clusters as used".into());
            }
        }
        Ok(())
    }

    fn are_used(&self, clusters: Range<u64>) -> Result<bool, FileSystemError> {
        let mut bitmap = vec![0; BITMAP_BYTES];
        let mut cluster = clusters.start;
        while cluster < clusters.end {
            let offset = cluster >> 3;
            let length = self.read_at(BITMAP, offset, &mut bitmap)?;
            let known = bitmap.get(..length).unwrap_or_default();
            let bits = known.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
            let skipped = to_usize(cluster & 7);
            let before = cluster;
            for is_used in bits.skip(skipped).take(to_usize(clusters.end.saturating_sub(cluster))) {
                if !is_used {
                    return Ok(false);
                }
                cluster = cluster.saturating_add(1);
            }
            if cluster == before {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

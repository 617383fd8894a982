//! Sectors: the unit that a disk writes atomically, and the traces of a power cut.

use crate::records::granule::GRANULE_BYTES;
use varve_block::to_usize;

/// The smallest unit that a disk writes whole or loses whole. A record's header never crosses a
/// sector boundary.
pub(crate) const SECTOR_BYTES: usize = 512;
/// The granules of a sector.
pub(crate) const SECTOR_GRANULES: u32 = 4;
const _: () = assert!(SECTOR_GRANULES as u64 * GRANULE_BYTES == SECTOR_BYTES as u64);

/// Splits `bytes`, which begin at offset `start` of their file, at sector boundaries.
pub(crate) fn in_sectors(start: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let in_first = SECTOR_BYTES - to_usize(start % SECTOR_BYTES as u64);
    let (first, others) = bytes.split_at(in_first.min(bytes.len()));
    std::iter::once(first).chain(others.chunks(SECTOR_BYTES))
}

/// Returns true if a part of a sector may never have reached the disk. It then reads as zeros.
pub(crate) fn may_be_lost(part: &[u8]) -> bool {
    part.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parted_where_sectors_end() {
        let lengths =
            |start, count| in_sectors(start, &[1; 2000][..count]).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(0, 1024), [512, 512]);
        assert_eq!(lengths(512 * 7 + 384, 100), [100]);
        assert_eq!(lengths(512 * 7 + 384, 1000), [128, 512, 360]);
    }
}

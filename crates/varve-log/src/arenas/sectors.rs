//! What a disk writes whole or not at all, and what a power cut leaves of it.

use crate::arenas::address::GRANULE_BYTES;

/// What a disk writes whole, and loses at the least. A record's header never crosses the border of two.
pub(crate) const SECTOR_BYTES: usize = 512;
/// How many granules a sector has.
pub(crate) const SECTOR_GRANULES: u32 = 4;
const _: () = assert!(SECTOR_GRANULES as u64 * GRANULE_BYTES == SECTOR_BYTES as u64);

/// The parts of `bytes` that lie in one sector each, if they begin at `start` in their file.
pub(crate) fn in_sectors(start: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let in_first = SECTOR_BYTES - usize::try_from(start % SECTOR_BYTES as u64).unwrap_or_default();
    let (first, others) = bytes.split_at(in_first.min(bytes.len()));
    std::iter::once(first).chain(others.chunks(SECTOR_BYTES))
}

/// Whether a part of a sector may never have reached the disk: then it reads as zeros.
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

//! The parts of files that a profile asks for: what moves together, in the order of first access.

use std::collections::BTreeMap;
use std::ops::Range;

use super::claims::BlockClaims;
use crate::bytes::ranges::Ranges;

/// A file up to this size moves whole if at least half of its blocks were read.
const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Blocks that were not read move along if fewer of them lie between two that were.
const GAP_BLOCKS: u64 = 8;

/// A range of blocks of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HotPart {
    pub(super) inode: u32,
    pub(super) blocks: Range<u64>,
    /// The number of its first read among those of all files.
    pub(super) order: usize,
}

/// The reads of one file: ranges of its blocks, each with its number among those of all files.
pub(super) type FileReads = Vec<(Range<u64>, usize)>;

/// The reads of a profile by file, and the count of read blocks that belong to no file.
pub(super) struct Reads {
    pub(super) by_inode: BTreeMap<u32, FileReads>,
    pub(super) elsewhere: u64,
}

/// Finds the files that own the blocks that were read. Each block counts once.
pub(super) fn find(claims: &BlockClaims, reads: &[Range<u64>]) -> Reads {
    let mut found = Reads { by_inode: BTreeMap::new(), elsewhere: 0 };
    let mut seen = Ranges::default();
    let mut order = 0_usize;
    for read in reads {
        let new = std::iter::once(read.clone()).collect::<Ranges>().without(&seen);
        for part in new {
            let mut owned = 0_u64;
            for (run, claim) in claims.within(part.clone()) {
                let Some(logical) = claim.logical.filter(|_| !claim.reserved) else { continue };
                let blocks = run.start.max(part.start)..run.end.min(part.end);
                let in_file = |block: u64| logical.saturating_add(block.saturating_sub(run.start));
                owned = owned.saturating_add(blocks.end.saturating_sub(blocks.start));
                let file = found.by_inode.entry(claim.inode).or_default();
                file.push((in_file(blocks.start)..in_file(blocks.end), order));
                order = order.saturating_add(1);
            }
            let all = part.end.saturating_sub(part.start);
            found.elsewhere = found.elsewhere.saturating_add(all.saturating_sub(owned));
            seen.add(part);
        }
    }
    found
}

/// Returns the parts of a file that move. `present` are the blocks that the file has.
pub(super) fn parts(inode: u32, bytes: u64, present: &Ranges, mut reads: FileReads) -> Vec<HotPart> {
    let read =
        reads.iter().map(|(range, _)| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add);
    let first = reads.iter().map(|(_, order)| *order).min().unwrap_or(0);
    let end = present.iter().last().map_or(0, |range| range.end);
    if bytes <= SMALL_FILE_BYTES && read.saturating_mul(2) >= present.total() {
        return vec![HotPart { inode, blocks: 0..end, order: first }];
    }
    reads.sort_by_key(|(range, _)| range.start);
    let mut parts: Vec<HotPart> = Vec::new();
    for (blocks, order) in reads {
        match parts.last_mut() {
            Some(last) if blocks.start < last.blocks.end.saturating_add(GAP_BLOCKS) => {
                last.blocks.end = last.blocks.end.max(blocks.end);
                last.order = last.order.min(order);
            }
            _ => parts.push(HotPart { inode, blocks, order }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: u64, reads: &[(Range<u64>, usize)]) -> Vec<(Range<u64>, usize)> {
        let present: Ranges = std::iter::once(0..bytes.div_ceil(4096)).collect();
        let parts = parts(12, bytes, &present, reads.to_vec());
        parts.into_iter().map(|part| (part.blocks, part.order)).collect()
    }

    #[test]
    fn small_files_move_whole_and_small_gaps_move_along() {
        let reads = [(30..42, 9), (0..70, 5), (100..120, 2)];
        assert_eq!(of(800_000, &[(100..190, 4), (0..10, 7)]), [(0..196, 4)]);
        assert_eq!(of(800_000, &[(100..190, 4)]), [(100..190, 4)]);
        assert_eq!(of(80_000_000, &reads), [(0..70, 5), (100..120, 2)]);
        assert_eq!(of(80_000_000, &[(0..4, 5), (11..12, 2), (20..21, 3)]), [(0..12, 2), (20..21, 3)]);
    }
}

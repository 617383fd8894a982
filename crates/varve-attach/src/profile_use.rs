//! Judges a profile by the reads of its disk.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::block_supply::BlockOrigin;

/// An interval with fewer reads says nothing.
const READS_MIN: u64 = 16;
/// A profile is wrong if it has foreseen fewer reads than this.
const FORESEEN_PERCENT_MIN: u64 = 30;

/// Compares the reads with a profile.
#[derive(Debug, Default)]
pub(crate) struct ProfileUse {
    /// The blocks of the profile, and whether they were read.
    blocks: BTreeMap<u64, bool>,
    /// First reads of blocks of the profile, in the current interval.
    foreseen: u64,
    /// Reads that waited for other blocks, in the current interval.
    surprises: u64,
}

impl ProfileUse {
    pub(crate) fn new(blocks: &[u64]) -> Self {
        let blocks = blocks.iter().map(|block| (*block, false)).collect();
        Self { blocks, ..Self::default() }
    }

    /// Returns whether all of these blocks are in the profile.
    pub(crate) fn foresees(&self, blocks: &Range<u64>) -> bool {
        blocks.clone().all(|block| self.blocks.contains_key(&block))
    }

    pub(crate) fn note(&mut self, block: u64, origin: &BlockOrigin) {
        match self.blocks.get_mut(&block) {
            Some(was_read) => {
                if !std::mem::replace(was_read, true) {
                    self.foreseen = self.foreseen.saturating_add(1);
                }
            }
            None => {
                if matches!(origin, BlockOrigin::Fetched { .. } | BlockOrigin::Waited) {
                    self.surprises = self.surprises.saturating_add(1);
                }
            }
        }
    }

    /// Ends an interval. Returns true if its reads were mostly for other blocks.
    pub(crate) fn end_interval(&mut self) -> bool {
        let (foreseen, surprises) = (std::mem::take(&mut self.foreseen), std::mem::take(&mut self.surprises));
        let all = foreseen.saturating_add(surprises);
        all >= READS_MIN && foreseen.saturating_mul(100) < all.saturating_mul(FORESEEN_PERCENT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_wrong_if_most_reads_wait_for_other_blocks() {
        let mut uses = ProfileUse::new(&[1, 2, 3, 4, 5]);
        let fetched = BlockOrigin::Fetched { mirror: "here".into() };
        (1..=5).for_each(|block| uses.note(block, &BlockOrigin::Memory));
        // Another read of a block says nothing, and neither do blocks that were here.
        (1..=5).for_each(|block| uses.note(block, &BlockOrigin::Memory));
        (100..200).for_each(|block| uses.note(block, &BlockOrigin::Storage));
        (10..21).for_each(|block| uses.note(block, &fetched));
        assert!(!uses.end_interval(), "5 of 16 reads are more than 30 %");
        (10..25).for_each(|block| uses.note(block, &fetched));
        assert!(!uses.end_interval(), "15 reads are too few");
        (10..26).for_each(|block| uses.note(block, &BlockOrigin::Waited));
        assert!(uses.end_interval());
        assert!(!uses.end_interval(), "each interval begins with nothing");
    }
}

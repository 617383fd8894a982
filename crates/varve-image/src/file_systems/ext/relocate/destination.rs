//! The free blocks that the moved ones go to: one region, in ascending order.

use std::ops::Range;

use super::{RelocationError, RelocationOptions};
use crate::bytes::ranges::Ranges;

/// Pointers of ext2 and ext3 cannot name later blocks.
const BLOCKS_END: u64 = 1 << 32;
/// If space is scarce, the region shares smaller units with other data.
const SMALLER_UNIT_BYTES: u64 = 128 << 10;

/// Chooses the free runs that hold `count` blocks. Prefers whole units of the alignment, then runs
/// that lie close together, then low ones.
pub(super) fn choose(
    free: &Ranges,
    count: u64,
    block_bytes: u64,
    options: RelocationOptions,
) -> Result<Vec<Range<u64>>, RelocationError> {
    let mut most = 0;
    let mut units = vec![options.align_bytes, options.align_bytes.min(SMALLER_UNIT_BYTES), block_bytes];
    units.dedup();
    for unit in units {
        let runs: Vec<_> =
            free.iter().filter_map(|run| whole_units(&run, unit, block_bytes, options)).collect();
        let present = runs.iter().map(length).fold(0, u64::saturating_add);
        if present >= count {
            return Ok(closest(&runs, count));
        }
        most = present.max(most);
    }
    Err(RelocationError::Space { needed: count, free: most })
}

fn length(run: &Range<u64>) -> u64 {
    run.end.saturating_sub(run.start)
}

/// Returns the part of a run that consists of whole units of the disk.
fn whole_units(
    run: &Range<u64>,
    unit: u64,
    block_bytes: u64,
    options: RelocationOptions,
) -> Option<Range<u64>> {
    let unit = unit.max(1);
    let on_disk = |block: u64| block.saturating_mul(block_bytes).saturating_add(options.volume_start);
    let start = on_disk(run.start).div_ceil(unit).saturating_mul(unit).saturating_sub(options.volume_start);
    let end = on_disk(run.end).checked_div(unit)?.saturating_mul(unit).saturating_sub(options.volume_start);
    let blocks = start.div_ceil(block_bytes.max(1))..end.checked_div(block_bytes)?.min(BLOCKS_END);
    (!blocks.is_empty()).then_some(blocks)
}

/// Returns the runs that hold `count` blocks within the shortest distance, or the lowest of them.
/// The last one is cut off.
fn closest(runs: &[Range<u64>], count: u64) -> Vec<Range<u64>> {
    let (mut best, mut held, mut first) = (None, 0_u64, 0_usize);
    for (last, run) in runs.iter().enumerate() {
        held = held.saturating_add(length(run));
        while let Some(run_first) = runs.get(first).filter(|run| held.saturating_sub(length(run)) >= count) {
            held = held.saturating_sub(length(run_first));
            first = first.saturating_add(1);
        }
        let start = runs.get(first).map_or(0, |run| run.start);
        let end = run.end.saturating_sub(held.saturating_sub(count));
        let span = end.saturating_sub(start);
        if held >= count && best.as_ref().is_none_or(|(shortest, _, _)| span < *shortest) {
            best = Some((span, first..last.saturating_add(1), end));
        }
    }
    let Some((_, chosen, end)) = best else { return Vec::new() };
    let runs = runs.get(chosen).unwrap_or_default().iter();
    runs.map(|run| run.start..run.end.min(end)).filter(|run| !run.is_empty()).collect()
}

/// Hands out the blocks of the chosen runs, in order.
pub(super) struct Handout {
    runs: std::vec::IntoIter<Range<u64>>,
    current: Range<u64>,
}

impl Handout {
    pub(super) fn new(runs: Vec<Range<u64>>) -> Self {
        Self { runs: runs.into_iter(), current: 0..0 }
    }

    /// Returns at most `count` of the next blocks, and at least one of them; `None` if there are no
    /// more.
    pub(super) fn next(&mut self, count: u64) -> Option<Range<u64>> {
        if self.current.is_empty() {
            self.current = self.runs.next()?;
        }
        let start = self.current.start;
        let end = start.saturating_add(count.max(1)).min(self.current.end);
        self.current.start = end;
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        free: &[Range<u64>],
        count: u64,
        align_bytes: u64,
        volume_start: u64,
    ) -> Option<Vec<(u64, u64)>> {
        let free = free.iter().cloned().collect();
        let runs = choose(&free, count, 1024, RelocationOptions { align_bytes, volume_start }).ok()?;
        Some(runs.into_iter().map(|run| (run.start, run.end)).collect())
    }

    #[test]
    fn the_lowest_run_that_holds_all_is_chosen() {
        let free = [3..9, 20..60, 100..200];
        assert_eq!(chosen(&free, 6, 1024, 0), Some(vec![(3, 9)]));
        assert_eq!(chosen(&free, 7, 1024, 0), Some(vec![(20, 27)]));
        assert_eq!(chosen(&free, 41, 1024, 0), Some(vec![(100, 141)]));
        assert_eq!(chosen(&free, 130, 1024, 0), Some(vec![(20, 60), (100, 190)]));
        assert_eq!(chosen(&free, 146, 1024, 0), Some(vec![(3, 9), (20, 60), (100, 200)]));
        assert_eq!(chosen(&free, 147, 1024, 0), None);
    }

    #[test]
    fn the_region_does_not_share_units_while_there_is_space() {
        let free = [3..9, 20..60, 100..200];
        assert_eq!(chosen(&free, 6, 8192, 0), Some(vec![(24, 30)]));
        assert_eq!(chosen(&free, 6, 8192, 1024), Some(vec![(23, 29)]));
        assert_eq!(chosen(&free, 128, 8192, 0), Some(vec![(24, 56), (104, 200)]));
        assert_eq!(chosen(&free, 141, 8192, 0), Some(vec![(3, 9), (20, 60), (100, 195)]));
    }
}

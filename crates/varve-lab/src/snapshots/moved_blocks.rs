//! `varve-lab defragmentation`: the gain if blocks of the newest disk were stored again, side by
//! side.
//!
//! After 400 days a disk is in many pieces of the log. A restore moves to each. This counts the
//! moves before and after some blocks have a second copy at the end of the log, in the order of the
//! disk. Three rules choose the blocks: those of clumps that hold little else of their part of the
//! disk, those of the shortest runs, and whole parts of the disk with the most moves a block.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::workload::{DAYS, Workload400};

/// Blocks that are restored together, and read in the order of the log.
const BATCH_BLOCKS: usize = 1024;
/// The blocks of a part of the disk whose pieces are stored again together: 64 MiB.
const WINDOW_BLOCKS: usize = 2048;
/// The blocks of a clump: 1 MiB.
const CLUMP_BLOCKS: u32 = 32;
/// A window's blocks are moved out of the clumps of which it has at most so many.
const FROM_CLUMP: [usize; 6] = [1, 2, 4, 8, 16, 31];
/// The percentages of the disk that are moved at most.
const PERCENT: [usize; 5] = [1, 2, 5, 10, 20];
/// The blocks of a part of the disk that is moved as a whole: 4, 16 and 64 MiB.
const WHOLE_PARTS: [(&str, usize); 3] = [("parts-of-4M", 128), ("parts-of-16M", 512), ("parts-of-64M", 2048)];

#[derive(Debug, Clone, Args)]
pub(crate) struct Defragmentation {
    /// Divides the disk and its changes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    scale: u64,

    /// The days that pass before
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)))]
    days: u32,

    /// The seed of the disk and its changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The moves of a restore of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Moves {
    one_by_one: u64,
    /// In batches, each in the order of the log.
    in_batches: u64,
}

/// Counts the moves for each rule. `done` receives one object for each.
pub(crate) fn run(args: &Defragmentation, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let mut workload = Workload400::new(args.scale, args.seed);
    for _ in 0..args.days {
        workload.next_day();
    }
    let disk = workload.disk();
    let before = Moves::of(disk);
    let by_clumps = FROM_CLUMP.map(|blocks| ("clumps", blocks, out_of_clumps(disk, blocks)));
    let share = |percent| disk.len() * percent / 100;
    let by_runs =
        PERCENT.map(|percent| ("shortest-runs", percent, out_of_shortest_runs(disk, share(percent))));
    let by_parts = WHOLE_PARTS.into_iter().flat_map(|(rule, blocks)| {
        PERCENT.map(|percent| (rule, percent, in_scattered_parts(disk, blocks, share(percent))))
    });
    for (rule, limit, is_moved) in by_clumps.into_iter().chain(by_runs).chain(by_parts) {
        let moved = is_moved.iter().filter(|is_moved| **is_moved).count();
        let after = Moves::of(&stored_again(disk, &is_moved));
        done(json!({
            "type": "defragmentation",
            "rule": rule,
            "limit": limit,
            "blocks": disk.len(),
            "moved": moved,
            "before": before,
            "after": after,
        }))?;
    }
    Ok(())
}

impl Moves {
    fn of(disk: &[u32]) -> Self {
        let mut in_batches = disk.to_vec();
        in_batches.chunks_mut(BATCH_BLOCKS).for_each(<[u32]>::sort_unstable);
        Self { one_by_one: moves(disk), in_batches: moves(&in_batches) }
    }
}

/// Returns how often a reader of these places of the log has to move.
fn moves(places: &[u32]) -> u64 {
    let mut last = None;
    let mut moves = 0;
    for place in places {
        // A block that was read right before is in memory.
        if last != Some(*place) {
            moves += u64::from(last.is_none_or(|last: u32| last + 1 != *place));
            last = Some(*place);
        }
    }
    moves
}

/// Chooses the blocks of each window that lie in clumps of which the window has at most `count`
/// blocks.
fn out_of_clumps(disk: &[u32], count: usize) -> Vec<bool> {
    let mut is_moved = Vec::with_capacity(disk.len());
    for window in disk.chunks(WINDOW_BLOCKS) {
        let mut used: BTreeMap<u32, usize> = BTreeMap::new();
        for place in window {
            *used.entry(place / CLUMP_BLOCKS).or_default() += 1;
        }
        is_moved.extend(window.iter().map(|place| used[&(place / CLUMP_BLOCKS)] <= count));
    }
    is_moved
}

/// Chooses at most `count` blocks: the parts of the disk, of some blocks each, with the most moves
/// a block.
fn in_scattered_parts(disk: &[u32], part_blocks: usize, count: usize) -> Vec<bool> {
    let mut parts: Vec<_> = disk.chunks(part_blocks).map(moves).zip(0..).collect();
    parts.sort_unstable_by_key(|(moves, number)| (std::cmp::Reverse(*moves), *number));
    let mut is_moved = vec![false; disk.len()];
    for (_, number) in parts.into_iter().take(count / part_blocks) {
        let start: usize = number * part_blocks;
        let end = disk.len().min(start + part_blocks);
        is_moved[start..end].fill(true);
    }
    is_moved
}

/// Chooses at most `count` blocks: those of the shortest runs. A run costs one move however long it
/// is.
fn out_of_shortest_runs(disk: &[u32], count: usize) -> Vec<bool> {
    let mut runs = Vec::new();
    let mut start = 0;
    for at in 1..=disk.len() {
        if disk.get(at).is_none_or(|place| disk[at - 1] + 1 != *place) {
            runs.push((at - start, start));
            start = at;
        }
    }
    runs.sort_unstable();
    let mut is_moved = vec![false; disk.len()];
    let mut moved = 0;
    for (length, start) in runs {
        if moved + length > count {
            break;
        }
        moved += length;
        is_moved[start..start + length].fill(true);
    }
    is_moved
}

/// Returns the places of a disk after its chosen blocks are stored again at the end of the log, in
/// the order of the disk.
fn stored_again(disk: &[u32], is_moved: &[bool]) -> Vec<u32> {
    let end = disk.iter().max().map_or(0, |last| last + 1);
    let moved = disk.iter().zip(is_moved).scan(end, |next, (place, is_moved)| {
        let new = if *is_moved { *next } else { *place };
        *next += u32::from(*is_moved);
        Some(new)
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moves_are_counted() {
        assert_eq!(moves(&[]), 0);
        assert_eq!(moves(&[4, 5, 6]), 1);
        assert_eq!(moves(&[4, 4, 5, 9, 8]), 3);
        let disk: Vec<u32> = [0, 9, 1, 10].into_iter().collect();
        assert_eq!(Moves::of(&disk), Moves { one_by_one: 4, in_batches: 2 });
    }

    #[test]
    fn blocks_leave_clumps_that_the_window_hardly_uses() {
        // Two blocks of the first clump, one of the second, and one far away.
        let disk = [0, 1, 40, 400];
        assert_eq!(out_of_clumps(&disk, 1), [false, false, true, true]);
        assert_eq!(out_of_clumps(&disk, 2), [true; 4]);
        assert_eq!(stored_again(&disk, &[false, false, true, true]), [0, 1, 401, 402]);
        assert_eq!(out_of_shortest_runs(&disk, 2), [false, false, true, true]);
        assert_eq!(out_of_shortest_runs(&disk, 1), [false, false, true, false]);
        assert_eq!(in_scattered_parts(&disk, 2, 3), [false, false, true, true]);
    }

    proptest! {
        #[test]
        fn all_blocks_stored_again_are_one_run(disk in prop::collection::vec(0_u32..5000, 1..300)) {
            let again = stored_again(&disk, &vec![true; disk.len()]);
            prop_assert_eq!(Moves::of(&again), Moves { one_by_one: 1, in_batches: 1 });
            let none = stored_again(&disk, &vec![false; disk.len()]);
            prop_assert_eq!(none, disk);
        }
    }
}

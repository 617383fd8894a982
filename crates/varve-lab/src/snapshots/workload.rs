//! `foundation-400`: a disk of 41.7 GB that changes for 400 days, as the disk in Foundation's
//! section 5.3 does.
//!
//! The paper's traces were never published. The parameters are fitted to its Figures 8 and 9, and
//! to the sizes in its text: snapshots of 537 MB on average, 95 % of them above 128 MB, 78.5 MB of
//! duplicates, nine days with more than 1 GB of them and two with more than 5 GB. A megabyte is
//! 2^20 bytes, as there.
//!
//! A block's content is a number. Contents are numbered in the order in which a snapshot first has
//! them, so the number is also the place in a log that has nothing else.

use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes of a block.
pub(crate) const BLOCK_BYTES: u32 = 32 << 10;
const BLOCKS_PER_MB: f64 = 32.0;

/// The contents that all days have together: a little more than the log holds in the end.
pub(crate) const LOG_BLOCKS: u64 = 7_500_000;

/// The number of days.
pub(crate) const DAYS: u32 = 400;
/// Megabytes on the disk before the first day, and after the last.
const FIRST_MB: f64 = 41.7 * 1024.0;
const LAST_MB: f64 = 69.9 * 1024.0;
/// The median of the megabytes that a day without a copied tree changes. The mean is 483 MB.
const DAY_MEDIAN_MB: f64 = 366.0;
/// The spread of their logarithm. It leaves 4 to 5 % of the days below 128 MB.
const DAY_SIGMA: f64 = 0.65;
/// The trees that are copied whole, one on each of nine days: the megabytes, and the number of the
/// earlier copy whose place it takes. Without one the disk grows.
const TREES: [(f64, Option<usize>); 9] = [
    (1130.0, None),
    (1200.0, Some(0)),
    (1600.0, None),
    (1250.0, Some(2)),
    (5300.0, None),
    (1400.0, Some(2)),
    (1550.0, None),
    (5600.0, Some(4)),
    (1900.0, None),
];
/// The share of a day's other changes that are copies of small files, which lie near each other, to
/// a part of the disk that has such copies only.
const COPIES_SHARE: f64 = 0.05;
/// The small files that are copied together, the most blocks of one, and the most blocks between
/// two.
const COPY_FILES: u64 = 8;
const COPY_FILE_BLOCKS: u64 = 3;
const COPY_GAP_BLOCKS: u64 = 12;
/// The share of the first disk that has copies.
const COPIES_PLACE: f64 = 0.054;
/// The pairs of files that are rewritten often, for each block of the first disk. The runs of two
/// files lie in turns.
const PAIRS_PER_BLOCK: f64 = 1.0 / 1180.0;
/// The runs of such a file, and the blocks of a run.
const FILE_RUNS: u64 = 40;
const RUN_BLOCKS: u64 = 2;
const PAIR_BLOCKS: u64 = 2 * FILE_RUNS * RUN_BLOCKS;
/// The places that are rewritten one by one, for each block of the first disk, and the most blocks
/// of one.
const PLACES_PER_BLOCK: f64 = 1.0 / 72.0;
const PLACE_BLOCKS: u64 = 24;
/// The share of the rewritten blocks that lie in files. The others are such places.
const FILES_SHARE: f64 = 0.7;

/// A disk and its changes from day to day.
pub(crate) struct Workload400 {
    scale: u64,
    draw: Draw,
    day: u32,
    /// The content of each block of the disk.
    disk: Vec<u32>,
    next_content: u32,
    /// The first blocks of the pairs of files.
    pairs: Vec<u64>,
    /// The first blocks of the places that are rewritten one by one, and their numbers of blocks.
    places: Vec<(u64, u64)>,
    /// The blocks that have copies of small files, and the block that the next copy goes to.
    copies: Range<u64>,
    next_copy: u64,
    /// The place of each copied tree.
    trees: Vec<u64>,
}

impl Workload400 {
    /// Fills the disk. All sizes are divided by `scale`.
    pub(crate) fn new(scale: u64, seed: u64) -> Self {
        let scale = scale.max(1);
        let mut draw = Draw(seed);
        let blocks = scaled(FIRST_MB, scale);
        let next_content = u32::try_from(blocks).unwrap_or(u32::MAX);
        let part = |share: f64| round(float(blocks) * share).max(1);
        let room = |length: u64| blocks.saturating_sub(length).max(1);
        let pairs = (0..part(PAIRS_PER_BLOCK)).map(|_| draw.below(room(PAIR_BLOCKS))).collect();
        let places = (0..part(PLACES_PER_BLOCK))
            .map(|_| (draw.below(room(PLACE_BLOCKS)), 1 + draw.below(PLACE_BLOCKS)))
            .collect();
        let first_copy = draw.below(room(part(COPIES_PLACE)));
        let copies = first_copy..first_copy + part(COPIES_PLACE);
        let disk = (0..next_content).collect();
        Self {
            scale,
            draw,
            day: 0,
            disk,
            next_content,
            pairs,
            places,
            copies,
            next_copy: first_copy,
            trees: Vec::new(),
        }
    }

    /// Returns the content of each block of the disk.
    pub(crate) fn disk(&self) -> &[u32] {
        &self.disk
    }

    /// Returns the number of contents so far.
    #[cfg(test)]
    pub(crate) fn content_count(&self) -> u32 {
        self.next_content
    }

    /// Lets a day pass. Returns the contents of the changed blocks, in the order of the disk.
    pub(crate) fn next_day(&mut self) -> Vec<u32> {
        self.day += 1;
        let wanted = DAY_MEDIAN_MB * (DAY_SIGMA * self.draw.normal()).exp();
        let count = scaled(wanted, self.scale).max(1);
        // `None` stands for a new content.
        let mut changes: BTreeMap<u64, Option<u32>> = BTreeMap::new();
        let tree = tree_of(self.day);
        if let Some(tree) = tree {
            self.copy_tree(tree, &mut changes);
        }
        let before = changes.len() as u64;
        self.grow(&mut changes);
        self.copy_files(round(float(count) * COPIES_SHARE), &mut changes);
        // A bound, in case that a small disk has no more blocks to change.
        for _ in 0..count {
            if changes.len() as u64 - before >= count {
                break;
            }
            let place_bytes = (1.0 + float(PLACE_BLOCKS)) / 2.0;
            let file_weight = FILES_SHARE / float(FILE_RUNS * RUN_BLOCKS);
            let place_weight = (1.0 - FILES_SHARE) / place_bytes;
            if self.draw.share() * (file_weight + place_weight) < file_weight {
                self.rewrite_file(&mut changes);
            } else {
                let (at, blocks) = self.places[index(self.draw.below(self.places.len() as u64))];
                self.rewrite(at, blocks, &mut changes);
            }
        }
        let mut contents = Vec::with_capacity(changes.len());
        for (at, content) in changes {
            let content = content.unwrap_or_else(|| {
                self.next_content += 1;
                self.next_content - 1
            });
            self.disk[index(at)] = content;
            contents.push(content);
        }
        contents
    }

    /// Adds new blocks at the end of the disk, as many as copied trees leave of the growth.
    fn grow(&mut self, changes: &mut BTreeMap<u64, Option<u32>>) {
        let by_trees: f64 = TREES.iter().filter(|tree| tree.1.is_none()).map(|tree| tree.0).sum();
        let whole = scaled(LAST_MB - FIRST_MB - by_trees, self.scale);
        let days = u64::from(DAYS);
        let today = whole * u64::from(self.day) / days - whole * u64::from(self.day - 1) / days;
        for _ in 0..today {
            changes.insert(self.disk.len() as u64, None);
            self.disk.push(0);
        }
    }

    fn copy_tree(&mut self, tree: usize, changes: &mut BTreeMap<u64, Option<u32>>) {
        let (megabytes, replaced) = TREES[tree];
        let blocks = scaled(megabytes, self.scale).min(self.disk.len() as u64 / 2);
        let from = self.place(blocks);
        let to = replaced.map_or(self.disk.len() as u64, |before| self.trees[before]);
        self.trees.push(to);
        for block in 0..blocks {
            let content = self.disk[index(from + block)];
            if to + block >= self.disk.len() as u64 {
                self.disk.push(content);
            }
            changes.insert(to + block, Some(content));
        }
    }

    /// Copies groups of small files, until `count` blocks are copied.
    fn copy_files(&mut self, count: u64, changes: &mut BTreeMap<u64, Option<u32>>) {
        let mut copied = 0;
        while copied < count {
            let mut from = self.place(COPY_FILES * (COPY_FILE_BLOCKS + COPY_GAP_BLOCKS));
            for _ in 0..COPY_FILES {
                from += 1 + self.draw.below(COPY_GAP_BLOCKS);
                for _ in 0..1 + self.draw.below(COPY_FILE_BLOCKS) {
                    let Some(content) = self.disk.get(index(from)) else { break };
                    changes.insert(self.next_copy, Some(*content));
                    self.next_copy += 1;
                    if self.next_copy == self.copies.end {
                        self.next_copy = self.copies.start;
                    }
                    (from, copied) = (from + 1, copied + 1);
                }
            }
            // A disk so small that there is nothing to copy.
            copied += 1;
        }
    }

    /// Rewrites one file of a pair.
    fn rewrite_file(&mut self, changes: &mut BTreeMap<u64, Option<u32>>) {
        let pair = self.pairs[index(self.draw.below(self.pairs.len() as u64))];
        let first = pair + RUN_BLOCKS * self.draw.below(2);
        for run in 0..FILE_RUNS {
            self.rewrite(first + run * 2 * RUN_BLOCKS, RUN_BLOCKS, changes);
        }
    }

    fn rewrite(&self, at: u64, blocks: u64, changes: &mut BTreeMap<u64, Option<u32>>) {
        for block in at..(at + blocks).min(self.disk.len() as u64) {
            changes.insert(block, None);
        }
    }

    /// Draws a place with room for some blocks behind it.
    fn place(&mut self, blocks: u64) -> u64 {
        self.draw.below((self.disk.len() as u64).saturating_sub(blocks).max(1))
    }
}

/// Returns the number of the tree that is copied on a day.
fn tree_of(day: u32) -> Option<usize> {
    let every = DAYS / 10;
    let is_due = day.is_multiple_of(every) && day < DAYS;
    is_due.then(|| (day / every) as usize - 1).filter(|tree| *tree < TREES.len())
}

/// Returns the blocks of some megabytes of the unscaled disk.
fn scaled(megabytes: f64, scale: u64) -> u64 {
    round(megabytes * BLOCKS_PER_MB / float(scale))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of blocks")]
fn round(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts of blocks")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "counts of blocks in memory")]
fn index(number: u64) -> usize {
    number as usize
}

/// A sequence of random numbers that follows from a seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Draws a number from 0 to 1.
    fn share(&mut self) -> f64 {
        float(self.next() >> 11) / float(1 << 53)
    }

    /// Draws from the normal distribution: the sum of twelve numbers from 0 to 1, less 6.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of times that a reader of the log has to move.
    fn seeks(contents: &[u32]) -> u64 {
        let mut head = None;
        let mut seeks = 0;
        for content in contents {
            // The block before is in memory.
            if head != Some(content + 1) {
                seeks += u64::from(head != Some(*content));
                head = Some(content + 1);
            }
        }
        seeks
    }

    fn is_near(ours: u64, scale: u64, theirs: f64, percent: f64) {
        let ours = float(ours * scale);
        assert!((ours / theirs - 1.0).abs() * 100.0 < percent, "{ours} beside {theirs}");
    }

    #[test]
    fn the_disk_changes_as_the_papers_disk_does() {
        let scale = 4;
        let mut workload = Workload400::new(scale, 1);
        let (mut blocks, mut duplicates, mut small_days, mut large_copies) = (0, 0, 0, 0);
        let mut images = [0; 5];
        for day in 1..=DAYS {
            let before = workload.content_count();
            let changed = workload.next_day();
            let count = changed.iter().filter(|content| **content < before).count() as u64;
            blocks += changed.len() as u64;
            duplicates += count;
            small_days += u32::from((changed.len() as u64) < scaled(128.0, scale));
            large_copies += u32::from(count > scaled(1024.0, scale));
            if day.is_multiple_of(20) {
                let disk = workload.disk();
                let in_batches: Vec<_> = disk
                    .chunks(1024)
                    .flat_map(|batch| {
                        let mut batch = batch.to_vec();
                        batch.sort_unstable();
                        batch
                    })
                    .collect();
                let mut sorted = disk.to_vec();
                sorted.sort_unstable();
                let all = [disk.len() as u64, seeks(disk), seeks(&in_batches), seeks(&sorted)];
                sorted.dedup();
                for (sum, more) in images.iter_mut().zip(all.into_iter().chain([sorted.len() as u64])) {
                    *sum += more;
                }
            }
        }
        is_near(blocks / u64::from(DAYS), scale, 17_196.0, 6.0);
        is_near(duplicates / u64::from(DAYS), scale, 2512.0, 10.0);
        assert!((10..=28).contains(&small_days), "{small_days}");
        assert_eq!(large_copies, 9);
        let [image, unsorted, in_batches, sorted, unique] = images.map(|sum| sum / 20);
        is_near(image, scale, 1_846_398.0, 2.0);
        is_near(unsorted, scale, 153_853.0, 10.0);
        is_near(in_batches, scale, 79_495.0, 15.0);
        is_near(sorted, scale, 35_218.0, 10.0);
        is_near(unique, scale, 1_613_802.0, 3.0);
        is_near(workload.disk().len() as u64, scale, LAST_MB * BLOCKS_PER_MB, 0.1);
    }

    #[test]
    fn the_same_seed_is_the_same_disk() {
        let day = |seed| {
            let mut workload = Workload400::new(256, seed);
            workload.next_day();
            workload.next_day()
        };
        assert_eq!(day(3), day(3));
        assert_ne!(day(3), day(4));
    }
}

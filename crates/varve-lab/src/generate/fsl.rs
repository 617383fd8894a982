//! A tree of files that changes from day to day, after Tarasov, Mudrankit, Buik, Shilane, Kuenning
//! and Zadok: *Generating Realistic Datasets for Deduplication Analysis*, USENIX ATC 2012.
//!
//! Their model: a file is changed, deleted or kept from one snapshot to the next by transition
//! probabilities, and files are added. A file changes in one of seven patterns: at its beginning,
//! in its middle, at its end, or at several of these. A new chunk is a duplicate of another one
//! with some probability. They accept a data set if each parameter is within 15 % of the profile;
//! the tests here measure that on the generated tree.
//!
//! The default figures are ours: they are plausible for a home directory, and stand for no data set
//! of the paper.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use varve_block::to_usize;
use varve_trace::{SizeClass, SnapshotBegin, SourceKind, TraceRecord};

use super::TraceSink;
use super::dice::Dice;

/// The most chunks of one file.
const FILE_CHUNKS_MAX: u64 = 1 << 20;
/// The most chunks of the first tree.
const TREE_CHUNKS_MAX: u64 = 1 << 28;
const DAY_SECONDS: i64 = 86_400;

/// The places of a change: flags.
const BEGINNING: u8 = 1;
const MIDDLE: u8 = 2;
const END: u8 = 4;
/// The seven patterns of change, in the order of `change_patterns`.
pub(super) const PATTERNS: [u8; 7] =
    [BEGINNING, MIDDLE, END, BEGINNING | MIDDLE, BEGINNING | END, MIDDLE | END, BEGINNING | MIDDLE | END];

/// The parameters of a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FslProfile {
    /// Files of the first snapshot.
    pub(super) files: u64,
    /// The size of each chunk in bytes.
    pub(super) chunk_bytes: u32,
    /// The median of the sizes of files in bytes, and the sigma of their logarithms.
    pub(super) file_bytes_median: f64,
    pub(super) file_bytes_sigma: f64,
    /// The share of files that are changed, deleted and added from one snapshot to the next.
    pub(super) changed: f64,
    pub(super) deleted: f64,
    pub(super) added: f64,
    /// The shares of the patterns of change: beginning, middle, end, beginning and middle,
    /// beginning and end, middle and end, all three.
    pub(super) change_patterns: [f64; 7],
    /// The share of a third of a file that changes there.
    pub(super) changed_chunks: f64,
    /// The share of new chunks that are duplicates of others.
    pub(super) duplicates: f64,
    /// The shares of the classes of compressed sizes: unknown, then up to an eighth, and so on.
    pub(super) size_classes: [f64; 9],
}

impl Default for FslProfile {
    fn default() -> Self {
        Self {
            files: 5000,
            chunk_bytes: 8 << 10,
            file_bytes_median: 40_000.0,
            file_bytes_sigma: 1.5,
            changed: 0.02,
            deleted: 0.005,
            added: 0.01,
            change_patterns: [0.2, 0.15, 0.35, 0.05, 0.1, 0.05, 0.1],
            changed_chunks: 0.4,
            duplicates: 0.15,
            size_classes: [0.0, 0.05, 0.1, 0.2, 0.2, 0.1, 0.05, 0.05, 0.25],
        }
    }
}

impl FslProfile {
    /// Checks that the figures can be generated.
    pub(super) fn check(&self) -> Result<()> {
        let shares = [self.changed, self.deleted, self.added, self.changed_chunks, self.duplicates];
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        let patterns: f64 = self.change_patterns.iter().sum();
        let classes: f64 = self.size_classes.iter().sum();
        ensure!(
            shares.iter().chain(&self.change_patterns).chain(&self.size_classes).all(is_share)
                && self.changed + self.deleted <= 1.0
                && patterns > 0.0
                && classes > 0.0,
            "each share is from 0 to 1, and patterns and classes are not all 0"
        );
        ensure!((64..=1 << 20).contains(&self.chunk_bytes), "a chunk has 64 bytes to 1 MiB");
        ensure!(
            (1.0..=1e12).contains(&self.file_bytes_median) && (0.0..=4.0).contains(&self.file_bytes_sigma),
            "the median of sizes is at least 1 byte, and their sigma at most 4"
        );
        let mean = self.file_bytes_median * (self.file_bytes_sigma.powi(2) / 2.0).exp();
        #[expect(clippy::cast_precision_loss, reason = "a limit need not be exact")]
        let chunks = self.files as f64 * (1.0 + mean / f64::from(self.chunk_bytes));
        #[expect(clippy::cast_precision_loss, reason = "a limit need not be exact")]
        let is_small = chunks <= TREE_CHUNKS_MAX as f64;
        ensure!(self.files > 0 && is_small, "the tree has no files, or more than {TREE_CHUNKS_MAX} chunks");
        Ok(())
    }
}

/// A file of the tree.
#[derive(Debug, Clone)]
pub(super) struct FslFile {
    /// Different from that of every other file, deleted ones included.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests tell files apart by it"))]
    pub(super) number: u64,
    /// The ids of its chunks.
    pub(super) chunks: Vec<u64>,
}

/// The tree on one day.
pub(super) struct FslTree {
    profile: FslProfile,
    dice: Dice,
    pub(super) files: Vec<FslFile>,
    next_file: u64,
    /// The class of each chunk.
    classes: Vec<SizeClass>,
}

impl FslTree {
    /// Makes the tree of the first day. The profile was checked.
    pub(super) fn new(profile: FslProfile, seed: u64) -> Self {
        let files = profile.files;
        let mut tree =
            Self { profile, dice: Dice::new(seed), files: Vec::new(), next_file: 0, classes: Vec::new() };
        (0..files).for_each(|_| tree.add_file());
        tree
    }

    pub(super) fn profile(&self) -> &FslProfile {
        &self.profile
    }

    /// Changes the tree to the next day.
    pub(super) fn next_day(&mut self) {
        let before = std::mem::take(&mut self.files);
        let count = before.len();
        for mut file in before {
            let draw = self.dice.unit();
            if draw < self.profile.deleted {
                continue;
            }
            if draw < self.profile.deleted + self.profile.changed {
                self.change(&mut file);
            }
            self.files.push(file);
        }
        for _ in 0..count {
            if self.dice.is(self.profile.added) {
                self.add_file();
            }
        }
    }

    fn add_file(&mut self) {
        let FslProfile { chunk_bytes, file_bytes_median, file_bytes_sigma, .. } = self.profile;
        let bytes = self.dice.log_normal(file_bytes_median, file_bytes_sigma);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive, and limited"
        )]
        let count = ((bytes / f64::from(chunk_bytes)).ceil() as u64).clamp(1, FILE_CHUNKS_MAX);
        let chunks = (0..count).map(|_| self.new_chunk()).collect();
        self.files.push(FslFile { number: self.next_file, chunks });
        self.next_file += 1;
    }

    /// A chunk that was not at this place before: a duplicate, or a new one.
    fn new_chunk(&mut self) -> u64 {
        let known = self.classes.len() as u64;
        if known > 0 && self.dice.is(self.profile.duplicates) {
            return self.dice.below(known);
        }
        let class = u8::try_from(self.dice.weighted(&self.profile.size_classes)).unwrap_or(0);
        self.classes.push(SizeClass::new(class).unwrap_or(SizeClass::UNKNOWN));
        known
    }

    /// Changes a file by one of the seven patterns. In each third that the pattern names, a stretch
    /// of chunks is replaced.
    fn change(&mut self, file: &mut FslFile) {
        let pattern = PATTERNS[self.dice.weighted(&self.profile.change_patterns)];
        let length = file.chunks.len();
        for (flag, place) in [(BEGINNING, 0), (MIDDLE, 1), (END, 2)] {
            if pattern & flag == 0 {
                continue;
            }
            let third = length * place / 3..length * (place + 1) / 3;
            // A file of one or two chunks has thirds without any: its nearest chunk changes.
            let third =
                if third.is_empty() { (length - 1) * place / 2..(length - 1) * place / 2 + 1 } else { third };
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is positive, and small"
            )]
            let count =
                ((third.len() as f64 * self.profile.changed_chunks).round() as usize).clamp(1, third.len());
            let from = match flag {
                BEGINNING => third.start,
                END => third.end - count,
                _ => third.start + (third.len() - count) / 2,
            };
            for chunk in from..from + count {
                file.chunks[chunk] = self.new_chunk();
            }
        }
    }

    /// Writes a snapshot of the tree.
    pub(super) fn emit(&mut self, day: u32, sink: &mut TraceSink) -> Result<()> {
        let time = i64::from(day) * DAY_SECONDS;
        if day > 0 {
            sink.add(TraceRecord::Idle { milliseconds: DAY_SECONDS.unsigned_abs() * 1000 })?;
        }
        sink.add(TraceRecord::Snapshot(SnapshotBegin { time, series: 0, source: SourceKind::Folder }))?;
        let mut place = 0;
        for file in &self.files {
            for chunk in &file.chunks {
                let class = self.classes[to_usize(*chunk)];
                sink.put(place, *chunk, self.profile.chunk_bytes, class)?;
                place += u64::from(self.profile.chunk_bytes);
            }
        }
        sink.end_snapshot(day)
    }
}

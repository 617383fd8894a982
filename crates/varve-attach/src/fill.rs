//! Completes the cache of a disk, so that it can be read without a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve_edition::ObjectPart;

use crate::edge::{Stopwatch, sleep};
use crate::line_window::LineWindow;
use crate::published_disk::{PublishedDisk, ReadDiskError};
use crate::schedule::Urgency;

/// The rate is held over intervals of this length, and the end is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A block that was not fetched is wanted again in a later round. After this number of rounds
/// without any new block, the fill ends.
const VAIN_ROUNDS_MAX: u32 = 12;
const ROUND_PAUSE: Duration = Duration::from_secs(5);

/// The result of a fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FillReport {
    /// The different stored blocks of the disk.
    pub blocks: u64,
    pub bytes: u64,
    /// Those that are in the cache at the end.
    pub blocks_there: u64,
}

impl FillReport {
    /// Returns true if the disk can be read without a server.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.blocks == self.blocks_there
    }
}

/// Fetches all blocks of a disk that are not in its cache, at most `bytes_per_second` if that is
/// set, and after everything that readers want. Ends without success if the cache is too small, or
/// if no more blocks come. Returns early when `is_over` is set.
///
/// # Errors
/// [`ReadDiskError`] if the map cannot be read.
pub fn fill_cache(
    disk: &PublishedDisk,
    bytes_per_second: Option<u64>,
    is_over: &Arc<AtomicBool>,
) -> Result<FillReport, ReadDiskError> {
    let clock = Stopwatch::start();
    let removed_count = || disk.source().stored().map_or(0, |cache| cache.figures().removed_segments);
    let (mut sent_bytes, mut vain_rounds, removed_before) = (0_u64, 0_u32, removed_count());
    let mut state = report(disk)?;
    let mut window = LineWindow::new(clock.elapsed(), disk.source().received_bytes());
    while !state.is_complete() && vain_rounds < VAIN_ROUNDS_MAX && removed_count() == removed_before {
        for parts in disk.stored_parts() {
            let mut missing = parts?;
            missing.retain(|part| !disk.source().is_stored(&part.name));
            while !missing.is_empty() {
                let parts: Vec<_> = missing.drain(..batch_length(&missing, window.batch_bytes())).collect();
                let window_bytes = window.measured(clock.elapsed(), disk.source().received_bytes());
                want(disk, &parts, window_bytes, is_over);
                if is_over.load(Ordering::Relaxed) {
                    return report(disk);
                }
                sent_bytes = sent_bytes.saturating_add(parts.iter().map(|part| u64::from(part.bytes)).sum());
                pause(sent_bytes, bytes_per_second, clock, is_over);
            }
        }
        disk.source().wait_idle(ROUND_PAUSE);
        let before = std::mem::replace(&mut state, report(disk)?);
        vain_rounds =
            if state.blocks_there > before.blocks_there { 0 } else { vain_rounds.saturating_add(1) };
        let Some(fetcher) = disk.source().fetcher().filter(|_| disk.source().stored().is_some()) else {
            break;
        };
        if !state.is_complete() {
            let (missing_count, reason) = (state.blocks - state.blocks_there, fetcher.last_error());
            tracing::info!(missing_count, reason, "some blocks were not fetched yet");
            wait(ROUND_PAUSE, is_over);
        }
    }
    Ok(state)
}

/// Returns the number of the first parts that have `bytes` together; at least one.
fn batch_length(parts: &[ObjectPart], bytes: u64) -> usize {
    let mut sum = 0_u64;
    let is_below = |part: &&ObjectPart| {
        let is_below = sum < bytes;
        sum = sum.saturating_add(u64::from(part.bytes));
        is_below
    };
    parts.iter().take_while(is_below).count()
}

fn want(disk: &PublishedDisk, parts: &[ObjectPart], window_bytes: u64, is_over: &AtomicBool) {
    let Some(fetcher) = disk.source().fetcher() else { return };
    fetcher.want(parts, disk.content_bytes_max(), Urgency::Fill);
    let clock = Stopwatch::start();
    while !is_over.load(Ordering::Relaxed) && clock.elapsed() < ROUND_PAUSE {
        if fetcher.wait_below(window_bytes, Urgency::Fill, LOOK_EVERY) {
            return;
        }
    }
}

/// Holds the rate.
fn pause(sent_bytes: u64, bytes_per_second: Option<u64>, clock: Stopwatch, is_over: &AtomicBool) {
    let Some(rate) = bytes_per_second else { return };
    let due = Duration::from_millis(sent_bytes.saturating_mul(1000) / rate.max(1));
    wait(due.saturating_sub(clock.elapsed()), is_over);
}

fn wait(time: Duration, is_over: &AtomicBool) {
    let mut left = time;
    while !left.is_zero() && !is_over.load(Ordering::Relaxed) {
        let step = left.min(LOOK_EVERY);
        sleep(step);
        left = left.saturating_sub(step);
    }
}

fn report(disk: &PublishedDisk) -> Result<FillReport, ReadDiskError> {
    let mut names = std::collections::BTreeSet::new();
    let mut report = FillReport::default();
    for parts in disk.stored_parts() {
        for part in parts? {
            if names.insert(part.name) {
                report.blocks = report.blocks.saturating_add(1);
                report.bytes = report.bytes.saturating_add(u64::from(part.bytes));
                let is_there = disk.source().is_stored(&part.name);
                report.blocks_there = report.blocks_there.saturating_add(u64::from(is_there));
            }
        }
    }
    Ok(report)
}

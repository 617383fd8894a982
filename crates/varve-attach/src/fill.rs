//! Completes the cache of a disk, so that it can be read without a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve_edition::ObjectPart;

use crate::edge::{Stopwatch, sleep};
use crate::fetcher::FetchError;
use crate::line_window::LineWindow;
use crate::published_disk::{PublishedDisk, ReadDiskError};
use crate::schedule::Urgency;

/// The rate is held over intervals of this length, and the end is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// If no requested block comes for this time, a round ends.
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

/// The reason why a cache was not completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    #[error(transparent)]
    Disk(#[from] ReadDiskError),
    /// The first block that no server has, or that none has sent in time.
    #[error("{} of {} blocks are there: {reason}", there.blocks_there, there.blocks)]
    Block { there: FillReport, reason: FetchError },
}

/// Fetches all blocks of a disk that are not in its cache, at most `bytes_per_second` if that is
/// set, and after everything that readers want. Ends without success if the cache is too small.
/// Returns early when `is_over` is set.
///
/// # Errors
/// [`FillError`] if the map cannot be read, or a block does not come within the patience of a
/// reader.
pub fn fill_cache(
    disk: &PublishedDisk,
    bytes_per_second: Option<u64>,
    is_over: &Arc<AtomicBool>,
) -> Result<FillReport, FillError> {
    let clock = Stopwatch::start();
    let removed_count = || disk.source().stored().map_or(0, |cache| cache.figures().removed_segments);
    let (mut sent_bytes, removed_before) = (0_u64, removed_count());
    let mut window = LineWindow::new(clock.elapsed(), disk.source().received_bytes());
    loop {
        'round: for parts in disk.stored_parts() {
            let mut missing = parts?;
            missing.retain(|part| !disk.source().is_stored(&part.name));
            while !missing.is_empty() {
                let parts: Vec<_> = missing.drain(..batch_length(&missing, window.batch_bytes())).collect();
                let window_bytes = window.measured(clock.elapsed(), disk.source().received_bytes());
                let is_moving = want(disk, &parts, window_bytes, is_over);
                if is_over.load(Ordering::Relaxed) {
                    return Ok(look(disk)?.0);
                }
                if !is_moving {
                    break 'round;
                }
                sent_bytes = sent_bytes.saturating_add(parts.iter().map(|part| u64::from(part.bytes)).sum());
                pause(sent_bytes, bytes_per_second, clock, is_over);
            }
        }
        settle(disk, is_over);
        let (there, missing) = look(disk)?;
        let Some(missing) = missing else { return Ok(there) };
        if is_over.load(Ordering::Relaxed) || removed_count() != removed_before {
            return Ok(there);
        }
        // The failures of blocks that no reader waits for were dropped. So one of the missing
        // blocks is read: that has the patience of a reader, and an error with a reason.
        match disk.read_part(&missing) {
            Ok(()) => settle(disk, is_over),
            Err(FetchError::Ended { .. }) => return Ok(there),
            Err(reason) => return Err(FillError::Block { there, reason }),
        }
        if !disk.source().is_stored(&missing.name) {
            // The cache does not keep it.
            return Ok(there);
        }
    }
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

/// Requests blocks, and waits until the window has room again. Returns false if nothing has come
/// for [`ROUND_PAUSE`].
fn want(disk: &PublishedDisk, parts: &[ObjectPart], window_bytes: u64, is_over: &AtomicBool) -> bool {
    let Some(fetcher) = disk.source().fetcher() else { return false };
    fetcher.want(parts, disk.content_bytes_max(), Urgency::Fill);
    let (mut clock, mut received_bytes) = (Stopwatch::start(), disk.source().received_bytes());
    while !is_over.load(Ordering::Relaxed) && clock.elapsed() < ROUND_PAUSE {
        if fetcher.wait_below(window_bytes, Urgency::Fill, LOOK_EVERY) {
            return true;
        }
        let now = disk.source().received_bytes();
        if now != received_bytes {
            (clock, received_bytes) = (Stopwatch::start(), now);
        }
    }
    false
}

/// Waits until the blocks that are on their way are in the cache, for at most [`ROUND_PAUSE`].
fn settle(disk: &PublishedDisk, is_over: &AtomicBool) {
    let clock = Stopwatch::start();
    while !is_over.load(Ordering::Relaxed) && clock.elapsed() < ROUND_PAUSE {
        if disk.source().wait_idle(LOOK_EVERY) {
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

/// Counts the blocks of the disk, and returns the first one that is not in the cache.
fn look(disk: &PublishedDisk) -> Result<(FillReport, Option<ObjectPart>), ReadDiskError> {
    let mut names = std::collections::BTreeSet::new();
    let (mut report, mut missing) = (FillReport::default(), None);
    for parts in disk.stored_parts() {
        for part in parts? {
            if names.insert(part.name) {
                report.blocks = report.blocks.saturating_add(1);
                report.bytes = report.bytes.saturating_add(u64::from(part.bytes));
                match disk.source().is_stored(&part.name) {
                    true => report.blocks_there = report.blocks_there.saturating_add(1),
                    false => drop(missing.get_or_insert(part)),
                }
            }
        }
    }
    Ok((report, missing))
}

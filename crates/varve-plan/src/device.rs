//! Measures a device: reads and writes of several sizes, sequential and random, one at a time and
//! many at once, past the page cache. The thesis behind memventi measures disks in the same way,
//! with a program named ptio (Lukkien 2008, section 4.2).
#![expect(clippy::disallowed_methods, reason = "a device is measured with threads, by the clock")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use varve_world::{PAGE_BYTES, PageBuffer, open_uncached};

/// The size of the largest transfer, and of those that fill the file.
const LARGE_BYTES: usize = 1 << 20;
/// The most syncs that are measured.
const SYNCS_MAX: u32 = 200;
/// The longest pause before accesses, and their longest duration.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSED_ACCESSES_MAX: usize = 1000;
/// Less than this may be chance on a device without a budget.
const SAVED_SECONDS_MIN: f64 = 0.02;
/// The measurements: action, order, bytes of a transfer, and concurrent transfers.
const ROWS: [(TransferAction, TransferOrder, usize, u32); 18] = [
    (TransferAction::Write, TransferOrder::Sequential, LARGE_BYTES, 1),
    (TransferAction::Write, TransferOrder::Sequential, 128 << 10, 1),
    (TransferAction::Read, TransferOrder::Sequential, LARGE_BYTES, 1),
    (TransferAction::Read, TransferOrder::Sequential, LARGE_BYTES, 4),
    (TransferAction::Read, TransferOrder::Sequential, 512 << 10, 1),
    (TransferAction::Read, TransferOrder::Sequential, 256 << 10, 1),
    (TransferAction::Read, TransferOrder::Sequential, 128 << 10, 1),
    (TransferAction::Read, TransferOrder::Random, 4 << 10, 1),
    (TransferAction::Read, TransferOrder::Random, 4 << 10, 4),
    (TransferAction::Read, TransferOrder::Random, 4 << 10, 32),
    (TransferAction::Read, TransferOrder::Random, 16 << 10, 1),
    (TransferAction::Read, TransferOrder::Random, 16 << 10, 32),
    (TransferAction::Read, TransferOrder::Random, 128 << 10, 1),
    (TransferAction::Read, TransferOrder::Random, 128 << 10, 32),
    (TransferAction::Read, TransferOrder::Random, 256 << 10, 1),
    (TransferAction::Read, TransferOrder::Random, 512 << 10, 1),
    (TransferAction::Write, TransferOrder::Random, 4 << 10, 1),
    (TransferAction::Write, TransferOrder::Random, 4 << 10, 32),
];

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransferAction {
    Read,
    Write,
}

/// The order of the transfers in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransferOrder {
    Sequential,
    Random,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    action: TransferAction,
    order: TransferOrder,
    /// Bytes of each transfer.
    pub bytes: usize,
    /// Concurrent transfers.
    pub depth: u32,
    /// Transfers per second.
    pub per_second: f64,
}

impl DeviceRow {
    /// Returns the rate in bytes per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a transfer is small")]
    pub fn rate(&self) -> f64 {
        self.per_second * self.bytes as f64
    }

    /// Returns the name for output: `random read`.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match (self.order, self.action) {
            (TransferOrder::Sequential, TransferAction::Read) => "sequential read",
            (TransferOrder::Sequential, TransferAction::Write) => "sequential write",
            (TransferOrder::Random, TransferAction::Read) => "random read",
            (TransferOrder::Random, TransferAction::Write) => "random write",
        }
    }
}

/// The measurements of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceFigures {
    /// One for each kind of transfer.
    pub rows: Vec<DeviceRow>,
    /// True if all transfers bypassed the page cache.
    pub is_direct: bool,
    /// Seconds in which a page is appended to a file and synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_seconds: Option<f64>,
    /// `None` for a device that is as fast as it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<DeviceBudget>,
}

/// The budget of a device that a system holds to a number of accesses a second. After a pause, some
/// accesses pass at once, as fast as the device itself, and the later ones wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceBudget {
    /// The part of a pause, in seconds, whose accesses may be made up for.
    pub saved_seconds: f64,
    /// Seconds of an access that does not wait.
    pub access_seconds: f64,
    /// False if reads and writes have budgets of their own.
    pub is_shared: bool,
}

impl DeviceFigures {
    /// Returns the figures of a device of which only three numbers are known: the sequential read
    /// rate and write rate in bytes per second, and the random reads per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a transfer is small")]
    pub fn assumed(read_rate: f64, write_rate: f64, places_per_second: f64) -> Self {
        let row = |action, order, bytes, per_second| DeviceRow { action, order, bytes, depth: 1, per_second };
        let large = LARGE_BYTES as f64;
        let rows = vec![
            row(TransferAction::Read, TransferOrder::Sequential, LARGE_BYTES, read_rate / large),
            row(TransferAction::Write, TransferOrder::Sequential, LARGE_BYTES, write_rate / large),
            row(TransferAction::Read, TransferOrder::Random, PAGE_BYTES, places_per_second),
        ];
        Self { rows, is_direct: true, sync_seconds: None, budget: None }
    }

    fn best(&self, action: TransferAction, order: TransferOrder) -> f64 {
        let fits = |row: &&DeviceRow| row.action == action && row.order == order;
        self.rows.iter().filter(fits).map(DeviceRow::rate).fold(0.0, f64::max)
    }

    /// Returns the sequential read rate in bytes per second.
    #[must_use]
    pub fn read_rate(&self) -> f64 {
        self.best(TransferAction::Read, TransferOrder::Sequential)
    }

    /// Returns the sequential write rate in bytes per second.
    #[must_use]
    pub fn write_rate(&self) -> f64 {
        self.best(TransferAction::Write, TransferOrder::Sequential)
    }

    /// Returns the number of small random reads per second, one at a time.
    #[must_use]
    pub fn places_per_second(&self) -> f64 {
        let fits = |row: &&DeviceRow| {
            row.action == TransferAction::Read
                && row.order == TransferOrder::Random
                && row.bytes <= PAGE_BYTES
                && row.depth == 1
        };
        self.rows.iter().filter(fits).map(|row| row.per_second).fold(0.0, f64::max)
    }

    /// Reports whether the figures suffice for a plan: a file of figures may contain anything.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let is_good = |rate: f64| rate.is_finite() && rate > 0.0;
        [self.read_rate(), self.write_rate(), self.places_per_second()].into_iter().all(is_good)
    }
}

/// The reason why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureDeviceError {
    /// The file could not be created or filled.
    #[error("the test file could not be written")]
    Fill(#[source] io::Error),
    #[error("the test file could not be extended and synced")]
    Sync(#[source] io::Error),
    #[error("a {what} of {bytes} bytes at {offset} failed")]
    Transfer {
        what: &'static str,
        bytes: usize,
        /// Offset in the file.
        offset: u64,
        source: io::Error,
    },
}

/// Measures the device that holds `file`. The file is created, filled with `file_bytes` bytes, and
/// left for the caller to remove. Each kind of transfer runs for `time`, or once through the file
/// if that is shorter. `done` receives each result as soon as it is complete.
///
/// # Errors
/// [`MeasureDeviceError`].
pub fn measure_device(
    file: &Path,
    file_bytes: u64,
    time: Duration,
    done: &mut dyn FnMut(&DeviceRow),
) -> Result<DeviceFigures, MeasureDeviceError> {
    let (handle, is_direct) = open(file).map_err(MeasureDeviceError::Fill)?;
    let file_bytes = (file_bytes / LARGE_BYTES as u64).max(1) * LARGE_BYTES as u64;
    let mut rows = Vec::new();
    for (action, order, bytes, depth) in ROWS {
        let row = Transfers { handle: &handle, file_bytes, action, order, bytes, depth };
        // The first row fills the whole file, however long that takes.
        let time = if rows.is_empty() { Duration::MAX } else { time };
        if !is_direct && action == TransferAction::Read {
            forget(&handle);
        }
        let row = row.measure(time)?;
        done(&row);
        rows.push(row);
    }
    let sync_seconds = Some(seconds_of_sync(&handle, time)?);
    let budget = if is_direct { budget(&handle, file_bytes, &rows, time)? } else { None };
    Ok(DeviceFigures { rows, is_direct, sync_seconds, budget })
}

/// Opens a file past the page cache if the file system supports that, else through it.
fn open(file: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    match open_uncached(file, &options)? {
        Some(handle) => Ok((handle, true)),
        None => options.open(file).map(|handle| (handle, false)),
    }
}

fn forget(handle: &File) {
    // If the system keeps its page cache, the figures include the cache, as later use will.
    let _ = handle.sync_data();
    let _ = rustix::fs::fadvise(handle, 0, None, rustix::fs::Advice::DontNeed);
}

/// Returns the seconds in which a page is appended and synced, on average. The file is as long
/// afterwards as before.
fn seconds_of_sync(handle: &File, time: Duration) -> Result<f64, MeasureDeviceError> {
    let failed = MeasureDeviceError::Sync;
    let length = handle.metadata().map_err(failed)?.len();
    let mut page = PageBuffer::zeroed(PAGE_BYTES);
    fill(&mut page, length);
    let started = Instant::now();
    let mut count = 0;
    while count == 0 || (started.elapsed() < time && count < SYNCS_MAX) {
        let appended = handle.write_all_at(&page, length + u64::from(count) * PAGE_BYTES as u64);
        appended.and_then(|()| handle.sync_data()).map_err(failed)?;
        count += 1;
    }
    let seconds = started.elapsed().as_secs_f64() / f64::from(count);
    handle.set_len(length).and_then(|()| handle.sync_data()).map_err(failed)?;
    Ok(seconds)
}

/// Finds out whether accesses after a pause are faster than a row of them.
fn budget(
    handle: &File,
    file_bytes: u64,
    rows: &[DeviceRow],
    time: Duration,
) -> Result<Option<DeviceBudget>, MeasureDeviceError> {
    let pace = |action| {
        let fits = |row: &&DeviceRow| {
            (row.action, row.order, row.bytes, row.depth) == (action, TransferOrder::Random, PAGE_BYTES, 1)
        };
        rows.iter().find(fits).map_or(0.0, |row| 1.0 / row.per_second.max(1e-9))
    };
    let (read, write) = (pace(TransferAction::Read), pace(TransferAction::Write));
    let alternate = [TransferAction::Read, TransferAction::Write];
    std::thread::sleep(time.min(PAUSE_MAX));
    let ends = ends_of_pages(handle, file_bytes, &alternate[..1], time.min(PAUSE_MAX))?;
    let Some((saved_seconds, access_seconds)) = made_up(&ends) else { return Ok(None) };
    let ends = ends_of_pages(handle, file_bytes, &alternate, time)?;
    let pairs = f64::from(u32::try_from(ends.len() / 2).unwrap_or(u32::MAX));
    let pair = (ends.last().copied().unwrap_or(0.0) + saved_seconds) / pairs.max(1.0);
    // One after the other they take the sum of both; side by side, the longer of both.
    let is_shared = pair > (read + write) * 0.75;
    Ok(Some(DeviceBudget { saved_seconds, access_seconds, is_shared }))
}

/// Performs accesses of a page at random places, with `actions` in turns. Returns the seconds at
/// which they ended.
fn ends_of_pages(
    handle: &File,
    file_bytes: u64,
    actions: &[TransferAction],
    time: Duration,
) -> Result<Vec<f64>, MeasureDeviceError> {
    let mut page = PageBuffer::zeroed(PAGE_BYTES);
    let places = file_bytes / PAGE_BYTES as u64;
    let started = Instant::now();
    let mut ends = Vec::new();
    for (number, action) in (0_u64..).zip(actions.iter().cycle()) {
        if ends.len() >= PAUSED_ACCESSES_MAX || started.elapsed() >= time {
            break;
        }
        // The places differ from those of the rows.
        let offset = spread(!number) % places * PAGE_BYTES as u64;
        transfer(handle, *action, &mut page, offset)?;
        ends.push(started.elapsed().as_secs_f64());
    }
    Ok(ends)
}

/// Returns the seconds for whose accesses a pause makes up, and those of such an access; `None` if
/// the accesses after a pause are not much faster than all of them.
fn made_up(ends: &[f64]) -> Option<(f64, f64)> {
    let pace = ends.last()? / f64::from(u32::try_from(ends.len()).unwrap_or(u32::MAX));
    let fast = (1_u32..).zip(ends).map(|(count, end)| (f64::from(count), *end));
    let fast = fast.filter(|(count, end)| end / count < pace / 2.0);
    let ahead = |(count, end): (f64, f64)| (count * pace - end, count, end);
    let best = fast.map(ahead).max_by(|one, other| one.0.total_cmp(&other.0));
    let (ahead, count, end) = best?;
    (ahead >= SAVED_SECONDS_MIN).then_some((ahead + end, end / count))
}

struct Transfers<'a> {
    handle: &'a File,
    file_bytes: u64,
    action: TransferAction,
    order: TransferOrder,
    bytes: usize,
    depth: u32,
}

impl Transfers<'_> {
    fn measure(&self, time: Duration) -> Result<DeviceRow, MeasureDeviceError> {
        let next = AtomicU64::new(0);
        let started = Instant::now();
        let outcome = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.depth).map(|_| scope.spawn(|| self.work(&next, started, time))).collect();
            let counts = workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0)));
            counts.sum::<Result<u64, MeasureDeviceError>>()
        });
        let count = outcome?;
        if self.action == TransferAction::Write {
            self.handle.sync_data().map_err(MeasureDeviceError::Fill)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
        let per_second = count as f64 / started.elapsed().as_secs_f64().max(1e-9);
        let Self { action, order, bytes, depth, .. } = *self;
        Ok(DeviceRow { action, order, bytes, depth, per_second })
    }

    /// Runs transfers until the time is over or the file has been covered. Returns their number.
    fn work(&self, next: &AtomicU64, started: Instant, time: Duration) -> Result<u64, MeasureDeviceError> {
        let mut buffer = PageBuffer::zeroed(self.bytes);
        let places = self.file_bytes / self.bytes as u64;
        let mut count = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            // On a busy machine all threads may begin late. A row has one transfer at least.
            if number >= places || (number > 0 && started.elapsed() >= time) {
                return Ok(count);
            }
            let place = match self.order {
                TransferOrder::Sequential => number,
                TransferOrder::Random => spread(number) % places,
            };
            let offset = place * self.bytes as u64;
            transfer(self.handle, self.action, &mut buffer, offset)?;
            count += 1;
        }
    }
}

fn transfer(
    handle: &File,
    action: TransferAction,
    buffer: &mut PageBuffer,
    offset: u64,
) -> Result<(), MeasureDeviceError> {
    let bytes = buffer.len();
    let done = match action {
        TransferAction::Read => handle.read_exact_at(buffer, offset),
        TransferAction::Write => {
            fill(buffer, spread(offset));
            handle.write_all_at(buffer, offset)
        }
    };
    let what = if action == TransferAction::Read { "read" } else { "write" };
    done.map_err(|source| MeasureDeviceError::Transfer { what, bytes, offset, source })
}

/// Fills a buffer with bytes that no device can compress, at less cost than any device writes them.
fn fill(buffer: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

fn spread(number: u64) -> u64 {
    let mixed = (number.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_measured_in_every_way() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("measured");
        let mut seen = 0;
        let figures = measure_device(&file, 3 << 20, Duration::from_millis(20), &mut |_| seen += 1).unwrap();
        assert_eq!(seen, ROWS.len());
        assert_eq!(figures.rows.len(), ROWS.len());
        assert!(figures.is_usable(), "{figures:?}");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 3 << 20);
        let text = serde_json::to_string(&figures).unwrap();
        let read: DeviceFigures = serde_json::from_str(&text).unwrap();
        assert_eq!(read.rows.len(), figures.rows.len());
        assert!(read.is_usable() && read.sync_seconds.is_some_and(|seconds| seconds > 0.0));
    }

    /// The ends are those of a disk that the kernel holds to 100 accesses a second, in slices of
    /// 0.1 s.
    #[test]
    fn a_budget_shows_in_the_accesses_after_a_pause() {
        let end = |number: u32| f64::from(number / 10) * 0.1 + f64::from(number % 10 + 1) * 0.002;
        let ends: Vec<f64> = (0..100).map(end).collect();
        let (saved, access) = made_up(&ends).unwrap();
        assert!((0.09..0.11).contains(&saved) && (access - 0.002).abs() < 1e-9, "{saved} {access}");
        let even: Vec<f64> = (1..50).map(|number| f64::from(number) * 0.009).collect();
        assert_eq!(made_up(&even), None);
        assert_eq!(made_up(&[]), None);
    }

    #[test]
    fn figures_that_make_no_sense_are_not_used() {
        assert!(DeviceFigures::assumed(1e8, 1e8, 100.0).is_usable());
        for (read, write, places) in
            [(0.0, 1.0, 1.0), (1.0, f64::NAN, 1.0), (1.0, 1.0, -1.0), (1.0, f64::INFINITY, 1.0)]
        {
            assert!(!DeviceFigures::assumed(read, write, places).is_usable(), "{read} {write} {places}");
        }
        assert!(!DeviceFigures { rows: Vec::new(), ..DeviceFigures::assumed(1e8, 1e8, 100.0) }.is_usable());
    }
}

//! What a device does, measured: reads and writes of several sizes, one after the other and here and there, one at a time and many, past
//! the system's memory of files. The thesis behind memventi measures disks in this way, with a program called ptio (Lukkien 2008,
//! section 4.2).
#![expect(clippy::disallowed_methods, reason = "a device is measured with threads, by the clock")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use varve_world::{PAGE_BYTES, PageBuffer, open_uncached};

/// How the file is filled, and how large the largest transfer is.
const LARGE_BYTES: usize = 1 << 20;
/// What is measured: read or write, in order or not, bytes, at a time.
const ROWS: [(Action, Order, usize, u32); 13] = [
    (Action::Write, Order::Sequential, LARGE_BYTES, 1),
    (Action::Read, Order::Sequential, LARGE_BYTES, 1),
    (Action::Read, Order::Sequential, LARGE_BYTES, 4),
    (Action::Read, Order::Sequential, 128 << 10, 1),
    (Action::Read, Order::Random, 4 << 10, 1),
    (Action::Read, Order::Random, 4 << 10, 4),
    (Action::Read, Order::Random, 4 << 10, 32),
    (Action::Read, Order::Random, 16 << 10, 1),
    (Action::Read, Order::Random, 16 << 10, 32),
    (Action::Read, Order::Random, 128 << 10, 1),
    (Action::Read, Order::Random, 128 << 10, 32),
    (Action::Write, Order::Random, 4 << 10, 1),
    (Action::Write, Order::Random, 4 << 10, 32),
];

/// Whether bytes come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Read,
    Write,
}

/// Where the next transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Sequential,
    Random,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    action: Action,
    order: Order,
    /// Bytes of each transfer.
    pub bytes: usize,
    /// Transfers at a time.
    pub depth: u32,
    /// Transfers a second.
    pub per_second: f64,
}

impl DeviceRow {
    /// Bytes a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a transfer is small")]
    pub fn rate(&self) -> f64 {
        self.per_second * self.bytes as f64
    }

    /// What people call it: `random read`.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match (self.order, self.action) {
            (Order::Sequential, Action::Read) => "sequential read",
            (Order::Sequential, Action::Write) => "sequential write",
            (Order::Random, Action::Read) => "random read",
            (Order::Random, Action::Write) => "random write",
        }
    }
}

/// All measurements of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceFigures {
    /// One a kind of transfer.
    pub rows: Vec<DeviceRow>,
    /// Whether the system's memory of files was out of the way.
    pub is_direct: bool,
}

impl DeviceFigures {
    /// Figures of a device of which no more is known than how fast it reads and writes in a row, in bytes a second, and how many places it finds in
    /// a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a transfer is small")]
    pub fn assumed(read_rate: f64, write_rate: f64, places_per_second: f64) -> Self {
        let row = |action, order, bytes, per_second| DeviceRow { action, order, bytes, depth: 1, per_second };
        let large = LARGE_BYTES as f64;
        let rows = vec![
            row(Action::Read, Order::Sequential, LARGE_BYTES, read_rate / large),
            row(Action::Write, Order::Sequential, LARGE_BYTES, write_rate / large),
            row(Action::Read, Order::Random, PAGE_BYTES, places_per_second),
        ];
        Self { rows, is_direct: true }
    }

    fn best(&self, action: Action, order: Order) -> f64 {
        let fits = |row: &&DeviceRow| row.action == action && row.order == order;
        self.rows.iter().filter(fits).map(DeviceRow::rate).fold(0.0, f64::max)
    }

    /// Bytes a second, read in a row.
    #[must_use]
    pub fn read_rate(&self) -> f64 {
        self.best(Action::Read, Order::Sequential)
    }

    /// Bytes a second, written in a row.
    #[must_use]
    pub fn write_rate(&self) -> f64 {
        self.best(Action::Write, Order::Sequential)
    }

    /// Small reads here and there, a second, one at a time.
    #[must_use]
    pub fn places_per_second(&self) -> f64 {
        let fits = |row: &&DeviceRow| {
            row.action == Action::Read
                && row.order == Order::Random
                && row.bytes <= PAGE_BYTES
                && row.depth == 1
        };
        self.rows.iter().filter(fits).map(|row| row.per_second).fold(0.0, f64::max)
    }

    /// Whether a plan can be made with them: figures from a file may be anything.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let is_good = |rate: f64| rate.is_finite() && rate > 0.0;
        [self.read_rate(), self.write_rate(), self.places_per_second()].into_iter().all(is_good)
    }
}

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureDeviceError {
    /// No file could be made in the folder, or it could not be filled.
    #[error("a file to measure with could not be written")]
    Fill(#[source] io::Error),
    /// A transfer failed.
    #[error("a {what} of {bytes} bytes at {offset} failed")]
    Transfer {
        /// Which.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// Where in the file.
        offset: u64,
        /// What went wrong below.
        source: io::Error,
    },
}

/// Measures the device on which `file` is: it is made, filled with `file_bytes` bytes, and left there for the caller to remove. Each
/// kind of transfer takes `time`, or goes over the file once. `done` is told each result when it is there.
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
        // The first row fills the file, all of it.
        let time = if rows.is_empty() { Duration::MAX } else { time };
        if !is_direct && action == Action::Read {
            forget(&handle);
        }
        let row = row.measure(time)?;
        done(&row);
        rows.push(row);
    }
    Ok(DeviceFigures { rows, is_direct })
}

/// Opens past the system's memory of files where the file system has that; else as it is.
fn open(file: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    match open_uncached(file, &options)? {
        Some(handle) => Ok((handle, true)),
        None => options.open(file).map(|handle| (handle, false)),
    }
}

fn forget(handle: &File) {
    // A system that does not forget is measured with its memory, as it will be used.
    let _ = handle.sync_data();
    let _ = rustix::fs::fadvise(handle, 0, None, rustix::fs::Advice::DontNeed);
}

struct Transfers<'a> {
    handle: &'a File,
    file_bytes: u64,
    action: Action,
    order: Order,
    bytes: usize,
    depth: u32,
}

impl Transfers<'_> {
    fn measure(&self, time: Duration) -> Result<DeviceRow, MeasureDeviceError> {
        let next = AtomicU64::new(0);
        let started = Instant::now();
        let outcome = std::thread::scope(|scope| {
            let hands: Vec<_> =
                (0..self.depth).map(|_| scope.spawn(|| self.work(&next, started, time))).collect();
            let counts = hands.into_iter().map(|hand| hand.join().unwrap_or(Ok(0)));
            counts.sum::<Result<u64, MeasureDeviceError>>()
        });
        let count = outcome?;
        if self.action == Action::Write {
            self.handle.sync_data().map_err(MeasureDeviceError::Fill)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
        let per_second = count as f64 / started.elapsed().as_secs_f64().max(1e-9);
        let Self { action, order, bytes, depth, .. } = *self;
        Ok(DeviceRow { action, order, bytes, depth, per_second })
    }

    /// Transfers until the time is over or the file is through; returns how many.
    fn work(&self, next: &AtomicU64, started: Instant, time: Duration) -> Result<u64, MeasureDeviceError> {
        let mut buffer = PageBuffer::zeroed(self.bytes);
        let places = self.file_bytes / self.bytes as u64;
        let mut count = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= places || started.elapsed() >= time {
                return Ok(count);
            }
            let place = match self.order {
                Order::Sequential => number,
                Order::Random => spread(number) % places,
            };
            let offset = place * self.bytes as u64;
            let done = match self.action {
                Action::Read => self.handle.read_exact_at(&mut buffer, offset),
                Action::Write => {
                    fill(&mut buffer, spread(offset));
                    self.handle.write_all_at(&buffer, offset)
                }
            };
            done.map_err(|source| MeasureDeviceError::Transfer {
                what: if self.action == Action::Read { "read" } else { "write" },
                bytes: self.bytes,
                offset,
                source,
            })?;
            count += 1;
        }
    }
}

/// Bytes that no device makes smaller, cheaper than any device writes them.
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
        assert!(read.is_usable());
    }

    #[test]
    fn figures_that_make_no_sense_are_not_used() {
        assert!(DeviceFigures::assumed(1e8, 1e8, 100.0).is_usable());
        for (read, write, places) in
            [(0.0, 1.0, 1.0), (1.0, f64::NAN, 1.0), (1.0, 1.0, -1.0), (1.0, f64::INFINITY, 1.0)]
        {
            assert!(!DeviceFigures::assumed(read, write, places).is_usable(), "{read} {write} {places}");
        }
        assert!(!DeviceFigures { rows: Vec::new(), is_direct: true }.is_usable());
    }
}

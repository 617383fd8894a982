//! Progress, problems and cancellation of a long operation. Nothing is printed.

use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_world::StopSignal;

/// Counters that the worker threads increase and a display reads. The totals are 0 until they are
/// known.
#[derive(Debug, Default)]
pub struct Progress {
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    bytes_read: AtomicU64,
    files_total: AtomicU64,
    files_done: AtomicU64,
    problem_count: AtomicU64,
    stop: StopSignal,
    current: Mutex<Vec<u8>>,
}

/// The state of an operation at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// Bytes to process; 0 if unknown.
    pub bytes_total: u64,
    /// Bytes processed, including those of unchanged files.
    pub bytes_done: u64,
    /// Bytes read from the source or from the store.
    pub bytes_read: u64,
    /// Files to process; 0 if unknown.
    pub files_total: u64,
    /// Files, folders and other nodes processed.
    pub files_done: u64,
    pub problem_count: u64,
    /// Approximately the path that is being processed.
    pub current: PathBuf,
}

impl Progress {
    /// A progress with all counters at 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A progress that this signal cancels.
    #[must_use]
    pub fn until(stop: StopSignal) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Sets the totals.
    pub fn set_total(&self, files_total: u64, bytes_total: u64) {
        self.files_total.store(files_total, Ordering::Relaxed);
        self.bytes_total.store(bytes_total, Ordering::Relaxed);
    }

    /// Adds bytes that were processed.
    pub fn add_bytes_done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that were read.
    pub(crate) fn add_bytes_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds files, folders and other nodes that were processed.
    pub fn add_files_done(&self, files: u64) {
        self.files_done.fetch_add(files, Ordering::Relaxed);
    }

    /// Adds one problem.
    pub(crate) fn add_problem(&self) {
        self.problem_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the path that is being processed.
    pub fn set_current(&self, path: &Path) {
        let mut current = self.current.lock();
        current.clear();
        current.extend_from_slice(path.as_os_str().as_bytes());
    }

    /// Requests that the operation end soon, with an error that reports the cancellation. May be
    /// called from any thread at any time.
    pub fn cancel(&self) {
        self.stop.set();
    }

    /// Returns whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_set()
    }

    /// The state of the operation now.
    #[must_use]
    pub fn snapshot(&self) -> ProgressSnapshot {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProgressSnapshot {
            bytes_total: value(&self.bytes_total),
            bytes_done: value(&self.bytes_done),
            bytes_read: value(&self.bytes_read),
            files_total: value(&self.files_total),
            files_done: value(&self.files_done),
            problem_count: value(&self.problem_count),
            current: PathBuf::from(std::ffi::OsStr::from_bytes(&self.current.lock())),
        }
    }

    /// Bytes processed.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }
}

/// A problem that did not stop an operation, but left its result incomplete.
#[derive(Debug)]
pub struct Problem {
    /// The file or folder, from the root of the snapshot.
    pub path: PathBuf,
    pub error: Box<dyn Error + Send + Sync>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

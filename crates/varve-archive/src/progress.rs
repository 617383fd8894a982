//! How far a long operation is, what went wrong on its way, and how to end it early. Nothing is printed.

use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counted up by whoever works, and looked at by whoever waits. The totals are 0 as long as they are not known.
#[derive(Debug, Default)]
pub struct Progress {
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    bytes_read: AtomicU64,
    files_total: AtomicU64,
    files_done: AtomicU64,
    problem_count: AtomicU64,
    is_cancelled: AtomicBool,
    current: Mutex<Vec<u8>>,
}

/// Where an operation stood at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// How many bytes there are to do; 0: not known.
    pub bytes_total: u64,
    /// How many bytes are done, those of unchanged files too.
    pub bytes_done: u64,
    /// How many bytes were read, from the source or from the store.
    pub bytes_read: u64,
    /// How many files there are to do; 0: not known.
    pub files_total: u64,
    /// How many files, folders and other nodes are done.
    pub files_done: u64,
    /// How many problems were met.
    pub problem_count: u64,
    /// What is being worked on, more or less.
    pub current: PathBuf,
}

impl Progress {
    /// At the beginning.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how much there is to do.
    pub fn set_total(&self, files_total: u64, bytes_total: u64) {
        self.files_total.store(files_total, Ordering::Relaxed);
        self.bytes_total.store(bytes_total, Ordering::Relaxed);
    }

    /// So many more bytes are done.
    pub fn add_bytes_done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many more bytes were read.
    pub fn add_bytes_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many more files, folders and other nodes are done.
    pub fn add_files_done(&self, files: u64) {
        self.files_done.fetch_add(files, Ordering::Relaxed);
    }

    /// One more problem was met.
    pub fn add_problem(&self) {
        self.problem_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Says what is being worked on.
    pub fn set_current(&self, path: &Path) {
        let mut current = self.current.lock();
        current.clear();
        current.extend_from_slice(path.as_os_str().as_bytes());
    }

    /// Asks the operation to end soon, with an error that says so. May be called from anywhere, at any time.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Where the operation stands.
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

    /// How many bytes are done.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }
}

/// Something that did not stop an operation, but that its result lacks.
#[derive(Debug)]
pub struct Problem {
    /// The file or folder, from the root of the snapshot.
    pub path: PathBuf,
    /// What happened to it.
    pub error: Box<dyn Error + Send + Sync>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

/// The first problems of an operation, and how many there were in all: what to hand to an operation that wants to report.
#[derive(Debug)]
pub struct ProblemList {
    kept_max: usize,
    problems: Mutex<(Vec<Problem>, u64)>,
}

impl ProblemList {
    /// Keeps at most so many.
    #[must_use]
    pub fn new(kept_max: usize) -> Self {
        Self { kept_max, problems: Mutex::new((Vec::new(), 0)) }
    }

    /// Takes one more. Callable from many threads.
    pub fn report(&self, problem: Problem) {
        let mut problems = self.problems.lock();
        problems.1 += 1;
        if problems.0.len() < self.kept_max {
            problems.0.push(problem);
        }
    }

    /// Those that were kept, in the order in which they were met, and how many there were.
    #[must_use]
    pub fn into_problems(self) -> (Vec<Problem>, u64) {
        self.problems.into_inner()
    }
}

//! How much of an unfinished restore is whole, noted from time to time.

use std::path::PathBuf;

use super::steps::comes_after;
use crate::progress::Progress;
use crate::restoring::unfinished_restore::{Noted, Unfinished};

/// After how many files the progress is made durable, however small they are.
const NOTE_FILE_COUNT: u64 = 1 << 19;

/// What has been passed in the order of the walk, and how much of that was noted.
pub(super) struct Noting<'a> {
    unfinished: &'a Unfinished,
    note_bytes: u64,
    /// The last entry that is done, with all before it.
    passed: Option<PathBuf>,
    /// Whether what an earlier run has noted lies further on.
    is_behind: bool,
    count: u64,
    noted_bytes: u64,
    noted_count: u64,
}

impl<'a> Noting<'a> {
    pub(super) fn new(unfinished: &'a Unfinished, note_bytes: u64, progress: &Progress) -> Self {
        let passed = unfinished.noted().after.clone();
        Self {
            unfinished,
            note_bytes,
            is_behind: passed.is_some(),
            passed,
            count: 0,
            noted_bytes: progress.bytes_done(),
            noted_count: 0,
        }
    }

    /// An entry is done, with all before it.
    pub(super) fn pass(&mut self, path: PathBuf) {
        self.count += 1;
        if self.is_behind {
            if self.passed.as_deref().is_some_and(|noted| !comes_after(&path, noted)) {
                return;
            }
            self.is_behind = false;
        }
        self.passed = Some(path);
    }

    /// Whether it is time to note; it is asked once for each time.
    pub(super) fn is_due(&mut self, progress: &Progress) -> bool {
        let bytes = progress.bytes_done();
        let is_due = bytes.saturating_sub(self.noted_bytes) >= self.note_bytes
            || self.count - self.noted_count >= NOTE_FILE_COUNT;
        if is_due {
            (self.noted_bytes, self.noted_count) = (bytes, self.count);
        }
        is_due
    }

    /// Makes durable what is done, and then notes it. Where that fails, what was noted before stays true.
    pub(super) fn note(&self, large: Option<(PathBuf, u64)>) {
        let noted = Noted { after: self.passed.clone(), large, is_placing: false };
        if rustix::fs::syncfs(self.unfinished.folder()).is_ok() {
            let _ = self.unfinished.note(&noted);
        }
    }
}

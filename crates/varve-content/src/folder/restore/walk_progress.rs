//! Records the durable part of an unfinished restore from time to time.

use std::path::PathBuf;

use super::steps::comes_after;
use crate::progress::Progress;
use crate::restoring::unfinished_restore::{CompletedPart, UnfinishedRestore};

/// Progress is recorded after this many files, however small they are.
const NOTE_FILE_COUNT: u64 = 1 << 19;

/// The progress in the order of the walk, and the part of it that is recorded.
pub(super) struct WalkProgressRecorder<'a> {
    unfinished: &'a UnfinishedRestore,
    note_bytes: u64,
    /// The last entry that is done, together with all entries before it.
    passed: Option<PathBuf>,
    /// True while the walk is behind the record of an earlier run.
    is_behind: bool,
    count: u64,
    noted_bytes: u64,
    noted_count: u64,
}

impl<'a> WalkProgressRecorder<'a> {
    pub(super) fn new(unfinished: &'a UnfinishedRestore, note_bytes: u64, progress: &Progress) -> Self {
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

    /// Notes that an entry is done, with all entries before it.
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

    /// Returns whether a record is due. Returns true once for each record.
    pub(super) fn is_due(&mut self, progress: &Progress) -> bool {
        let bytes = progress.bytes_done();
        let is_due = bytes.saturating_sub(self.noted_bytes) >= self.note_bytes
            || self.count - self.noted_count >= NOTE_FILE_COUNT;
        if is_due {
            (self.noted_bytes, self.noted_count) = (bytes, self.count);
        }
        is_due
    }

    /// Makes the finished part durable, and then records it. If that fails, the previous record
    /// stays true.
    pub(super) fn note(&self, large: Option<(PathBuf, u64)>) {
        let noted = CompletedPart { after: self.passed.clone(), large, is_placing: false };
        if rustix::fs::syncfs(self.unfinished.folder()).is_ok() {
            let _ = self.unfinished.note(&noted);
        }
    }
}

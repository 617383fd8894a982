//! The places of the contents of files on a disk. An image that is cut there has the same blocks as
//! the files themselves, wherever they lie.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::bytes::read_at::ReadAt;
use crate::disks::disk::Disk;
use crate::disks::volume::Volume;
use crate::file_systems::file_system::{FileId, FileKind, FileSystem};

/// The most runs of one disk that are remembered: some hundred megabytes of memory. The files of
/// the others are cut as if they were unknown.
const RUN_COUNT_MAX: usize = 8 << 20;
/// The unused end of the last block of a file is shorter than this on every file system.
const SLACK_BYTES_MAX: u64 = 64 << 10;

/// A contiguous part of the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileRun {
    /// The offset on the disk, in bytes.
    pub start: u64,
    /// The end of the content.
    pub content_end: u64,
    /// The end of the last block of the file, whose remainder is seldom anything but zeros.
    pub end: u64,
    /// The start of the run with the bytes of the file just before these; equal to `before_end` if
    /// there are none, or if that is not known.
    pub before_start: u64,
    /// The end of that run.
    pub before_end: u64,
}

impl FileRun {
    fn whole(range: Range<u64>) -> Self {
        let Range { start, end } = range;
        Self { start, content_end: end, end, before_start: 0, before_end: 0 }
    }

    /// Returns the same run after the run before it in the file.
    fn after(self, before: Option<&Self>) -> Self {
        match before {
            Some(before) => Self { before_start: before.start, before_end: before.content_end, ..self },
            None => self,
        }
    }
}

/// The places of the contents of all files of a disk, as far as they are known: in ascending order,
/// and disjoint.
///
/// They are believed only for the choice of cuts. A file system that lies, is damaged or changes
/// costs sharing, and never a byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilePlaces {
    runs: Vec<FileRun>,
}

impl FilePlaces {
    /// Walks all folders of all file systems on a disk, until `is_cancelled` says so. Files that
    /// cannot be read are left out.
    #[must_use]
    pub fn find(disk: Arc<dyn ReadAt>, is_cancelled: &dyn Fn() -> bool) -> Self {
        let size = disk.size();
        let disk = Disk::open(disk);
        let mut runs = Vec::new();
        for volume in disk.volumes() {
            if let Ok(files) = volume.open_file_system() {
                Walk { volume, files: files.as_ref(), runs: &mut runs, is_cancelled }.all();
                // Free blocks keep the content of removed files, which has blocks in the store.
                let free = files.free_places().ok().flatten().unwrap_or_default();
                runs.extend(free.into_iter().flat_map(|place| volume.on_disk(place)).map(FileRun::whole));
            }
        }
        Self::new(runs, size)
    }

    /// Makes places from runs in any order on a disk of `size` bytes. A run that overlaps one
    /// before it, is empty, or ends beyond the disk is left out.
    #[must_use]
    pub fn new(mut runs: Vec<FileRun>, size: u64) -> Self {
        runs.sort_unstable();
        let mut end = 0;
        // Hard links and shared extents name one place several times.
        runs.retain(|run| {
            let is_sound = run.start < run.content_end && run.content_end <= run.end && run.end <= size;
            let is_after = run.before_start <= run.before_end && run.before_end <= size;
            let is_new = is_sound && is_after && run.start >= end;
            end = if is_new { run.end } else { end };
            is_new
        });
        Self { runs }
    }

    /// Returns the first run that ends after an offset.
    #[must_use]
    pub fn next_after(&self, offset: u64) -> Option<&FileRun> {
        self.runs.get(self.runs.partition_point(|run| run.end <= offset))
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }
}

/// A walk over the files of one volume.
struct Walk<'a> {
    volume: &'a Volume,
    files: &'a dyn FileSystem,
    runs: &'a mut Vec<FileRun>,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl Walk<'_> {
    fn all(&mut self) {
        let mut folders = vec![self.files.root()];
        // A damaged file system may lead in circles.
        let mut seen = BTreeSet::from([self.files.root()]);
        while let Some(folder) = folders.pop() {
            if (self.is_cancelled)() {
                return;
            }
            let mut files = Vec::new();
            // The children that were passed before an error are good.
            let _ = self.files.children(folder, 0, &mut |child| {
                match child.kind {
                    FileKind::Folder if seen.insert(child.id) => folders.push(child.id),
                    FileKind::File => files.push(child.id),
                    _ => self.files.forget(child.id),
                }
                if files.len() < RUN_COUNT_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            for file in files {
                self.add(file);
                self.files.forget(file);
            }
            if self.runs.len() >= RUN_COUNT_MAX {
                return;
            }
        }
    }

    fn add(&mut self, file: FileId) {
        let (Ok(status), Ok(Some(places))) = (self.files.status(file), self.files.places(file)) else {
            return;
        };
        let bytes = |range: &Range<u64>| range.end.saturating_sub(range.start);
        let stored: u64 = places.iter().map(bytes).fold(0, u64::saturating_add);
        // A file with holes has less than its size.
        let slack = stored.checked_sub(status.size).filter(|slack| *slack < SLACK_BYTES_MAX);
        let on_disk = |place: Range<u64>| self.volume.on_disk(place);
        let runs = joined(places.into_iter().flat_map(on_disk)).into_iter().map(FileRun::whole);
        let begun = self.runs.len();
        for run in runs {
            // After a hole, a file is cut anew.
            let before = self.runs.get(begun..).and_then(<[_]>::last).filter(|_| slack.is_some());
            let run = run.after(before);
            self.runs.push(run);
        }
        if let Some(last) = self.runs.get_mut(begun..).and_then(<[_]>::last_mut) {
            last.content_end = last.end.saturating_sub(slack.unwrap_or(0)).max(last.start);
        }
    }
}

/// Joins ranges that follow each other without a gap: an extent has a largest length.
fn joined(places: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for place in places {
        match joined.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => joined.push(place),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_named_twice_is_kept_once() {
        let run = |start, end| FileRun::whole(start..end);
        let places = FilePlaces::new(
            vec![run(8, 12), run(0, 4), run(8, 12), run(2, 6), run(12, 20), run(90, 101)],
            100,
        );
        assert_eq!(places.runs, [run(0, 4), run(8, 12), run(12, 20)]);
        assert_eq!(places.next_after(3), Some(&run(0, 4)));
        assert_eq!(places.next_after(4), Some(&run(8, 12)));
        assert_eq!(places.next_after(20), None);
    }

    #[test]
    fn extents_that_follow_each_other_are_one_run() {
        assert_eq!(joined([0..4, 4..8, 16..20, 8..12].into_iter()), [0..8, 16..20, 8..12]);
    }
}

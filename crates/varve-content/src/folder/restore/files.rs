//! Writes files of a destination: the jobs that the tree writer submits.

use std::error::Error;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, fadvise};
use rustix::io::Errno;

use super::super::watch::Watch;
use super::attributes::Attributes;
use super::flag_giver::{self, FlagGiver};
use super::guards::Guards;
use super::move_into_place::{self, MoveIntoPlaceError, ReplacedEntry};
use crate::files::Files;
use crate::reading_content::ReadContentError;
use crate::records::node::Node;
use crate::restoring::damage_list::DamageList;
use crate::restoring::unfinished_restore::WrittenRanges;

/// Larger files are written in parts of this size.
const PART_BYTES: u64 = 16 << 20;
/// Upper bound on the parts of a file. Parts of very large files are larger. A hole costs one step,
/// whatever its length, but each part is a job.
const PART_COUNT_MAX: u64 = 1 << 14;

/// The size of the parts in which a file of this size is written.
pub(super) fn part_bytes(size: u64) -> u64 {
    PART_BYTES.max(size.div_ceil(PART_COUNT_MAX))
}

/// An open folder of the destination.
pub(super) struct TargetFolder {
    pub(super) descriptor: OwnedFd,
    /// The path from the root of the restore.
    pub(super) path: PathBuf,
    /// Shared by all open folders, so that they can be counted.
    pub(super) _token: Arc<()>,
}

/// The way in which a file gets to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlacementMode {
    /// It is created under its final name. The tree is not in use until everything is done.
    Direct,
    /// It exists from an earlier run, with its first bytes.
    GoOn {
        /// The number of these bytes.
        bytes: u64,
    },
    /// It is created beside its place, synced, and renamed.
    Beside(ReplacedEntry),
}

/// A file to create. Its node has the name.
pub(super) struct FileToWrite {
    /// Its number in the sequence of events.
    pub(super) number: u64,
    pub(super) folder: Arc<TargetFolder>,
    pub(super) node: Node,
    pub(super) placing: PlacementMode,
    /// The path from the root of the restore.
    pub(super) path: PathBuf,
}

/// A file that is being written.
struct FileBeingWritten {
    descriptor: OwnedFd,
    /// The partial name until it is complete. `None` if it has its final name.
    partial: Option<Vec<u8>>,
}

/// A file that several jobs write.
pub(super) struct LargeFile {
    file: FileToWrite,
    open: FileBeingWritten,
    bytes_left: AtomicU64,
    has_failed: AtomicBool,
    written: Mutex<WrittenRanges>,
}

impl LargeFile {
    /// The number of bytes that are written from the start without a gap.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written.lock().end()
    }

    /// The offset of the first byte to write.
    pub(super) fn start(&self) -> u64 {
        match self.file.placing {
            PlacementMode::GoOn { bytes } => bytes,
            _ => 0,
        }
    }

    /// The path from the root of the restore.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }
}

/// The files, or the part of a file, that one job writes.
pub(super) enum WriteJob {
    Files(Vec<FileToWrite>),
    Part { file: Arc<LargeFile>, range: Range<u64> },
}

/// A file that is done.
pub(super) struct WrittenFile {
    pub(super) number: u64,
    /// `None` if the file is left out.
    pub(super) bytes: Option<u64>,
    /// True if the file is incomplete or left out.
    pub(super) has_problem: bool,
}

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteFileError {
    /// Its content is unreadable.
    #[error("its content cannot be read; it is left out")]
    Content { source: Box<dyn Error + Send + Sync> },
    /// The system refuses an operation.
    #[error("it cannot be written, and is left out")]
    System { source: io::Error },
    /// It was written, but could not be moved to its place.
    #[error("it cannot be moved to its place, and is left out")]
    Place(#[source] MoveIntoPlaceError),
    /// The whole restore ends.
    #[error("interrupted")]
    Cancelled,
}

/// The report of attributes that could not be set.
#[derive(Debug, thiserror::Error)]
#[error("its owner, permissions, times or attributes are not all restored")]
pub(super) struct AttributesLacking {
    pub(super) source: io::Error,
}

impl From<ReadContentError> for WriteFileError {
    fn from(error: ReadContentError) -> Self {
        match error {
            ReadContentError::Take(source) => Self::System { source },
            error => Self::Content { source: Box::new(error) },
        }
    }
}

impl From<Errno> for WriteFileError {
    fn from(source: Errno) -> Self {
        Self::System { source: source.into() }
    }
}

/// Returns whether an error means that no more can be written at all.
fn ends_everything(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
        || matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NODEV | Errno::STALE))
}

/// Writes the contents of files from the snapshot.
pub(super) struct FileWriter<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) watch: Watch<'a>,
    pub(super) attributes: Attributes,
    pub(super) flags: &'a FlagGiver,
    pub(super) guards: &'a Guards,
    pub(super) damaged: Option<&'a DamageList>,
    /// Set once the disk is full or gone, and the writer has stopped.
    stopped_by: OnceLock<(PathBuf, io::Error)>,
}

impl<'a> FileWriter<'a> {
    pub(super) fn new(
        files: &'a dyn Files,
        watch: Watch<'a>,
        (attributes, flags): (Attributes, &'a FlagGiver),
        guards: &'a Guards,
        damaged: Option<&'a DamageList>,
    ) -> Self {
        Self { files, watch, attributes, flags, guards, damaged, stopped_by: OnceLock::new() }
    }

    /// Returns whether the writer has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.watch.progress.is_cancelled() || self.stopped_by.get().is_some()
    }

    /// The file at which the disk was full or gone, and the system's error.
    pub(super) fn into_stopped_by(self) -> Option<(PathBuf, io::Error)> {
        self.stopped_by.into_inner()
    }

    /// Handles an error of the system for an entry. Returns `None` if the disk is full or gone,
    /// which ends the restore.
    pub(super) fn goes_on_after(&self, path: &Path, error: io::Error) -> Option<io::Error> {
        if !ends_everything(&error) {
            return Some(error);
        }
        let _ = self.stopped_by.set((path.to_path_buf(), error));
        None
    }

    /// Runs one job. The job that writes the last part of a large file returns the file as done.
    pub(super) fn write(&self, job: WriteJob) -> Vec<WrittenFile> {
        match job {
            WriteJob::Files(files) => {
                let nodes: Vec<&Node> = files.iter().map(|file| &file.node).collect();
                let contents = self.files.small_contents(&nodes);
                files.iter().zip(contents).map(|(file, content)| self.write_file(file, content)).collect()
            }
            WriteJob::Part { file, range } => self.write_part(&file, range).into_iter().collect(),
        }
    }

    /// Creates a large file, whose parts can then be written.
    pub(super) fn open_large(&self, file: FileToWrite) -> Result<LargeFile, WrittenFile> {
        let made = open(&file).and_then(|open| {
            rustix::fs::ftruncate(&open.descriptor, file.node.size)?;
            Ok(open)
        });
        match made {
            Ok(open) => {
                let start = match file.placing {
                    PlacementMode::GoOn { bytes } => bytes.min(file.node.size),
                    _ => 0,
                };
                self.watch.progress.add_bytes_done(start);
                Ok(LargeFile {
                    bytes_left: AtomicU64::new(file.node.size - start),
                    has_failed: AtomicBool::new(false),
                    written: Mutex::new(WrittenRanges::up_to(start)),
                    file,
                    open,
                })
            }
            Err(error) => Err(self.leave_out(&file, None, error)),
        }
    }

    /// Completes a large file whose parts were all written by earlier runs.
    pub(super) fn end_large(&self, file: &LargeFile) -> WrittenFile {
        self.complete(&file.file, &file.open)
    }

    fn write_file(
        &self,
        file: &FileToWrite,
        content: Option<Result<Bytes, ReadContentError>>,
    ) -> WrittenFile {
        if self.is_stopped() {
            return WrittenFile { number: file.number, bytes: None, has_problem: true };
        }
        let size = file.node.size;
        let open = match open(file) {
            Ok(open) => open,
            Err(error) => return self.leave_out(file, None, error),
        };
        let fill = || -> Result<(), WriteFileError> {
            let written_bytes = match content {
                Some(Ok(bytes)) => {
                    write_full(&open.descriptor, &bytes, 0)?;
                    self.watch.progress.add_bytes_done(size);
                    Some(bytes.len() as u64)
                }
                Some(Err(damage)) => {
                    let Some(damaged) = self.damaged else { return Err(damage.into()) };
                    damaged.add(&file.path, 0..size);
                    Some(0)
                }
                None => None,
            };
            if written_bytes.is_none_or(|written| written < size) {
                rustix::fs::ftruncate(&open.descriptor, size)?;
            }
            match written_bytes {
                None if size > 0 => self.write_range(&open.descriptor, file, 0..size),
                _ => Ok(()),
            }
        };
        match fill() {
            Ok(()) => self.complete(file, &open),
            Err(error) => self.leave_out(file, Some(&open), error),
        }
    }

    fn write_part(&self, file: &LargeFile, range: Range<u64>) -> Option<WrittenFile> {
        let part_bytes = range.end - range.start;
        if !file.has_failed.load(Ordering::Relaxed) {
            match self.write_range(&file.open.descriptor, &file.file, range.clone()) {
                Ok(()) => {
                    start_writeback(&file.open.descriptor, &range);
                    // A damaged range stays unrecorded, so that the next run finds and reports its
                    // hole again.
                    if !self.is_damaged(&file.file, &range) {
                        file.written.lock().add(range);
                    }
                }
                Err(error) => {
                    if !file.has_failed.swap(true, Ordering::Relaxed) {
                        self.report_left_out(&file.file, error);
                    }
                }
            }
        }
        if file.bytes_left.fetch_sub(part_bytes, Ordering::AcqRel) > part_bytes {
            return None;
        }
        if file.has_failed.load(Ordering::Relaxed) {
            // If the restore stopped early, the written part helps the next run. Otherwise the file
            // can never become complete.
            if !self.is_stopped() || file.open.partial.is_some() {
                remove(&file.file, &file.open);
            }
            Some(WrittenFile { number: file.file.number, bytes: None, has_problem: true })
        } else {
            Some(self.complete(&file.file, &file.open))
        }
    }

    /// Writes the data of a file in `range`. Holes are skipped.
    fn write_range(
        &self,
        descriptor: &OwnedFd,
        file: &FileToWrite,
        range: Range<u64>,
    ) -> Result<(), WriteFileError> {
        let range_bytes = range.end - range.start;
        let mut take = |offset: u64, bytes: &[u8]| {
            if self.is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(write_full(descriptor, bytes, offset)?)
        };
        let mut lost = |range: Range<u64>, error| {
            self.damaged.ok_or(error)?.add(&file.path, range);
            Ok(())
        };
        let read = self.files.read_with(&file.node, range, &mut take, &mut lost);
        // An error that tells of a full disk is more useful than the fact that the restore ends.
        if self.is_stopped() && !matches!(&read, Err(ReadContentError::Take(error)) if ends_everything(error))
        {
            return Err(WriteFileError::Cancelled);
        }
        read?;
        self.watch.progress.add_bytes_done(range_bytes);
        Ok(())
    }

    fn is_damaged(&self, file: &FileToWrite, range: &Range<u64>) -> bool {
        self.damaged.is_some_and(|damaged| damaged.touches(&file.path, range))
    }

    fn complete(&self, file: &FileToWrite, open: &FileBeingWritten) -> WrittenFile {
        // A file with holes from damage keeps the time at which it was written, so that no later
        // comparison takes it for equal. It is not locked, so that it can be replaced.
        let has_times = !self.is_damaged(file, &(0..file.node.size));
        let given = self.attributes.give_open(&open.descriptor, &file.node, has_times);
        let has_flags = flag_giver::give_now(&open.descriptor, &file.node);
        let mut has_problem = given.is_err();
        if let Err(source) = given {
            self.watch.report(&file.path, AttributesLacking { source });
        }
        if let (Some(partial), PlacementMode::Beside(over)) = (&open.partial, file.placing) {
            // Sync first: after a power cut, the name must lead to a complete file.
            if let Err(error) = rustix::fs::fsync(&open.descriptor) {
                return self.leave_out(file, Some(open), error.into());
            }
            let (parent, name) = (&file.folder.descriptor, &file.node.name);
            match move_into_place::place(parent, partial, name, over, self.guards, &file.path) {
                Ok(()) => {}
                Err(error @ MoveIntoPlaceError::NotRemoved(_)) => {
                    self.watch.report(&file.path, error);
                    has_problem = true;
                }
                Err(error) => return self.leave_out(file, Some(open), WriteFileError::Place(error)),
            }
        }
        if has_times {
            self.flags.give_rest(&open.descriptor, &file.path, &file.node, has_flags);
        }
        self.watch.progress.add_files_done(1);
        WrittenFile { number: file.number, bytes: Some(file.node.size), has_problem }
    }

    fn leave_out(
        &self,
        file: &FileToWrite,
        open: Option<&FileBeingWritten>,
        error: WriteFileError,
    ) -> WrittenFile {
        // This comes after the report, which may stop the writer. A file that the next run
        // continues is then kept.
        self.report_left_out(file, error);
        let is_kept = self.is_stopped() && matches!(file.placing, PlacementMode::GoOn { .. });
        if let Some(open) = open.filter(|_| !is_kept) {
            remove(file, open);
        }
        WrittenFile { number: file.number, bytes: None, has_problem: true }
    }

    fn report_left_out(&self, file: &FileToWrite, error: WriteFileError) {
        let error = match error {
            WriteFileError::Cancelled => return,
            WriteFileError::System { source } => match self.goes_on_after(&file.path, source) {
                Some(source) => WriteFileError::System { source },
                None => return,
            },
            error => error,
        };
        self.watch.report(&file.path, error);
    }
}

/// Creates a file that only its owner can read, or opens the one from an earlier run.
fn open(file: &FileToWrite) -> Result<FileBeingWritten, WriteFileError> {
    let opened = open_or_make(file)?;
    flag_giver::give_before_content(&opened.descriptor, &file.node);
    Ok(opened)
}

fn open_or_make(file: &FileToWrite) -> Result<FileBeingWritten, WriteFileError> {
    let (folder, name) = (&file.folder.descriptor, file.node.name.as_slice());
    match file.placing {
        PlacementMode::Direct => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let descriptor = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            Ok(FileBeingWritten { descriptor, partial: None })
        }
        PlacementMode::GoOn { bytes } => {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let descriptor = rustix::fs::openat(folder, name, flags, Mode::empty())?;
            // Bytes after the recorded ones may be anything.
            rustix::fs::ftruncate(&descriptor, bytes)?;
            Ok(FileBeingWritten { descriptor, partial: None })
        }
        PlacementMode::Beside(_) => {
            let (descriptor, partial) = move_into_place::create_file(folder, name)?;
            Ok(FileBeingWritten { descriptor, partial: Some(partial) })
        }
    }
}

/// Starts to write a complete part to the disk, without waiting, while the next parts are read.
/// Only the final sync guarantees durability, so a refusal costs no more than time.
fn start_writeback(file: &OwnedFd, part: &Range<u64>) {
    let length = NonZeroU64::new(part.end.saturating_sub(part.start));
    // Linux starts to write dirty pages on this advice, and drops clean pages.
    let _ = fadvise(file, part.start, length, Advice::DontNeed);
}

/// Removes an incomplete file. If that fails, the problem was reported already.
fn remove(file: &FileToWrite, open: &FileBeingWritten) {
    let name = open.partial.as_deref().unwrap_or(&file.node.name);
    let _ = rustix::fs::unlinkat(&file.folder.descriptor, name, AtFlags::empty());
}

fn write_full(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_size_has_few_parts() {
        for size in [0, 1, PART_BYTES, PART_BYTES * PART_COUNT_MAX + 1, 1 << 50, i64::MAX as u64] {
            assert!(size.div_ceil(part_bytes(size)) <= PART_COUNT_MAX, "{size}");
        }
        assert_eq!(part_bytes(PART_BYTES * PART_COUNT_MAX), PART_BYTES);
    }
}

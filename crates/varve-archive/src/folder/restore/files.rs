//! Writing files of a destination: the jobs that the tree's writer hands out.

use std::error::Error;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::super::watch::Watch;
use super::attributes::Attributes;
use super::beside::{self, Over, PlaceError};
use super::flag_giver::{self, FlagGiver};
use super::guards::Guards;
use crate::browsing::files::{Files, ReadContentError};
use crate::records::node::Node;
use crate::restoring::damage_list::DamageList;
use crate::restoring::unfinished_restore::WrittenRanges;

/// Larger files are written in parts of this size.
const PART_BYTES: u64 = 16 << 20;
/// In no more than so many, which are larger then: a hole costs one step, however long it is, but each part is a job.
const PART_COUNT_MAX: u64 = 1 << 14;

/// In parts of how many bytes a file of this size is written.
pub(super) fn part_bytes(size: u64) -> u64 {
    PART_BYTES.max(size.div_ceil(PART_COUNT_MAX))
}

/// An open folder of the destination.
pub(super) struct TargetFolder {
    pub(super) descriptor: OwnedFd,
    /// From the root of what is restored on.
    pub(super) path: PathBuf,
    /// Shared by all of them, so that somebody can count how many there are.
    pub(super) _token: Arc<()>,
}

/// How a file comes to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placing {
    /// It is made under its name: nobody looks into the folder before everything is done.
    Direct,
    /// It was made before, and its first bytes are there.
    GoOn {
        /// How many are.
        bytes: u64,
    },
    /// It is made beside its place, synced, and renamed.
    Beside(Over),
}

/// A file to be made. Its node says under which name.
pub(super) struct FileToWrite {
    /// The number of its event.
    pub(super) number: u64,
    pub(super) folder: Arc<TargetFolder>,
    pub(super) node: Node,
    pub(super) placing: Placing,
    /// From the root of what is restored on.
    pub(super) path: PathBuf,
}

/// A file that is being written.
struct OpenFile {
    descriptor: OwnedFd,
    /// What it is called until it is complete; `None`: it has its name.
    partial: Option<Vec<u8>>,
}

/// A file that many jobs write.
pub(super) struct LargeFile {
    file: FileToWrite,
    open: OpenFile,
    bytes_left: AtomicU64,
    has_failed: AtomicBool,
    written: Mutex<WrittenRanges>,
}

impl LargeFile {
    /// How many bytes from the beginning on are written without a gap.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written.lock().end()
    }

    /// From where on there is something to do.
    pub(super) fn start(&self) -> u64 {
        match self.file.placing {
            Placing::GoOn { bytes } => bytes,
            _ => 0,
        }
    }

    /// Its path from the root of what is restored on.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }
}

/// What is written by one job.
pub(super) enum Job {
    Files(Vec<FileToWrite>),
    Part { file: Arc<LargeFile>, range: Range<u64> },
}

/// A file that is done.
pub(super) struct Written {
    pub(super) number: u64,
    /// `None`: it is left out.
    pub(super) bytes: Option<u64>,
    /// It is there, but lacks something, or it is left out.
    pub(super) has_problem: bool,
}

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteFileError {
    /// Its content cannot be had.
    #[error("its content cannot be read; it is left out")]
    Content {
        /// What keeps it.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system does not take it.
    #[error("it cannot be written, and is left out")]
    System {
        /// What the system says.
        source: io::Error,
    },
    /// It was written, and cannot come to its place.
    #[error("it cannot be put in its place, and is left out")]
    Place(#[source] PlaceError),
    /// The whole is being given up.
    #[error("interrupted")]
    Cancelled,
}

/// Something that a file lacks, and that could not be given to it.
#[derive(Debug, thiserror::Error)]
#[error("its owner, permissions, times or attributes are not all restored")]
pub(super) struct AttributesLacking {
    /// What the system says.
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

/// Whether an error says that nothing more can be written at all.
fn ends_everything(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
        || matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NODEV | Errno::STALE))
}

/// Writes files with what the snapshot holds of them.
pub(super) struct FileWriter<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) watch: Watch<'a>,
    pub(super) attributes: Attributes,
    pub(super) flags: &'a FlagGiver,
    pub(super) guards: &'a Guards,
    pub(super) damaged: Option<&'a DamageList>,
    /// Why nothing more is written: the disk is full, or gone.
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

    /// Whether nothing more is to be written.
    pub(super) fn is_stopped(&self) -> bool {
        self.watch.progress.is_cancelled() || self.stopped_by.get().is_some()
    }

    /// The file at which the disk was full, or gone, and what the system said.
    pub(super) fn into_stopped_by(self) -> Option<(PathBuf, io::Error)> {
        self.stopped_by.into_inner()
    }

    /// Takes an error that the system gave for an entry. `None`: the disk is full, or gone, and the work ends.
    pub(super) fn goes_on_after(&self, path: &Path, error: io::Error) -> Option<io::Error> {
        if !ends_everything(&error) {
            return Some(error);
        }
        let _ = self.stopped_by.set((path.to_path_buf(), error));
        None
    }

    /// Writes what one job asks for. The job that writes the last part of a large file returns that it is done.
    pub(super) fn write(&self, job: Job) -> Vec<Written> {
        match job {
            Job::Files(files) => {
                let nodes: Vec<&Node> = files.iter().map(|file| &file.node).collect();
                let contents = self.files.small_contents(&nodes);
                files.iter().zip(contents).map(|(file, content)| self.write_file(file, content)).collect()
            }
            Job::Part { file, range } => self.write_part(&file, range).into_iter().collect(),
        }
    }

    /// Makes a large file, of which the parts can then be written.
    pub(super) fn open_large(&self, file: FileToWrite) -> Result<LargeFile, Written> {
        let made = open(&file).and_then(|open| {
            rustix::fs::ftruncate(&open.descriptor, file.node.size)?;
            Ok(open)
        });
        match made {
            Ok(open) => {
                let start = match file.placing {
                    Placing::GoOn { bytes } => bytes.min(file.node.size),
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

    /// Ends a large file of which every part was written before.
    pub(super) fn end_large(&self, file: &LargeFile) -> Written {
        self.complete(&file.file, &file.open)
    }

    fn write_file(&self, file: &FileToWrite, content: Option<Result<Bytes, ReadContentError>>) -> Written {
        if self.is_stopped() {
            return Written { number: file.number, bytes: None, has_problem: true };
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

    fn write_part(&self, file: &LargeFile, range: Range<u64>) -> Option<Written> {
        let part_bytes = range.end - range.start;
        if !file.has_failed.load(Ordering::Relaxed) {
            match self.write_range(&file.open.descriptor, &file.file, range.clone()) {
                // A hole that damage has left is met, and told, once more by the next run.
                Ok(()) if self.is_damaged(&file.file, &range) => {}
                Ok(()) => file.written.lock().add(range),
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
            // What was written of it serves the next run, unless it lacks something for good.
            if !self.is_stopped() || file.open.partial.is_some() {
                remove(&file.file, &file.open);
            }
            Some(Written { number: file.file.number, bytes: None, has_problem: true })
        } else {
            Some(self.complete(&file.file, &file.open))
        }
    }

    /// Writes what a file has in `range`. Holes are left as they are.
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
        let read = match self.damaged {
            None => self.files.read(&file.node, range, &mut take),
            Some(damaged) => {
                let mut lost = |range: Range<u64>, _| damaged.add(&file.path, range);
                self.files.read_around(&file.node, range, &mut take, &mut lost)
            }
        };
        // What the system has said first of a full disk is worth more than that the work ends.
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

    fn complete(&self, file: &FileToWrite, open: &OpenFile) -> Written {
        // A file with holes that do not belong there keeps the time at which it was written:
        // nothing takes it for equal later. It is not locked, so that it can be replaced.
        let has_times = !self.is_damaged(file, &(0..file.node.size));
        let given = self.attributes.give_open(&open.descriptor, &file.node, has_times);
        let has_flags = flag_giver::give_now(&open.descriptor, &file.node);
        let mut has_problem = given.is_err();
        if let Err(source) = given {
            self.watch.report(&file.path, AttributesLacking { source });
        }
        if let (Some(partial), Placing::Beside(over)) = (&open.partial, file.placing) {
            // Only what survives a power cut may take the place of something that does.
            if let Err(error) = rustix::fs::fsync(&open.descriptor) {
                return self.leave_out(file, Some(open), error.into());
            }
            let (parent, name) = (&file.folder.descriptor, &file.node.name);
            match beside::place(parent, partial, name, over, self.guards, &file.path) {
                Ok(()) => {}
                Err(error @ PlaceError::NotRemoved(_)) => {
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
        Written { number: file.number, bytes: Some(file.node.size), has_problem }
    }

    fn leave_out(&self, file: &FileToWrite, open: Option<&OpenFile>, error: WriteFileError) -> Written {
        // After the report, which may say that everything ends: what an unfinished run is named by stays for the next one.
        self.report_left_out(file, error);
        let is_kept = self.is_stopped() && matches!(file.placing, Placing::GoOn { .. });
        if let Some(open) = open.filter(|_| !is_kept) {
            remove(file, open);
        }
        Written { number: file.number, bytes: None, has_problem: true }
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

/// Makes a file that only its owner can see into, or opens the one that was made before.
fn open(file: &FileToWrite) -> Result<OpenFile, WriteFileError> {
    let opened = open_or_make(file)?;
    flag_giver::give_before_content(&opened.descriptor, &file.node);
    Ok(opened)
}

fn open_or_make(file: &FileToWrite) -> Result<OpenFile, WriteFileError> {
    let (folder, name) = (&file.folder.descriptor, file.node.name.as_slice());
    match file.placing {
        Placing::Direct => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let descriptor = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            Ok(OpenFile { descriptor, partial: None })
        }
        Placing::GoOn { bytes } => {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let descriptor = rustix::fs::openat(folder, name, flags, Mode::empty())?;
            // What comes after the bytes that are known may be anything.
            rustix::fs::ftruncate(&descriptor, bytes)?;
            Ok(OpenFile { descriptor, partial: None })
        }
        Placing::Beside(_) => {
            let (descriptor, partial) = beside::create_file(folder, name)?;
            Ok(OpenFile { descriptor, partial: Some(partial) })
        }
    }
}

/// Half a file is no file. If it cannot be removed, it was reported already.
fn remove(file: &FileToWrite, open: &OpenFile) {
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

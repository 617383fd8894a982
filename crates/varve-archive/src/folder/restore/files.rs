//! Writing files of a destination: the jobs that the tree's writer hands out.

use std::error::Error;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::super::read::JoinName;
use super::super::watch::Watch;
use super::attributes::Attributes;
use crate::files::{Files, ReadContentError};
use crate::node::Node;

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

/// A file to be made. Its node says under which name.
pub(super) struct FileToWrite {
    /// The number of its event.
    pub(super) number: u64,
    pub(super) folder: Arc<TargetFolder>,
    pub(super) node: Node,
}

/// A file that many jobs write.
pub(super) struct LargeFile {
    file: FileToWrite,
    descriptor: OwnedFd,
    bytes_left: AtomicU64,
    has_failed: AtomicBool,
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

/// Writes files with what the snapshot holds of them.
pub(super) struct FileWriter<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) watch: Watch<'a>,
    pub(super) attributes: Attributes,
}

impl FileWriter<'_> {
    /// Writes what one job asks for. Whoever writes the last part of a large file says that it is done.
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
        let made = create(&file).and_then(|descriptor| {
            rustix::fs::ftruncate(&descriptor, file.node.size)?;
            Ok(descriptor)
        });
        match made {
            Ok(descriptor) => {
                let bytes_left = AtomicU64::new(file.node.size);
                Ok(LargeFile { file, descriptor, bytes_left, has_failed: AtomicBool::new(false) })
            }
            Err(error) => Err(self.leave_out(&file, error)),
        }
    }

    fn write_file(&self, file: &FileToWrite, content: Option<Result<Bytes, ReadContentError>>) -> Written {
        let size = file.node.size;
        let written = create(file).and_then(|descriptor| {
            let written_bytes = match content {
                Some(bytes) => {
                    let bytes = bytes?;
                    write_full(&descriptor, &bytes, 0)?;
                    self.watch.progress.add_bytes_done(size);
                    bytes.len() as u64
                }
                None => 0,
            };
            if written_bytes < size {
                rustix::fs::ftruncate(&descriptor, size)?;
            }
            if written_bytes == 0 && size > 0 {
                self.write_range(&descriptor, &file.node, 0..size)?;
            }
            Ok(descriptor)
        });
        match written {
            Ok(descriptor) => self.complete(file, &descriptor),
            Err(error) => self.leave_out(file, error),
        }
    }

    fn write_part(&self, file: &LargeFile, range: Range<u64>) -> Option<Written> {
        let part_bytes = range.end - range.start;
        if !file.has_failed.load(Ordering::Relaxed)
            && let Err(error) = self.write_range(&file.descriptor, &file.file.node, range)
            && !file.has_failed.swap(true, Ordering::Relaxed)
        {
            self.report_left_out(&file.file, error);
        }
        if file.bytes_left.fetch_sub(part_bytes, Ordering::AcqRel) > part_bytes {
            return None;
        }
        if file.has_failed.load(Ordering::Relaxed) {
            remove(&file.file);
            Some(Written { number: file.file.number, bytes: None, has_problem: true })
        } else {
            Some(self.complete(&file.file, &file.descriptor))
        }
    }

    /// Writes what a file has in `range`. Holes are left as they are.
    fn write_range(&self, file: &OwnedFd, node: &Node, range: Range<u64>) -> Result<(), WriteFileError> {
        let range_bytes = range.end - range.start;
        let read = self.files.read(node, range, &mut |offset, bytes| {
            if self.watch.progress.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(write_full(file, bytes, offset)?)
        });
        if self.watch.progress.is_cancelled() {
            return Err(WriteFileError::Cancelled);
        }
        read?;
        self.watch.progress.add_bytes_done(range_bytes);
        Ok(())
    }

    fn complete(&self, file: &FileToWrite, descriptor: &OwnedFd) -> Written {
        let given = self.attributes.give_open(descriptor, &file.node);
        let has_problem = given.is_err();
        if let Err(source) = given {
            self.watch.report(&file.folder.path.join_name(&file.node.name), AttributesLacking { source });
        }
        self.watch.progress.add_files_done(1);
        Written { number: file.number, bytes: Some(file.node.size), has_problem }
    }

    fn leave_out(&self, file: &FileToWrite, error: WriteFileError) -> Written {
        // Not if it is what was there already that is in the way.
        let is_taken = matches!(&error, WriteFileError::System { source } if source.kind() == io::ErrorKind::AlreadyExists);
        if !is_taken {
            remove(file);
        }
        self.report_left_out(file, error);
        Written { number: file.number, bytes: None, has_problem: true }
    }

    fn report_left_out(&self, file: &FileToWrite, error: WriteFileError) {
        if !matches!(error, WriteFileError::Cancelled) {
            self.watch.report(&file.folder.path.join_name(&file.node.name), error);
        }
    }
}

/// Makes a file that only its owner can see into.
fn create(file: &FileToWrite) -> Result<OwnedFd, WriteFileError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::openat(&file.folder.descriptor, file.node.name.as_slice(), flags, mode)?)
}

/// Half a file is no file. If it cannot be removed, it was reported already.
fn remove(file: &FileToWrite) {
    let _ = rustix::fs::unlinkat(&file.folder.descriptor, file.node.name.as_slice(), AtFlags::empty());
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

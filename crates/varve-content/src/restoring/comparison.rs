//! Compares a file on disk with its contents in a snapshot.

use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, SeekFrom, fadvise};
use rustix::io::Errno;
use varve_block::to_usize;

use crate::progress::Progress;
use crate::reading_content::{ReadContentError, TakeBytes};

/// Bytes of a hole that are read at a time.
const HOLE_BYTES: usize = 1 << 20;

/// A difference between a restored file and the snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ReadBackDifference {
    /// The kind, the size or another attribute differs.
    #[error("read back, it differs from the snapshot: {what} differs")]
    Status { what: &'static str },
    #[error("read back, it differs from the snapshot at byte {at}")]
    Bytes {
        /// The first byte that differs.
        at: u64,
    },
    /// The restored file is unreadable.
    #[error("it cannot be read back")]
    Read(#[source] io::Error),
    /// The snapshot is unreadable.
    #[error("it cannot be compared, because the snapshot cannot be read")]
    Content(#[source] Box<dyn Error + Send + Sync>),
}

/// Compares a file with the contents that `read` passes on: `size` bytes, with holes for zeros.
pub(crate) fn compare_content(
    file: &File,
    size: u64,
    progress: &Progress,
    read: impl FnOnce(&mut TakeBytes<'_>) -> Result<(), ReadContentError>,
) -> Result<(), ReadBackDifference> {
    // This drops synced data from the page cache, so that it is read from the disk.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let mut passed = 0;
    let mut difference = None;
    let read = read(&mut |offset, bytes| {
        if progress.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let found = compare_zeros(file, passed..offset).and_then(|()| compare_bytes(file, offset, bytes));
        passed = offset + bytes.len() as u64;
        found.map_err(|found| {
            difference = Some(found);
            io::ErrorKind::Other.into()
        })
    });
    match (difference, read) {
        (Some(difference), _) => Err(difference),
        (None, Ok(())) => compare_zeros(file, passed..size),
        (None, Err(ReadContentError::Take(error))) => Err(ReadBackDifference::Read(error)),
        (None, Err(error)) => Err(ReadBackDifference::Content(Box::new(error))),
    }
}

/// Compares the bytes of a file at `offset`.
fn compare_bytes(file: &File, offset: u64, bytes: &[u8]) -> Result<(), ReadBackDifference> {
    let mut there = vec![0; bytes.len()];
    file.read_exact_at(&mut there, offset).map_err(ReadBackDifference::Read)?;
    match there.iter().zip(bytes).position(|(there, byte)| there != byte) {
        None => Ok(()),
        Some(place) => Err(ReadBackDifference::Bytes { at: offset + place as u64 }),
    }
}

/// Compares a hole: the file must have a hole or zeros there.
fn compare_zeros(file: &File, range: Range<u64>) -> Result<(), ReadBackDifference> {
    let mut offset = range.start;
    while offset < range.end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            // The file has only a hole up to its end.
            Err(Errno::NXIO) => return Ok(()),
            // The file system does not report holes.
            Err(_) => offset,
        };
        if data >= range.end {
            return Ok(());
        }
        let length = to_usize(range.end - data).min(HOLE_BYTES);
        compare_bytes(file, data, &vec![0; length])?;
        offset = data + length as u64;
    }
    Ok(())
}

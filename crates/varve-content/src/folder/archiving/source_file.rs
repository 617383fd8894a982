//! Reads bytes and holes of an open file of a source.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use varve_block::PutError;

/// Why a file has no content.
pub(super) enum ReadError {
    /// The file is unreadable. The snapshot continues.
    File(io::Error),
    /// The store accepts no more data.
    Store(PutError),
    Cancelled,
}

impl From<PutError> for ReadError {
    fn from(error: PutError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<Errno> for ReadError {
    fn from(error: Errno) -> Self {
        Self::File(error.into())
    }
}

/// The next data range from `position` on. An empty range at the end if only a hole follows.
pub(crate) fn next_data(file: &OwnedFd, position: u64, size: u64) -> io::Result<std::ops::Range<u64>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(position)) {
        Ok(start) => start.clamp(position, size),
        Err(Errno::NXIO) => return Ok(size..size),
        // The file system does not distinguish holes from data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(position..size),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_or(size, |end| end.clamp(start, size));
    Ok(start..end)
}

/// Fills `into` up to the end of the file.
pub(crate) fn read_full(file: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match rustix::io::pread(&file, &mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

//! Comparing what lies on a disk with what it should be.

use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// How much of a hole is read at a time.
const HOLE_BYTES: usize = 1 << 20;

/// How something that was restored differs from what the snapshot has.
#[derive(Debug, thiserror::Error)]
pub enum Unlike {
    /// It is another kind of thing, or another size.
    #[error("read back, it is not what the snapshot has: {what} differs")]
    Status {
        /// What differs.
        what: &'static str,
    },
    /// Its bytes differ.
    #[error("read back, it differs from the snapshot at byte {at}")]
    Bytes {
        /// The first byte that differs.
        at: u64,
    },
    /// It cannot be read.
    #[error("it cannot be read back")]
    Read(#[source] io::Error),
    /// The snapshot cannot be read.
    #[error("it cannot be compared with the snapshot, which cannot be read")]
    Content(#[source] Box<dyn Error + Send + Sync>),
}

/// Compares what a file has at `offset`.
pub(crate) fn compare_bytes(file: &File, offset: u64, bytes: &[u8]) -> Result<(), Unlike> {
    let mut there = vec![0; bytes.len()];
    file.read_exact_at(&mut there, offset).map_err(Unlike::Read)?;
    match there.iter().zip(bytes).position(|(there, byte)| there != byte) {
        None => Ok(()),
        Some(place) => Err(Unlike::Bytes { at: offset + place as u64 }),
    }
}

/// Compares a hole: the file has a hole there too, or zeros.
pub(crate) fn compare_zeros(file: &File, range: Range<u64>) -> Result<(), Unlike> {
    let mut offset = range.start;
    while offset < range.end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            // There is nothing but a hole up to the end.
            Err(Errno::NXIO) => return Ok(()),
            // The file system knows of no holes.
            Err(_) => offset,
        };
        if data >= range.end {
            return Ok(());
        }
        let length = usize::try_from(range.end - data).unwrap_or(usize::MAX).min(HOLE_BYTES);
        compare_bytes(file, data, &vec![0; length])?;
        offset = data + length as u64;
    }
    Ok(())
}

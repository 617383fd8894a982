//! The disk behind an export.

use std::io;
use std::ops::Range;

/// A disk that can be read concurrently, and perhaps written.
pub trait ServedDisk: Send + Sync {
    /// In bytes.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Splits a range into extents of data and holes, in order and without gaps. The result may
    /// end before the range does, but has at least one extent if the range is not empty. The
    /// caller asks again for the rest.
    ///
    /// # Errors
    /// The extents cannot be determined.
    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>>;

    /// Prefetches the data that is likely to be requested next. Called after an answer has been
    /// sent, while the client goes on.
    fn read_ahead(&self) {}

    /// The write access to this disk; `None` if it is read-only.
    fn writable(&self) -> Option<&dyn WritableDisk> {
        None
    }
}

/// The write access to a disk.
pub trait WritableDisk: Send + Sync {
    /// Writes bytes.
    ///
    /// # Errors
    /// The bytes cannot be written. Any part of them may have been.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_zeros(&self, range: Range<u64>) -> io::Result<()>;

    /// Discards a range. Its contents are unspecified afterwards.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn trim(&self, range: Range<u64>) -> io::Result<()>;

    /// Makes everything durable that was written before.
    ///
    /// # Errors
    /// The data that was written since the last flush may be lost.
    fn flush(&self) -> io::Result<()>;
}

/// A part of a disk that is entirely data or entirely a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskExtent {
    /// In bytes; not 0.
    pub length: u64,
    /// A hole reads as zeros, and nothing is stored for it.
    pub is_hole: bool,
}

/// Appends an extent, merging it with the last one if both are of the same kind.
pub(super) fn push(extents: &mut Vec<DiskExtent>, next: DiskExtent) {
    match extents.last_mut() {
        _ if next.length == 0 => {}
        Some(last) if last.is_hole == next.is_hole => last.length += next.length,
        _ => extents.push(next),
    }
}

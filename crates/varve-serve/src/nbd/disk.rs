//! What stands behind an export.

use std::io;
use std::ops::Range;

/// A disk that many read at the same time, and that some may write.
pub trait Disk: Send + Sync {
    /// In bytes.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// Whatever keeps them from being read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// The stretches that a range is made of, in order and with nothing between them. May end before the range does, but not before it has
    /// told something: whoever wants more asks again.
    ///
    /// # Errors
    /// Whatever keeps it from being known.
    fn map(&self, range: Range<u64>) -> io::Result<Vec<Stretch>>;

    /// Reads what is likely to be asked for next. For whoever has answered, and whose client goes on meanwhile.
    fn read_ahead(&self) {}

    /// For writing, if it can be written.
    fn writable(&self) -> Option<&dyn WritableDisk> {
        None
    }
}

/// A disk that can be written, too.
pub trait WritableDisk: Send + Sync {
    /// Keeps these bytes.
    ///
    /// # Errors
    /// Whatever keeps them from being written: then any part of them may have been.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Keeps zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_zeros(&self, range: Range<u64>) -> io::Result<()>;

    /// Lets go of bytes that nobody needs. What they are then is not said.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn trim(&self, range: Range<u64>) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// What was written since the last flush may be lost.
    fn flush(&self) -> io::Result<()>;
}

/// A part of a disk that is all data, or all hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// In bytes; not 0.
    pub length: u64,
    /// Zeros, for which nothing is stored.
    pub is_hole: bool,
}

/// Adds a stretch to others, as a part of the last one if it is like that.
pub(super) fn push(stretches: &mut Vec<Stretch>, next: Stretch) {
    match stretches.last_mut() {
        _ if next.length == 0 => {}
        Some(last) if last.is_hole == next.is_hole => last.length += next.length,
        _ => stretches.push(next),
    }
}

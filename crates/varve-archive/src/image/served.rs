//! A disk that somebody else keeps, and what its keeper says of it without its being read.

use std::io;
use std::sync::Arc;

/// What is said of a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// They have to be read.
    Data,
    /// They are zeros.
    Zeros,
    /// They are as they were in the earlier image that the source was given.
    Unchanged,
}

/// A run of bytes of which one thing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldRun {
    /// What is said.
    pub told: Told,
    /// Where the run ends: after the place that was asked for, and not beyond the image.
    pub end: u64,
}

/// A disk of a known size that shows one moment as long as it is open, and is read at any place by many at once.
pub trait ServedImage: Send + Sync {
    /// In bytes.
    fn size(&self) -> u64;

    /// What is said of the bytes from `offset`, which is before the end. Asked for ascending places.
    ///
    /// # Errors
    /// Whatever kept it from being told.
    fn told_at(&self, offset: u64) -> io::Result<ToldRun>;

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// Whatever kept them from being read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Called when all is read: whether all that was told and read was of the one moment.
    ///
    /// # Errors
    /// It was not, or nobody can tell.
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: ServedImage + ?Sized> ServedImage for Arc<T> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn told_at(&self, offset: u64) -> io::Result<ToldRun> {
        (**self).told_at(offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }

    fn confirm(&self) -> io::Result<()> {
        (**self).confirm()
    }
}

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

/// A place of a disk, and where its bytes go.
#[derive(Debug)]
pub struct Place<'a> {
    /// Where it begins on the disk.
    pub offset: u64,
    /// What is filled.
    pub into: &'a mut [u8],
}

/// A place was not read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read at {offset}")]
pub struct PlaceError {
    /// Where on the disk.
    pub offset: u64,
    /// What went wrong below.
    pub source: io::Error,
}

/// A disk of a known size that is read at any place by many at once.
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

    /// Fills several places, which come one after the other on the disk. Whoever keeps the disk where every question has its price asks for all of
    /// them at once.
    ///
    /// # Errors
    /// One of the places could not be read: what is in any of them means nothing.
    fn read_all(&self, places: &mut [Place<'_>]) -> Result<(), PlaceError> {
        places.iter_mut().try_for_each(|Place { offset, into }| {
            self.read_at(*offset, into).map_err(|source| PlaceError { offset: *offset, source })
        })
    }

    /// Called when all is read: whether all of it was of one moment. If not, the image mixes several, and is kept with that said of it.
    ///
    /// # Errors
    /// Nobody can tell, or it is no image of any kind: nothing is kept.
    fn held_still(&self) -> io::Result<bool> {
        Ok(true)
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

    fn read_all(&self, places: &mut [Place<'_>]) -> Result<(), PlaceError> {
        (**self).read_all(places)
    }

    fn held_still(&self) -> io::Result<bool> {
        (**self).held_still()
    }
}

//! A disk behind another program, and what that program reports about its contents without reading
//! them.

use std::io;
use std::sync::Arc;

/// The reported contents of a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunContent {
    /// The bytes must be read.
    Data,
    Zeros,
    /// The bytes are the same as in the earlier image of the source.
    Unchanged,
}

/// A run of bytes with the same report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRun {
    pub content: RunContent,
    /// The end of the run: after the requested offset, and not beyond the image.
    pub end: u64,
}

/// A read request: an offset on the disk, and the buffer for its bytes.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    pub offset: u64,
    pub into: &'a mut [u8],
}

/// A place could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read at {offset}")]
pub struct ReadRequestError {
    /// The offset on the disk.
    pub offset: u64,
    pub source: io::Error,
}

/// A disk of known size for random reads by many readers at once.
pub trait ServedImage: Send + Sync {
    /// The size in bytes.
    fn size(&self) -> u64;

    /// The reported contents of the bytes from `offset`, which is before the end. Called with
    /// ascending offsets.
    ///
    /// # Errors
    /// Any error of the query.
    fn content_at(&self, offset: u64) -> io::Result<ContentRun>;

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// Any error of the read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Fills several places, in ascending order of their offsets. An implementation with a high
    /// cost per request sends one request for all of them.
    ///
    /// # Errors
    /// A place was unreadable. The contents of all buffers are then undefined.
    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        places.iter_mut().try_for_each(|ReadRequest { offset, into }| {
            self.read_at(*offset, into).map_err(|source| ReadRequestError { offset: *offset, source })
        })
    }

    /// Returns whether all bytes that were read are of one time. Called when everything is read. If
    /// they are not, the image mixes several times, and is kept with a note of that.
    ///
    /// # Errors
    /// The answer is unknown, or the bytes are no valid image at all. Nothing is kept then.
    fn held_still(&self) -> io::Result<bool> {
        Ok(true)
    }
}

impl<T: ServedImage + ?Sized> ServedImage for Arc<T> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        (**self).content_at(offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        (**self).read_all(places)
    }

    fn held_still(&self) -> io::Result<bool> {
        (**self).held_still()
    }
}

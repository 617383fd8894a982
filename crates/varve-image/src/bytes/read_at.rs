//! Random access to bytes: of a disk, a part of a disk, or a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use varve_block::to_usize;

/// Bytes of a known size that several threads may read at any offset at the same time.
pub trait ReadAt: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if fewer bytes follow `offset`; otherwise the error of the
    /// read. The contents of `into` are then unspecified.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }
}

/// A raw image file. The size of a block device is reported as 0: open a block device as an image
/// source instead.
impl ReadAt for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = self.get(to_usize(offset)..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A contiguous part of other bytes, such as a partition or a segment of a logical volume.
pub struct BytesPart {
    whole: Arc<dyn ReadAt>,
    start: u64,
    size: u64,
}

impl BytesPart {
    /// Makes the part with the `size` bytes from `start`, or as many of them as exist.
    #[must_use]
    pub fn new(whole: Arc<dyn ReadAt>, start: u64, size: u64) -> Self {
        let size = size.min(whole.size().saturating_sub(start));
        Self { whole, start, size }
    }
}

impl ReadAt for BytesPart {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.whole.read_at(self.start + offset, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_shows_only_its_own_bytes() {
        let part = BytesPart::new(Arc::new((0..100).collect::<Vec<u8>>()), 10, 20);
        let mut bytes = [0; 5];
        part.read_at(15, &mut bytes).unwrap();
        assert_eq!((part.size(), bytes), (20, [25, 26, 27, 28, 29]));
        assert_eq!(part.read_at(16, &mut bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(part.read_at(u64::MAX, &mut bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_part_beyond_the_end_is_as_long_as_what_is_there() {
        let whole: Arc<dyn ReadAt> = Arc::new(vec![0; 100]);
        assert_eq!(BytesPart::new(Arc::clone(&whole), 90, 20).size(), 10);
        assert_eq!(BytesPart::new(whole, 200, 20).size(), 0);
    }
}

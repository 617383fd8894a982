//! A read position in a volume, with a limit on the bytes read, so that no cycle is endless.

use std::io::{self, Read, Seek, SeekFrom};

use super::quiet::aloud;
use crate::bytes::read_at::ReadAt;

pub(super) struct NtfsCursor<'a> {
    volume: &'a dyn ReadAt,
    position: u64,
    bytes_left: u64,
}

impl<'a> NtfsCursor<'a> {
    /// Makes a cursor at offset 0 that yields at most `bytes_max` bytes.
    pub(super) fn new(volume: &'a dyn ReadAt, bytes_max: u64) -> Self {
        Self { volume, position: 0, bytes_left: bytes_max }
    }
}

impl Read for NtfsCursor<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.volume.size().saturating_sub(self.position);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let Some(wanted) = into.get_mut(..length).filter(|wanted| !wanted.is_empty()) else { return Ok(0) };
        let Some(bytes_left) = self.bytes_left.checked_sub(length as u64) else {
            return Err(io::Error::other("its references exceed its size, or form a cycle"));
        };
        aloud(|| self.volume.read_at(self.position, wanted))?;
        self.bytes_left = bytes_left;
        self.position = self.position.saturating_add(length as u64);
        Ok(length)
    }
}

impl Seek for NtfsCursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.volume.size().checked_add_signed(by),
        };
        self.position = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

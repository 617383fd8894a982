//! A published disk as a network block device.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use varve_attach::PublishedDisk;

use crate::nbd::{DiskExtent, ServedDisk};

/// A published disk, read-only.
pub struct PublishedExport(pub Arc<PublishedDisk>);

impl ServedDisk for PublishedExport {
    fn size(&self) -> u64 {
        self.0.image().shape.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(self.0.read(offset, into)?)
    }

    /// The map knows which blocks are zeros, so no block is fetched for this.
    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
        let extent = |length: u64, is_hole| DiskExtent { length, is_hole };
        let extents = match self.0.next_data_in(range.clone())? {
            None => [extent(range.end - range.start, true), extent(0, false)],
            Some(data) => [extent(data.start - range.start, true), extent(data.end - data.start, false)],
        };
        Ok(extents.into_iter().filter(|extent| extent.length > 0).collect())
    }

    fn read_ahead(&self) {
        self.0.read_ahead();
    }
}

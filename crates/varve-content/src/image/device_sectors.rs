//! The sizes of the sectors of a block device.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;

use rustix::fs::{ioctl_blkpbszget, ioctl_blksszget};

use crate::image::sector_sizes::SectorSizes;

/// Returns the sizes of a device's sectors, as the kernel reports them; `None` for other files.
#[must_use]
pub fn device_sectors(file: &File) -> Option<SectorSizes> {
    file.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let logical = ioctl_blksszget(file).ok()?;
    SectorSizes::new(logical.into(), ioctl_blkpbszget(file).unwrap_or(logical).into())
}

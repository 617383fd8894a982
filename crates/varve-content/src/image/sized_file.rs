//! A file whose size is that of the time when it was opened.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use varve_image::ReadAt;

/// A file or a device, with the size that it had when it was opened.
pub(crate) struct SizedFile {
    file: File,
    size: u64,
}

impl SizedFile {
    pub(crate) fn new(file: File, size: u64) -> Self {
        Self { file, size }
    }
}

impl ReadAt for SizedFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

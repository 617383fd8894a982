//! The fields of the headers of all image formats, and the functions that read them.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The relevant fields of an image's header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImageHeader {
    /// The backing image, and its format if the header names it.
    pub backing: Option<(String, Option<String>)>,
    /// The file with its data (qcow2).
    pub data_file: Option<NamedFile>,
    /// The files with its extents (VMDK).
    pub extents: Vec<NamedFile>,
    /// The least size of the image file.
    pub bytes_min: u64,
    /// The size of the disk, where the format states it twice (VHD): QEMU may believe the smaller
    /// one.
    pub disk_bytes: Option<u64>,
    /// The number of snapshots inside the image (qcow2), and the names of the first ones.
    pub snapshot_count: u32,
    pub snapshot_names: Vec<String>,
}

/// Another file that an image needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedFile {
    pub name: String,
    /// The least size of that file.
    pub bytes_min: u64,
}

/// Reads up to `length` bytes, fewer only at the end of the file.
pub(super) fn read(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

pub(super) fn wrong(said: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, said)
}

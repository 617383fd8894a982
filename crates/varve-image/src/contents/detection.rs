//! Detects the content of a part of a disk by the magic numbers that each kind of file system has
//! at a place of its own.

use crate::bytes::read_at::ReadAt;
use crate::contents::signatures::ProbedVolume;
use crate::contents::swap_header;
use crate::contents::volume_content::{FileSystemKind, VolumeContent, ext_kind};

/// Detects the content of a volume.
pub(crate) fn detect(volume: &dyn ReadAt) -> VolumeContent {
    let mut places = ProbedVolume::of(volume);
    let found = places.content();
    let head = places.head();
    match found {
        Some(VolumeContent::FileSystem(FileSystemKind::Ext2)) => {
            VolumeContent::FileSystem(ext_kind(&head).unwrap_or(FileSystemKind::Ext2))
        }
        Some(content) => content,
        None => match swap_header::memory_in(&head) {
            Some(memory) => {
                // A file system that was made over swap may have left the swap header in place.
                let own_bytes = swap_header::own_bytes(memory.start);
                match places.find_other(swap_header::OWN_NAMES, &own_bytes) {
                    Ok(None) | Err(_) => VolumeContent::Swap,
                    Ok(Some(_)) => VolumeContent::Unknown,
                }
            }
            None if head.iter().all(|byte| *byte == 0) => VolumeContent::Empty,
            None => VolumeContent::Unknown,
        },
    }
}

/// The descriptors of ISO 9660 and of UDF are in sectors of this size, from this sector on.
const DESCRIPTOR_BYTES: u64 = 2048;
const FIRST_DESCRIPTOR: u64 = 16;
/// More descriptors than any tool writes.
const DESCRIPTOR_COUNT_MAX: usize = 128;

/// Returns true if a disc with ISO 9660 also has UDF, whose descriptors follow those of ISO 9660
/// (ECMA-167, part 2). Such discs are common for systems that need files of more than 4 GiB.
pub(crate) fn also_has_udf(volume: &dyn ReadAt) -> bool {
    let mut names = (FIRST_DESCRIPTOR..).take(DESCRIPTOR_COUNT_MAX).map_while(|number| {
        let mut descriptor = [0; 6];
        volume.read_at(number.checked_mul(DESCRIPTOR_BYTES)?, &mut descriptor).ok()?;
        let [_, name @ ..] = descriptor;
        [b"CD001", b"BEA01", b"BOOT2", b"CDW02", b"NSR02", b"NSR03"].contains(&&name).then_some(name)
    });
    names.any(|name| name.starts_with(b"NSR0"))
}

/// Returns true if the first signature of the table that matches the beginning of the disk is that
/// of ISO 9660.
pub(crate) fn begins_as_iso(disk: &dyn ReadAt) -> bool {
    ProbedVolume::of(disk).content_of_head() == Some(VolumeContent::FileSystem(FileSystemKind::Iso9660))
}

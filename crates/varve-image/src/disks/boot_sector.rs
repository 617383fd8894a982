//! The sector size that the boot sector of FAT, exFAT or NTFS states.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::bytes::fields::{has_at, u8_at, u16_at};
use crate::bytes::read_at::ReadAt;
use crate::contents::volume_content::is_fat;

/// Returns the sector size that a boot sector at the beginning of a disk states.
pub(crate) fn stated_sector_bytes(disk: &dyn ReadAt) -> Option<u64> {
    let mut sector = [0; 512];
    disk.read_at(0, &mut sector).ok()?;
    // exFAT states the exponent (exFAT specification, section 3.1.14), the others the bytes.
    let bytes = if has_at(&sector, 3, b"EXFAT   ") {
        1_u64.checked_shl(u8_at(&sector, 108).into())?
    } else if has_at(&sector, 3, b"NTFS    ") || is_fat(&sector) {
        u16_at(&sector, 11).into()
    } else {
        return None;
    };
    [512, 1024, 2048, 4096].contains(&bytes).then_some(bytes)
}

//! Structures of several sectors that are protected against torn writes: records of the file table,
//! and blocks of a folder's index.
//!
//! | offset | bytes | meaning                                                                 |
//! |-------:|------:|-------------------------------------------------------------------------|
//! |      0 |     4 | `FILE` or `INDX`                                                        |
//! |      4 |     2 | the position of the list: a number, then the true ends of all sectors   |
//! |      6 |     2 | entries of the list                                                     |
//!
//! The last two bytes of each sector on the disk are the number. A sector with another number was
//! not written together with the others.

use crate::bytes::fields::{array_at, has_at, put, u16_at};

const SECTOR_BYTES: usize = 512;
const END_BYTES: usize = 2;

/// Restores the true ends of all sectors.
///
/// # Errors
/// The failed check, in words.
pub(super) fn restore_sector_ends(bytes: &mut [u8], magic: &[u8; 4]) -> Result<(), &'static str> {
    if !has_at(bytes, 0, magic) {
        return Err("it does not begin as one");
    }
    let list_at = usize::from(u16_at(bytes, 4));
    let sectors = bytes.len().checked_div(SECTOR_BYTES).unwrap_or(0);
    let list_end = list_at.saturating_add(sectors.saturating_add(1).saturating_mul(END_BYTES));
    if usize::from(u16_at(bytes, 6)) != sectors.saturating_add(1) || list_end > bytes.len() {
        return Err("its list of sector ends has an impossible size");
    }
    let number: [u8; END_BYTES] = array_at(bytes, list_at);
    for sector in 1..=sectors {
        let end = sector.saturating_mul(SECTOR_BYTES).saturating_sub(END_BYTES);
        let kept: [u8; END_BYTES] = array_at(bytes, list_at.saturating_add(sector.saturating_mul(END_BYTES)));
        if !has_at(bytes, end, &number) {
            return Err("its sectors were not written together");
        }
        put(bytes, end, &kept);
    }
    Ok(())
}

//! Columns and counts of numbers.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::LittleEndian;

/// Reads a column of `count` numbers.
pub(crate) fn u32s<'a>(
    from: &mut LittleEndian<'a>,
    count: usize,
) -> Option<impl Iterator<Item = u32> + use<'a>> {
    let column = from.take(count.checked_mul(4)?)?;
    Some(column.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)))
}

/// Converts a `u32`. The program runs on 64-bit machines, where this loses nothing.
pub(crate) fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

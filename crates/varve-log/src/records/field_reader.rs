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

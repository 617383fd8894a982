//! Sizes and places of files and disks, which are 64-bit numbers, as sizes and places in memory.

const _: () = assert!(usize::BITS >= 64, "Varve needs a 64-bit machine");

/// Returns a number of bytes, blocks or entries as a size or place in memory. Nothing is lost:
/// Varve is built for 64-bit machines only.
///
/// A number from outside must be compared with a bound before memory is taken for it.
#[expect(clippy::cast_possible_truncation, reason = "the size of usize is checked above")]
pub fn to_usize(number: impl Into<u64>) -> usize {
    number.into() as usize
}

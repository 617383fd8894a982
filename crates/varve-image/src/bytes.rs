//! Bytes of a disk: read at any offset, as numbers, with checksums, and as sets of ranges.

pub mod crc;
pub mod fields;
pub mod overlaid;
pub mod ranges;
pub mod read_at;

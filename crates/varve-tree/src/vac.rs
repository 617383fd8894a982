//! The block formats of Venti clients: roots, entries, and the directories of vac. Big-endian. Only
//! [`VentiFolder`] and the writers read or put blocks; the rest is pure.
//!
//! ```text
//!   vac:SCORE ──> VentiRoot ──> three VentiEntry: ─┬─ source: a tree of the entries of all that the folder holds
//!                                                  ├─ meta:   a tree of blocks (MetaBlock) with their names (VacRecord)
//!                                                  └─ a meta block with the record of the root itself
//! ```
//!
//! A file is one entry: its bytes. A folder is two: its source and its meta. A record names the
//! entries of the source that belong to its file, so neither tree is of use without the other.
//!
//! Invariant: for any input, decoding terminates, takes memory in proportion to the input, and
//! returns only bytes within it.

mod builder;
mod entry;
mod folder;
mod leads;
mod meta_block;
mod record;
mod root;

pub use builder::{VacFolderBuilder, VacShape, put_vac_root};
pub use entry::{DecodeVentiEntryError, VENTI_ENTRY_BYTES, VentiEntry};
pub use folder::{ReadVentiFolderError, VentiFolder};
pub use leads::leads_to;
pub use meta_block::{DecodeMetaBlockError, MetaBlock, MetaBlockBuilder};
pub use record::{DecodeVacRecordError, VacMode, VacRecord};
pub use root::{DecodeVentiRootError, VentiRoot};

/// The bytes of a Venti score, which is SHA-1.
pub const VENTI_SCORE_BYTES: usize = varve_block::SHA1_BYTES;

/// Decodes a size that may not fit into 16 bits: `(v >> 5) << (v & 31)`.
pub(crate) fn decode_big(value: u16) -> Option<u32> {
    let number = u64::from(value >> 5) << (value & 31);
    u32::try_from(number).ok()
}

/// Encodes a size of 64 KiB or more; `None` if it cannot be represented exactly.
pub(crate) fn encode_big(size: u32) -> Option<u16> {
    let (mut mantissa, mut shift) = (size, 0_u16);
    while mantissa >= 1 << 11 {
        if mantissa & 1 != 0 {
            return None;
        }
        mantissa >>= 1;
        shift = shift.checked_add(1)?;
    }
    let mantissa = u16::try_from(mantissa).ok()?;
    Some(mantissa << 5 | shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_sizes_survive() {
        assert_eq!(encode_big(65_536), Some(0x8006));
        for size in [65_536, 131_072, 1 << 20, 65_536 + 64] {
            assert_eq!(encode_big(size).and_then(decode_big), Some(size));
        }
        assert_eq!(encode_big((1 << 20) + 1), None);
        assert_eq!(decode_big(0xffff), None);
    }
}

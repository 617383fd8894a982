//! The places at which records begin.

/// Records begin at multiples of this many bytes, so that an address of 40 bits reaches through 128
/// TiB of log.
pub const GRANULE_BYTES: u64 = 128;

/// An offset in an arena, in units of [`GRANULE_BYTES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule(pub u32);

impl Granule {
    /// Returns the offset in bytes.
    #[must_use]
    pub fn byte_offset(self) -> u64 {
        u64::from(self.0) * GRANULE_BYTES
    }

    /// Returns the first granule at or after an offset in bytes; `None` if the offset is too large
    /// for a granule number.
    #[must_use]
    pub fn at_or_after(byte_offset: u64) -> Option<Self> {
        u32::try_from(byte_offset.div_ceil(GRANULE_BYTES)).ok().map(Self)
    }
}

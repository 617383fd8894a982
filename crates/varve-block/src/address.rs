//! The address of a block in the log, and the fingerprint of its score. Log and index do not know
//! each other; the store passes these two types between them.

/// A position in the whole log, counted through all arenas in order, in granules. It is not an
/// offset in any file.
///
/// It is always below [`LogAddress::END`], so that an index can pack it into 40 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogAddress(u64);

impl LogAddress {
    /// The number of bits of the largest address.
    pub const BITS: u32 = 40;
    /// The first position that no log reaches.
    pub const END: u64 = 1 << Self::BITS;

    /// Makes the address of a granule; `None` beyond the end of any log.
    #[must_use]
    pub fn new(granule: u64) -> Option<Self> {
        (granule < Self::END).then_some(Self(granule))
    }

    /// Returns the number of the granule.
    #[must_use]
    pub fn granule(self) -> u64 {
        self.0
    }
}

/// The key of a block in an index: the leading bits of its score, made uniform and unpredictable
/// for an attacker who chooses the block.
///
/// Two scores may share a fingerprint: the caller checks each candidate by the full score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

//! Where a block is, and the short form of its score that an index keeps. Log and index do not know each other; these
//! two words are what the store carries between them.

/// A position in the whole log, counted through all arenas in order, in granules. Not an offset in any file.
///
/// Always below [`LogAddress::END`], so that an index can pack it into 40 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogAddress(u64);

impl LogAddress {
    /// How many bits the largest address takes.
    pub const BITS: u32 = 40;
    /// The first position that no log reaches.
    pub const END: u64 = 1 << Self::BITS;

    /// The address of a granule; `None` beyond the end of any log.
    #[must_use]
    pub fn new(granule: u64) -> Option<Self> {
        (granule < Self::END).then_some(Self(granule))
    }

    /// The granule's number.
    #[must_use]
    pub fn granule(self) -> u64 {
        self.0
    }
}

/// The leading bits of a score, made uniform and unpredictable to whoever chose the block: what an index keys on.
///
/// Two scores may share a fingerprint; whoever uses one verifies what it finds by the full score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

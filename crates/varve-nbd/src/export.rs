//! What a server says of an export.

use crate::PAYLOAD_BYTES_MAX;

/// What can be done with an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// There are flags at all. Always set.
    pub const HAS_FLAGS: Self = Self(1);
    /// It is only read.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// FLUSH is understood.
    pub const FLUSH: Self = Self(1 << 2);
    /// Single writes can be made durable.
    pub const FUA: Self = Self(1 << 3);
    /// TRIM is understood.
    pub const TRIM: Self = Self(1 << 5);
    /// `WRITE_ZEROES` is understood.
    pub const WRITE_ZEROES: Self = Self(1 << 6);
    /// A read can be asked for in one piece.
    pub const DONT_FRAGMENT: Self = Self(1 << 7);
    /// Several connections see the same bytes, and a flush on one is a flush for all.
    pub const MULTI_CONNECTION: Self = Self(1 << 8);
    /// CACHE is understood.
    pub const CACHE: Self = Self(1 << 10);
    /// Writing zeros can be asked for on the condition that it is fast.
    pub const FAST_ZERO: Self = Self(1 << 11);

    /// Whether all of `other` are set here.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for TransmissionFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Of which sizes requests are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this.
    pub minimum: u32,
    /// Requests are fast if offsets and lengths are multiples of this.
    pub preferred: u32,
    /// No request may read or write more.
    pub maximum: u32,
}

impl Default for BlockSizes {
    /// What the protocol takes for granted where nothing is said.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: PAYLOAD_BYTES_MAX }
    }
}

/// Everything that a client learns of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// The name that it is known by, if it is not just the one that was asked for.
    pub canonical_name: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// In bytes.
    pub size: u64,
    /// What can be done with it.
    pub flags: TransmissionFlags,
    /// Of which sizes requests are to be.
    pub block_sizes: BlockSizes,
    /// Contexts that its block status can be asked in. A client learns them in another way, and finds none here.
    pub contexts: Vec<String>,
}

/// An export in a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What to ask for.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
}

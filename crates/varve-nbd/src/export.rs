//! The properties of an export.

use crate::PAYLOAD_BYTES_MAX;

/// The capabilities of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// Always set.
    pub const HAS_FLAGS: Self = Self(1);
    /// Writing is refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// FLUSH is supported.
    pub const FLUSH: Self = Self(1 << 2);
    /// Individual writes can be made durable (FUA).
    pub const FUA: Self = Self(1 << 3);
    /// TRIM is supported.
    pub const TRIM: Self = Self(1 << 5);
    /// `WRITE_ZEROES` is supported.
    pub const WRITE_ZEROES: Self = Self(1 << 6);
    /// A read can be requested in one chunk.
    pub const DONT_FRAGMENT: Self = Self(1 << 7);
    /// All connections see the same bytes, and a flush on one covers the writes of all.
    pub const MULTI_CONNECTION: Self = Self(1 << 8);
    /// CACHE is supported.
    pub const CACHE: Self = Self(1 << 10);
    /// Zeros can be written on the condition that it is fast.
    pub const FAST_ZERO: Self = Self(1 << 11);

    /// Reports whether all flags of `other` are set.
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

/// Constraints on the offsets and lengths of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this.
    pub minimum: u32,
    /// Requests are fast if offsets and lengths are multiples of this.
    pub preferred: u32,
    /// The maximum length of a read or write.
    pub maximum: u32,
}

impl Default for BlockSizes {
    /// The protocol's defaults.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: PAYLOAD_BYTES_MAX }
    }
}

/// The properties of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// The server's own name for the export, if it differs from the requested one.
    pub canonical_name: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// In bytes.
    pub size: u64,
    pub flags: TransmissionFlags,
    pub block_sizes: BlockSizes,
    /// The contexts that the server offers. Empty at a client, which negotiates contexts
    /// separately.
    pub contexts: Vec<String>,
}

/// An export in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedExport {
    /// The export name.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
}

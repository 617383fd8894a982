//! Parts of an image, as its source offers them.

/// A part of an image.
pub(super) enum Piece {
    /// To be read from there.
    Data { offset: u64, bytes: u64 },
    /// Already read.
    Bytes(Vec<u8>),
    /// Zeros that need not be read; a multiple of the block size, but for the last.
    Hole { bytes: u64 },
    /// As in the earlier tree; a multiple of the block size, but for the last.
    Unchanged { bytes: u64 },
}

impl Piece {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Data { bytes, .. } | Self::Hole { bytes } | Self::Unchanged { bytes } => *bytes,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

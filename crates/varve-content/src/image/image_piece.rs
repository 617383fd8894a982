//! The parts of an image, as its source delivers them.

/// A part of an image.
pub(super) enum ImagePiece {
    /// Data that is still to be read.
    Data { offset: u64, bytes: u64 },
    /// Data that was read.
    Bytes { offset: u64, bytes: Vec<u8> },
    /// Zeros that need not be read. A multiple of the block size, except the last piece.
    Hole { bytes: u64 },
    /// Data that is the same as in the earlier tree. A multiple of the block size, except the last
    /// piece.
    Unchanged { bytes: u64 },
}

impl ImagePiece {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Data { bytes, .. } | Self::Hole { bytes } | Self::Unchanged { bytes } => *bytes,
            Self::Bytes { bytes, .. } => bytes.len() as u64,
        }
    }
}

//! The checksums of Btrfs. All metadata and, by default, all data has them.

use blake2::{Blake2b, digest::consts::U32};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh64::xxh64;

use crate::bytes::crc::crc32c_from;

/// The room for a checksum in headers.
pub(super) const CHECKSUM_ROOM: usize = 32;

/// The function of all checksums of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChecksumKind {
    Crc32c,
    Xxhash64,
    Sha256,
    /// BLAKE2b with 256 bits.
    Blake2b,
}

impl ChecksumKind {
    pub(super) fn parse(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Crc32c,
            1 => Self::Xxhash64,
            2 => Self::Sha256,
            3 => Self::Blake2b,
            _ => return None,
        })
    }

    /// Returns the length of a checksum.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// Returns true if `stored` begins with the checksum of these bytes.
    pub(super) fn is_of(self, stored: &[u8], bytes: &[u8]) -> bool {
        match self {
            Self::Crc32c => stored.starts_with(&(!crc32c_from(!0, bytes)).to_le_bytes()),
            Self::Xxhash64 => stored.starts_with(&xxh64(bytes, 0).to_le_bytes()),
            Self::Sha256 => stored.starts_with(&Sha256::digest(bytes)),
            Self::Blake2b => stored.starts_with(&Blake2b::<U32>::digest(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_values_come_out() {
        // The first bytes of the checksums of these digits.
        let digits = b"123456789";
        let known: [(ChecksumKind, &[u8]); 4] = [
            (ChecksumKind::Crc32c, &[0x83, 0x92, 0x06, 0xe3]),
            (ChecksumKind::Xxhash64, &[0x83, 0xae, 0xe6, 0x40, 0xdb, 0x41, 0xb8, 0x8c]),
            (ChecksumKind::Sha256, &[0x15, 0xe2, 0xb0, 0xd3, 0xc3, 0x38, 0x91, 0xeb]),
            (ChecksumKind::Blake2b, &[0x16, 0xe0, 0xbf, 0x1f, 0x85, 0x59, 0x4a, 0x11]),
        ];
        for (kind, start) in known {
            let mut stored = match kind {
                ChecksumKind::Sha256 => Sha256::digest(digits).to_vec(),
                ChecksumKind::Blake2b => Blake2b::<U32>::digest(digits).to_vec(),
                _ => start.to_vec(),
            };
            assert!(stored.starts_with(start), "{kind:?}");
            assert_eq!(stored.len(), kind.bytes());
            assert!(kind.is_of(&stored, digits), "{kind:?}");
            stored[0] ^= 1;
            assert!(!kind.is_of(&stored, digits), "{kind:?}");
        }
    }
}

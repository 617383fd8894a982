//! The header at the end of a pack, which lists its blobs. Used only if the index is incomplete.
//! Pure.
//!
//! | bytes | field        | meaning                                                                |
//! |------:|--------------|------------------------------------------------------------------------|
//! |     1 | type         | 0 data, 1 tree, 2 compressed data, 3 compressed tree                   |
//! |     4 | length       | encrypted bytes, little-endian                                         |
//! |     4 | uncompressed | only of types 2 and 3: plain bytes, little-endian                      |
//! |    32 | id           | SHA-256 of the plain bytes                                             |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::index::{PackedKind, PackedPlace};
use super::restic_id::ResticId;

/// Why a header is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackHeaderError {
    #[error("the header ends in the middle of an entry")]
    Truncated,
    #[error("the header has a blob of the unknown type {kind}")]
    Kind { kind: u8 },
    #[error("the header has a blob of an impossible length")]
    Length,
}

/// The blobs of a pack, from its decrypted header.
///
/// # Errors
/// [`PackHeaderError`].
pub fn parse_pack_header(header: &[u8]) -> Result<Vec<PackedPlace>, PackHeaderError> {
    let mut blobs = Vec::new();
    let (mut rest, mut offset) = (header, 0_u64);
    while let Some((kind, after)) = rest.split_first() {
        let (packed_kind, is_compressed) = match kind {
            0 => (PackedKind::Data, false),
            1 => (PackedKind::Tree, false),
            2 => (PackedKind::Data, true),
            3 => (PackedKind::Tree, true),
            kind => return Err(PackHeaderError::Kind { kind: *kind }),
        };
        let (length, after) = after.split_first_chunk().ok_or(PackHeaderError::Truncated)?;
        let (uncompressed, after) = match is_compressed {
            true => {
                let (bytes, after) = after.split_first_chunk().ok_or(PackHeaderError::Truncated)?;
                (Some(u64::from(u32::from_le_bytes(*bytes))), after)
            }
            false => (None, after),
        };
        let (id, after) = after.split_first_chunk().ok_or(PackHeaderError::Truncated)?;
        let length = u64::from(u32::from_le_bytes(*length));
        let blob = PackedPlace::checked(ResticId(*id), packed_kind, offset, length, uncompressed);
        blobs.push(blob.ok_or(PackHeaderError::Length)?);
        offset = offset.checked_add(length).ok_or(PackHeaderError::Length)?;
        rest = after;
    }
    Ok(blobs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn a_header_lists_blobs_in_their_order() {
        let mut header = vec![0, 40, 0, 0, 0];
        header.extend([1; 32]);
        header.extend([3, 50, 0, 0, 0, 200, 0, 0, 0]);
        header.extend([2; 32]);
        let blobs = parse_pack_header(&header).unwrap();
        assert_eq!(blobs.len(), 2);
        assert_eq!((blobs[1].offset, blobs[1].kind, blobs[1].plain_bytes()), (40, PackedKind::Tree, 200));
        for length in 1..header.len() {
            let whole = length == 37;
            assert_eq!(parse_pack_header(&header[..length]).is_ok(), whole, "{length}");
        }
        assert_eq!(parse_pack_header(&[9]), Err(PackHeaderError::Kind { kind: 9 }));
        let mut short = vec![0, 3, 0, 0, 0];
        short.extend([1; 32]);
        assert_eq!(parse_pack_header(&short), Err(PackHeaderError::Length));
    }
}

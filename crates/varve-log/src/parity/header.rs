//! The header of a parity file: its arena and its layout. The table of its bytes is in `parity.rs`.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{LittleEndian, has_kind};

use crate::arenas::address::ArenaId;
use crate::keys::cipher::constant_time_equal;
use crate::keys::log_keys::LogKeys;
use crate::parity::layout::{PARITY_HEADER_BYTES, ParityLayout, ParityPercent};
use crate::parity::table::ParityKey;

const MAGIC: [u8; 8] = *b"varvePR1";
const VERSION: u32 = 1;
const CODED_BYTES: usize = 128;
const CODE_BYTES: usize = 32;

/// The arena and the layout of a parity file. Exists only for bytes that a writer of this store has
/// made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParityHeader {
    pub store_id: [u8; 16],
    pub arena: ArenaId,
    pub generation: u32,
    pub arena_header_code: [u8; 32],
    pub arena_seal_code: [u8; 32],
    pub layout: ParityLayout,
}

/// The reason why bytes are not the header of a parity file of this store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParityHeaderError {
    /// The file is not a parity file.
    #[error("this is not a parity file")]
    NotParity,
    /// A newer program wrote it.
    #[error(
        "it has format version {version}; this program reads version {VERSION}: use a newer version of it"
    )]
    NewerVersion { version: u32 },
    /// The code does not match: the header is damaged, forged, or another store's.
    #[error("its header is damaged, or belongs to another store")]
    Forged,
    /// The code is good, but the fields are not valid.
    #[error("its header is invalid")]
    Malformed,
}

has_kind!(ParityHeaderError: Self::NewerVersion { .. } => NewerVersion);

impl ParityHeader {
    /// Returns the header's bytes and the key of its file.
    #[must_use]
    pub fn encode(&self, keys: &LogKeys) -> (Vec<u8>, ParityKey) {
        let mut bytes = Vec::with_capacity(PARITY_HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.layout.percent.get()).to_le_bytes());
        bytes.extend_from_slice(&self.store_id);
        bytes.extend_from_slice(&self.arena.0.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.layout.shard_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.layout.arena_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.layout.group_count.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.arena_header_code);
        bytes.extend_from_slice(&self.arena_seal_code);
        let code = keys.parity_code(&bytes);
        bytes.extend_from_slice(&code);
        bytes.resize(PARITY_HEADER_BYTES, 0);
        (bytes, ParityKey::new(keys, &code))
    }

    /// Parses and checks the header of the parity file of this arena. Returns it with the key of
    /// the file.
    ///
    /// # Errors
    /// [`ParityHeaderError`].
    pub fn decode(
        bytes: &[u8],
        keys: &LogKeys,
        store_id: [u8; 16],
        arena: ArenaId,
        generation: u32,
    ) -> Result<(Self, ParityKey), ParityHeaderError> {
        let mut whole = LittleEndian::new(bytes);
        let (Some(coded), Some(code)) = (whole.take(CODED_BYTES), whole.array::<CODE_BYTES>()) else {
            return Err(ParityHeaderError::NotParity);
        };
        let mut decoder = LittleEndian::new(coded);
        if decoder.array() != Some(MAGIC) {
            return Err(ParityHeaderError::NotParity);
        }
        let version = decoder.u32().unwrap_or_default();
        // The place of the code is the same in all versions. So a damaged header is not mistaken
        // for a newer one.
        if !constant_time_equal(&keys.parity_code(coded), &code) {
            return Err(ParityHeaderError::Forged);
        }
        match version {
            VERSION => {}
            0 => return Err(ParityHeaderError::Malformed),
            version => return Err(ParityHeaderError::NewerVersion { version }),
        }
        let header = Self::fields(decoder).ok_or(ParityHeaderError::Malformed)?;
        if (header.store_id, header.arena, header.generation) != (store_id, arena, generation) {
            return Err(ParityHeaderError::Forged);
        }
        Ok((header, ParityKey::new(keys, &code)))
    }

    fn fields(mut decoder: LittleEndian<'_>) -> Option<Self> {
        let percent = ParityPercent::new(u8::try_from(decoder.u32()?).ok()?)?;
        let store_id = decoder.array()?;
        let arena = ArenaId(decoder.u64()?);
        let generation = decoder.u32()?;
        let shard_bytes = decoder.u32()?;
        let arena_bytes = decoder.u64()?;
        let group_count = decoder.u32()?;
        if decoder.u32()? != 0 {
            return None;
        }
        let layout = ParityLayout::new(arena_bytes, shard_bytes, group_count, percent)?;
        let (arena_header_code, arena_seal_code) = (decoder.array()?, decoder.array()?);
        Some(Self { store_id, arena, generation, arena_header_code, arena_seal_code, layout })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn header() -> ParityHeader {
        ParityHeader {
            store_id: [1; 16],
            arena: ArenaId(3),
            generation: 2,
            arena_header_code: [4; 32],
            arena_seal_code: [5; 32],
            layout: ParityLayout::plan(1 << 20, ParityPercent::new(5).unwrap()).unwrap(),
        }
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let keys = LogKeys::from_master(&[9; 32]);
        let (bytes, _) = header().encode(&keys);
        assert_eq!(bytes.len(), PARITY_HEADER_BYTES);
        let decode = |id, arena, generation| {
            ParityHeader::decode(&bytes, &keys, [id; 16], ArenaId(arena), generation)
                .map(|(header, _)| header)
        };
        assert_eq!(decode(1, 3, 2), Ok(header()));
        for stranger in [decode(2, 3, 2), decode(1, 4, 2), decode(1, 3, 1)] {
            assert_eq!(stranger, Err(ParityHeaderError::Forged));
        }
    }

    #[test]
    fn every_flip_and_cut_is_noticed() {
        let keys = LogKeys::from_master(&[9; 32]);
        let (good, _) = header().encode(&keys);
        let decode = |bytes: &[u8]| ParityHeader::decode(bytes, &keys, [1; 16], ArenaId(3), 2).map(drop);
        for bit in 0..(CODED_BYTES + CODE_BYTES) * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for length in 0..CODED_BYTES + CODE_BYTES {
            assert_eq!(decode(&good[..length]), Err(ParityHeaderError::NotParity));
        }
        let mut newer = good;
        newer[8] = 2;
        let code = keys.parity_code(&newer[..CODED_BYTES]);
        newer[CODED_BYTES..][..CODE_BYTES].copy_from_slice(&code);
        assert_eq!(decode(&newer), Err(ParityHeaderError::NewerVersion { version: 2 }));
    }
}

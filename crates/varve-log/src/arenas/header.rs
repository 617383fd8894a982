//! The first bytes of an arena.
//!
//! | offset | bytes | field            | meaning                                                                     |
//! |-------:|------:|------------------|-----------------------------------------------------------------------------|
//! |      0 |     8 | magic            | `varveAR1`                                                                  |
//! |      8 |     4 | version          | 1 without framed clumps, 2 without notes, 3 without deltas, 4               |
//! |     12 |     4 | header_bytes     | 512                                                                         |
//! |     16 |    16 | store_id         | the store's identity                                                        |
//! |     32 |     8 | arena            | this arena's number                                                         |
//! |     40 |     4 | generation       | 0; one more each time the arena is rewritten                                |
//! |     44 |     4 | cipher           | 0 none, 1 AES-256-GCM                                                       |
//! |     48 |    16 | uid              | random                                                                      |
//! |     64 |     4 | wrap             | 0: no data key; 1: under the wrap key; 2: sealed to the write key           |
//! |     68 |     4 | wrapped_bytes    | the number of following bytes that are used: 0, 48 or 80                    |
//! |     72 |   408 | wrapped          | the data key, encrypted, and its tag; the rest zeros                        |
//! |    480 |    32 | header_code      | `BLAKE3(seal key, bytes 0..480)`                                            |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::LittleEndian;

use crate::arenas::address::ArenaId;
use zeroize::Zeroizing;

use crate::keys::cipher::{WrapError, constant_time_equal, unwrap_secret, wrap_secret};
use crate::keys::hpke;
use crate::keys::log_keys::{Hex, LogKeys, Wrapping};

/// The length of an arena's header in bytes. A later version may add to it, and record that in
/// `header_bytes`; its first bytes stay as they are, with their code.
pub const ARENA_HEADER_BYTES: usize = 512;

const MAGIC: [u8; 8] = *b"varveAR1";
const CODED_BYTES: usize = 480;
/// The associated data of the wrapped data key.
const WRAP_ASSOCIATED_BYTES: usize = 72;
const WRAPPED_BYTES: usize = 48;

/// The version of an arena's format. A later version may hold everything that an earlier one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ArenaVersion {
    /// Its clumps are never framed.
    Unframed = 1,
    /// It holds no notes, and no catalog of it omits forgotten snapshots. Programs from before
    /// retention read it.
    #[default]
    Framed = 2,
    /// It holds no deltas.
    Notes = 3,
    /// The newest version.
    Deltas = 4,
}

impl ArenaVersion {
    const NEWEST: Self = Self::Deltas;

    fn number(self) -> u32 {
        self as u32
    }

    fn of_number(number: u32) -> Option<Self> {
        let all = [Self::Unframed, Self::Framed, Self::Notes, Self::Deltas];
        all.into_iter().find(|version| version.number() == number)
    }
}

/// The identity of an arena. Its code has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaHeader {
    pub store_id: [u8; 16],
    pub arena: ArenaId,
    /// The number of times that the arena was rewritten.
    pub generation: u32,
    /// Random. No two arenas of any store share it.
    pub uid: [u8; 16],
    version: ArenaVersion,
    wrapped_data_key: WrappedDataKey,
    code: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum WrappedDataKey {
    None,
    UnderWrapKey([u8; WRAPPED_BYTES]),
    ToWriteKey([u8; hpke::SEALED_BYTES]),
}

/// The reason why bytes are not the header of this store's arena.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArenaHeaderError {
    /// The file is not an arena, or the first bytes of an arena are lost.
    #[error("this is not an arena")]
    NotAnArena,
    /// A newer program wrote it.
    #[error(
        "it has format version {version}; this program reads version {newest}: use a newer version of it",
        newest = ArenaVersion::NEWEST.number()
    )]
    NewerVersion { version: u32 },
    /// The arena was copied here from another store.
    #[error("it belongs to store {actual}")]
    ForeignStore { actual: String },
    /// The file of one arena was put in the place of another.
    #[error("the file is arena {actual}: it was renamed, or copied over this one")]
    Swapped {
        /// The number in the header.
        actual: ArenaId,
    },
    /// The code does not match: the header is damaged or forged.
    #[error("its header is damaged")]
    Forged,
    /// The data key cannot be opened with this store's read key.
    #[error("its data key is damaged")]
    DataKey,
}

pub(crate) struct NewArena<'a> {
    pub(crate) store_id: [u8; 16],
    pub(crate) arena: ArenaId,
    pub(crate) generation: u32,
    pub(crate) version: ArenaVersion,
    pub(crate) uid: [u8; 16],
    pub(crate) data_key: &'a [u8; 32],
    /// Random. Seals the data key if the writer has no read key to wrap it with, and is then
    /// dropped.
    pub(crate) ephemeral: &'a [u8; 32],
}

impl ArenaHeader {
    /// The length of the header. The first record follows it.
    pub const BYTES: u64 = ARENA_HEADER_BYTES as u64;

    /// Makes the header of a new arena, and its bytes.
    ///
    /// # Errors
    /// [`WrapError`] when the write key is not a valid public key.
    pub(crate) fn create(new: &NewArena<'_>, keys: &LogKeys) -> Result<(Self, Vec<u8>), WrapError> {
        let wrapping = keys.wrapping(&new.uid);
        let (wrap, wrapped_bytes) = match &wrapping {
            Wrapping::None => (0_u32, 0_u32),
            Wrapping::ReadKey(_) => (1, 48),
            Wrapping::WriteKey(_) => (2, 80),
        };
        let mut bytes = Vec::with_capacity(ARENA_HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&new.version.number().to_le_bytes());
        bytes.extend_from_slice(&512_u32.to_le_bytes());
        bytes.extend_from_slice(&new.store_id);
        bytes.extend_from_slice(&new.arena.0.to_le_bytes());
        bytes.extend_from_slice(&new.generation.to_le_bytes());
        bytes.extend_from_slice(&u32::from(keys.is_encrypted()).to_le_bytes());
        bytes.extend_from_slice(&new.uid);
        bytes.extend_from_slice(&wrap.to_le_bytes());
        bytes.extend_from_slice(&wrapped_bytes.to_le_bytes());
        let wrapped_data_key = match wrapping {
            Wrapping::None => WrappedDataKey::None,
            Wrapping::ReadKey(key) => {
                let wrapped = wrap_secret(&key, &bytes, new.data_key);
                WrappedDataKey::UnderWrapKey(wrapped.try_into().map_err(|_| WrapError)?)
            }
            Wrapping::WriteKey(write) => {
                let sealed = hpke::seal(write, new.ephemeral, &seal_info(&bytes), new.data_key)?;
                WrappedDataKey::ToWriteKey(sealed)
            }
        };
        bytes.extend_from_slice(match &wrapped_data_key {
            WrappedDataKey::None => &[],
            WrappedDataKey::UnderWrapKey(wrapped) => wrapped,
            WrappedDataKey::ToWriteKey(sealed) => sealed,
        });
        bytes.resize(CODED_BYTES, 0);
        let code = keys.seal_code(&[&bytes]);
        bytes.extend_from_slice(&code);
        let header = Self {
            store_id: new.store_id,
            arena: new.arena,
            generation: new.generation,
            uid: new.uid,
            version: new.version,
            wrapped_data_key,
            code,
        };
        Ok((header, bytes))
    }

    /// Parses and checks the header of the arena that is expected to be `arena` of `store_id`.
    pub(crate) fn decode(
        bytes: &[u8; ARENA_HEADER_BYTES],
        keys: &LogKeys,
        store_id: [u8; 16],
        arena: ArenaId,
    ) -> Result<Self, ArenaHeaderError> {
        let (coded, code) = bytes.split_at(CODED_BYTES);
        let mut decoder = LittleEndian::new(coded);
        if decoder.array() != Some(MAGIC) {
            return Err(ArenaHeaderError::NotAnArena);
        }
        let number = decoder.u32().filter(|number| *number > 0).ok_or(ArenaHeaderError::NotAnArena)?;
        let version = match ArenaVersion::of_number(number) {
            Some(version) => version,
            // The place of the code is the same in all versions. So a damaged header is not
            // mistaken for a newer one, and a newer header is not mistaken for a damaged one.
            None if constant_time_equal(&keys.seal_code(&[coded]), code) => {
                return Err(ArenaHeaderError::NewerVersion { version: number });
            }
            None => ArenaVersion::NEWEST,
        };
        if !constant_time_equal(&keys.seal_code(&[coded]), code) {
            // The code has failed. Only the error is chosen here: another store's arena, or a
            // damaged one of this store.
            let actual = coded.get(16..32).unwrap_or_default();
            return Err(if actual == store_id {
                ArenaHeaderError::Forged
            } else {
                ArenaHeaderError::ForeignStore { actual: Hex(actual).to_string() }
            });
        }
        let header = Self::fields(version, decoder, code).ok_or(ArenaHeaderError::Forged)?;
        if header.store_id != store_id {
            return Err(ArenaHeaderError::ForeignStore { actual: Hex(&header.store_id).to_string() });
        }
        if header.arena != arena {
            return Err(ArenaHeaderError::Swapped { actual: header.arena });
        }
        Ok(header)
    }

    /// Returns the store in the first bytes of an arena; `None` if they are not a header. The code
    /// is not checked.
    #[must_use]
    pub fn claimed_store(bytes: &[u8]) -> Option<[u8; 16]> {
        let mut decoder = LittleEndian::new(bytes);
        let is_header =
            decoder.array() == Some(MAGIC) && decoder.u32().is_some() && decoder.u32() == Some(512);
        if is_header { decoder.array() } else { None }
    }

    /// The number of bytes that [`claims_encryption`](Self::claims_encryption) needs.
    pub const CLAIM_BYTES: usize = 72;

    /// Returns true if the first bytes of an arena claim that it is encrypted; `None` if they are
    /// not a header. The code is not checked, so the fields must agree: a flipped bit claims
    /// nothing.
    #[must_use]
    pub fn claims_encryption(bytes: &[u8]) -> Option<bool> {
        Self::claimed_store(bytes)?;
        let mut decoder = LittleEndian::new(bytes.get(44..)?);
        let (cipher, _uid) = (decoder.u32()?, decoder.array::<16>()?);
        match (cipher, decoder.u32()?, decoder.u32()?) {
            (0, 0, 0) => Some(false),
            (1.., 1, 48) | (1.., 2, 80) => Some(true),
            _ => None,
        }
    }

    fn fields(version: ArenaVersion, mut decoder: LittleEndian<'_>, code: &[u8]) -> Option<Self> {
        if decoder.u32()? != 512 {
            return None;
        }
        let store_id = decoder.array()?;
        let arena = ArenaId(decoder.u64()?);
        let generation = decoder.u32()?;
        let _cipher = decoder.u32()?;
        let uid = decoder.array()?;
        let wrapped_data_key = match (decoder.u32()?, decoder.u32()?) {
            (0, 0) => WrappedDataKey::None,
            (1, 48) => WrappedDataKey::UnderWrapKey(decoder.array()?),
            (2, 80) => WrappedDataKey::ToWriteKey(decoder.array()?),
            _ => return None,
        };
        let code = code.try_into().ok()?;
        Some(Self { store_id, arena, generation, uid, version, wrapped_data_key, code })
    }

    /// Returns the header's code, which the seal covers.
    #[must_use]
    pub fn code(&self) -> &[u8; 32] {
        &self.code
    }

    /// Returns true if a writer with a write-only key began the arena. Only such a writer writes to
    /// it.
    #[must_use]
    pub fn is_write_only(&self) -> bool {
        matches!(self.wrapped_data_key, WrappedDataKey::ToWriteKey(_))
    }

    /// Returns the version of the arena's format.
    #[must_use]
    pub fn version(&self) -> ArenaVersion {
        self.version
    }

    /// Returns true if a clump of the arena may hold deltas. A writer that cannot read can make
    /// none.
    #[must_use]
    pub fn may_hold_deltas(&self) -> bool {
        self.version >= ArenaVersion::Deltas && !self.is_write_only()
    }

    /// Returns true if a writer that can read may append to the arena what `version` defines.
    pub(crate) fn takes_more(&self, version: ArenaVersion) -> bool {
        self.version >= version && !self.is_write_only()
    }

    /// Returns the key of the clumps; `None` if the arena is not encrypted, or if these keys cannot
    /// read.
    pub(crate) fn data_key(
        &self,
        bytes: &[u8; ARENA_HEADER_BYTES],
        keys: &LogKeys,
    ) -> Result<Option<Zeroizing<[u8; 32]>>, ArenaHeaderError> {
        let associated = bytes.get(..WRAP_ASSOCIATED_BYTES).unwrap_or_default();
        let opened = match &self.wrapped_data_key {
            WrappedDataKey::None => return Ok(None),
            WrappedDataKey::UnderWrapKey(wrapped) => {
                let Some(key) = keys.wrap_key(&self.uid) else { return Ok(None) };
                unwrap_secret(&key, associated, wrapped)
            }
            WrappedDataKey::ToWriteKey(sealed) => {
                let Some(key) = keys.open_key() else { return Ok(None) };
                hpke::open(key, &seal_info(associated), sealed)
            }
        };
        let opened = opened.map_err(|_| ArenaHeaderError::DataKey)?;
        let mut data_key = Zeroizing::new([0; 32]);
        data_key.copy_from_slice(opened.get(..32).ok_or(ArenaHeaderError::DataKey)?);
        Ok(Some(data_key))
    }
}

/// The `info` of HPKE: it binds a sealed data key to this arena.
fn seal_info(associated: &[u8]) -> Vec<u8> {
    [b"varve 1 data key", associated].concat()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn created(keys: &LogKeys) -> (ArenaHeader, [u8; ARENA_HEADER_BYTES]) {
        let new = NewArena {
            store_id: [1; 16],
            arena: ArenaId(3),
            generation: 4,
            version: ArenaVersion::default(),
            uid: [2; 16],
            data_key: &[5; 32],
            ephemeral: &[6; 32],
        };
        let (header, bytes) = ArenaHeader::create(&new, keys).unwrap();
        (header, bytes.try_into().unwrap())
    }

    #[test]
    fn no_flipped_bit_makes_a_plain_header_claim_encryption() {
        let claim = |bytes: &[u8]| ArenaHeader::claims_encryption(&bytes[..ArenaHeader::CLAIM_BYTES]);
        assert_eq!(claim(&created(&LogKeys::from_master(&[9; 32])).1), Some(true));
        let (_, plain) = created(&LogKeys::plain(&[9; 32]));
        assert_eq!(claim(&plain), Some(false));
        for bit in 0..8 * ArenaHeader::CLAIM_BYTES {
            let mut flipped = plain;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(claim(&flipped), Some(true), "bit {bit}");
        }
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        for keys in [LogKeys::from_master(&[9; 32]), LogKeys::plain(&[9; 32])] {
            let (header, bytes) = created(&keys);
            assert_eq!(ArenaHeader::decode(&bytes, &keys, [1; 16], ArenaId(3)), Ok(header.clone()));
            let data_key = keys.is_encrypted().then_some(Zeroizing::new([5; 32]));
            assert_eq!(header.data_key(&bytes, &keys), Ok(data_key));
        }
    }

    #[test]
    fn whoever_may_only_write_cannot_open_even_what_they_wrote() {
        let full = LogKeys::from_master(&[9; 32]);
        let writer = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
        let (header, bytes) = created(&writer);
        assert_eq!(ArenaHeader::decode(&bytes, &writer, [1; 16], ArenaId(3)), Ok(header.clone()));
        assert_eq!(ArenaHeader::decode(&bytes, &full, [1; 16], ArenaId(3)), Ok(header.clone()));
        assert_eq!(header.data_key(&bytes, &full), Ok(Some(Zeroizing::new([5; 32]))));
        assert_eq!(header.data_key(&bytes, &writer), Ok(None));
        assert_eq!(created(&full).0.data_key(&created(&full).1, &writer), Ok(None));
    }

    #[test]
    fn every_flip_is_noticed() {
        let full = LogKeys::from_master(&[9; 32]);
        let writer = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
        for keys in [full, writer] {
            let (_, good) = created(&keys);
            for bit in 0..ARENA_HEADER_BYTES * 8 {
                let mut bytes = good;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(ArenaHeader::decode(&bytes, &keys, [1; 16], ArenaId(3)).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn strangers_are_named() {
        let keys = LogKeys::from_master(&[9; 32]);
        let (_, mut bytes) = created(&keys);
        let decode =
            |bytes: &_, id, arena| ArenaHeader::decode(bytes, &keys, id, ArenaId(arena)).unwrap_err();
        assert_eq!(decode(&bytes, [1; 16], 4), ArenaHeaderError::Swapped { actual: ArenaId(3) });
        assert_eq!(decode(&bytes, [7; 16], 3), ArenaHeaderError::ForeignStore { actual: "01".repeat(16) });
        assert_eq!(decode(&[0; ARENA_HEADER_BYTES], [1; 16], 3), ArenaHeaderError::NotAnArena);
        bytes[8] = 5;
        assert_eq!(decode(&bytes, [1; 16], 3), ArenaHeaderError::Forged);
        let code = keys.seal_code(&[&bytes[..CODED_BYTES]]);
        bytes[CODED_BYTES..].copy_from_slice(&code);
        assert_eq!(decode(&bytes, [1; 16], 3), ArenaHeaderError::NewerVersion { version: 5 });
    }
}

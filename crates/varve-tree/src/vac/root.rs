//! The root of an archive: a block of type root, of 300 bytes. Big-endian.
//!
//! | at  | size | what         |                                                                         |
//! |----:|-----:|--------------|-------------------------------------------------------------------------|
//! |   0 |    2 | version      | 2; with the highest bit set if the block size is in its big form        |
//! |   2 |  128 | name         | filled up with zeros                                                    |
//! | 130 |  128 | kind         | `vac`, `ext2`, `ffs`, `hfs`, `file`; filled up with zeros               |
//! | 258 |   20 | score        | of the block of directory entries that the archive begins with         |
//! | 278 |    2 | block_bytes  | the largest block of data                                               |
//! | 280 |   20 | previous     | the root that this archive follows; twenty zero bytes if there is none  |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BLOCK_BYTES_MAX, Score, to_usize};

use super::{VENTI_SCORE_BYTES, decode_big, encode_big};

/// The size of a root.
pub(crate) const VENTI_ROOT_BYTES: usize = 300;

const TEXT_BYTES: usize = 128;
const VERSION: u16 = 2;
const BIG: u16 = 0x8000;
const BLOCK_BYTES_MIN: u32 = 256;

/// The root of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VentiRoot {
    /// The name that its maker gave it; vac leaves it empty.
    pub name: Vec<u8>,
    /// The kind of archive.
    pub kind: Vec<u8>,
    /// The block of directory entries that leads to the whole archive.
    pub score: Score,
    /// The largest block of data.
    pub block_bytes: u32,
    /// The preceding root.
    pub previous: Option<Score>,
}

/// The reason why a block is not a root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeVentiRootError {
    #[error("a root of {actual} bytes is invalid: it has {VENTI_ROOT_BYTES} bytes")]
    Length { actual: usize },
    #[error("root version {version} is unknown: {VERSION} is supported")]
    Version { version: u16 },
    /// The size is not that of any block.
    #[error(
        "the root's block size of {bytes} bytes is invalid: it must be {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX}"
    )]
    BlockBytes { bytes: u32 },
}

impl VentiRoot {
    /// Decodes a root.
    ///
    /// # Errors
    /// [`DecodeVentiRootError`] names the field that no writer would have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeVentiRootError> {
        let length = || DecodeVentiRootError::Length { actual: bytes.len() };
        let whole: &[u8; VENTI_ROOT_BYTES] = bytes.try_into().map_err(|_| length())?;
        let (version, rest) = whole.split_first_chunk::<2>().ok_or_else(length)?;
        let (name, rest) = rest.split_first_chunk::<TEXT_BYTES>().ok_or_else(length)?;
        let (kind, rest) = rest.split_first_chunk::<TEXT_BYTES>().ok_or_else(length)?;
        let (score, rest) = rest.split_first_chunk::<VENTI_SCORE_BYTES>().ok_or_else(length)?;
        let (block_bytes, previous) = rest.split_first_chunk::<2>().ok_or_else(length)?;
        let version = u16::from_be_bytes(*version);
        if version & !BIG != VERSION {
            return Err(DecodeVentiRootError::Version { version: version & !BIG });
        }
        let raw = u16::from_be_bytes(*block_bytes);
        let block_bytes =
            if version & BIG == 0 { u32::from(raw) } else { decode_big(raw).unwrap_or(u32::MAX) };
        let in_range = to_usize(block_bytes) <= BLOCK_BYTES_MAX;
        if block_bytes < BLOCK_BYTES_MIN || !in_range {
            return Err(DecodeVentiRootError::BlockBytes { bytes: block_bytes });
        }
        let is_there = previous.iter().any(|byte| *byte != 0);
        Ok(Self {
            name: text(name).to_vec(),
            kind: text(kind).to_vec(),
            score: Score::try_from(score.as_slice()).map_err(|_| length())?,
            block_bytes,
            previous: Score::try_from(previous).ok().filter(|_| is_there),
        })
    }

    /// Encodes the block. Returns `None` if a text is too long, or if the block size cannot be
    /// represented.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (version, block_bytes) = match u16::try_from(self.block_bytes) {
            Ok(small) => (VERSION, small),
            Err(_) => (VERSION | BIG, encode_big(self.block_bytes)?),
        };
        let mut bytes = Vec::with_capacity(VENTI_ROOT_BYTES);
        bytes.extend_from_slice(&version.to_be_bytes());
        for text in [&self.name, &self.kind] {
            let filler = TEXT_BYTES.checked_sub(text.len())?;
            bytes.extend_from_slice(text);
            bytes.resize(bytes.len().saturating_add(filler), 0);
        }
        bytes.extend_from_slice(self.score.as_bytes());
        bytes.extend_from_slice(&block_bytes.to_be_bytes());
        bytes.extend_from_slice(
            self.previous.as_ref().map_or(&[0; VENTI_SCORE_BYTES], |score| score.as_bytes()),
        );
        (bytes.len() == VENTI_ROOT_BYTES).then_some(bytes)
    }
}

/// Returns the bytes before the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(block_bytes: u32, previous: Option<Score>) -> VentiRoot {
        let score = Score::try_from([7; 20].as_slice()).unwrap();
        VentiRoot { name: b"disk.img".to_vec(), kind: b"ext2".to_vec(), score, block_bytes, previous }
    }

    #[test]
    fn roots_survive() {
        for (block_bytes, previous) in [(8192, None), (65_536, Score::try_from([9; 20].as_slice()).ok())] {
            let root = root(block_bytes, previous);
            assert_eq!(VentiRoot::decode(&root.encode().unwrap()), Ok(root));
        }
    }

    #[test]
    fn what_is_no_root_is_refused() {
        let good = root(8192, None).encode().unwrap();
        assert_eq!(VentiRoot::decode(&good[1..]), Err(DecodeVentiRootError::Length { actual: 299 }));
        let with = |at: usize, bytes: [u8; 2]| {
            let mut bad = good.clone();
            bad[at..at + 2].copy_from_slice(&bytes);
            VentiRoot::decode(&bad).unwrap_err()
        };
        assert_eq!(with(0, [0, 3]), DecodeVentiRootError::Version { version: 3 });
        assert_eq!(with(278, [0, 255]), DecodeVentiRootError::BlockBytes { bytes: 255 });
        let long = VentiRoot { name: vec![b'x'; 129], ..root(8192, None) };
        assert_eq!(long.encode(), None);
    }
}

//! The name of a block.

use crate::hex::{FromHexError, from_hex, to_hex};

/// The width of the widest score: a BLAKE3 hash. SHA-1 takes 20 bytes of it, an address 24.
pub const SCORE_BYTES_MAX: usize = 32;

/// The name of a block: its hash in a by-hash store, its address in a by-value one.
///
/// All scores of one store have the same width. The bytes beyond the width are zero, so that scores
/// of one width are ordered and compared like their bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score {
    bytes: [u8; SCORE_BYTES_MAX],
    width: u8,
}

/// A slice is too short or too long to be a score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a score of {actual} bytes is invalid: a score has 1 to {SCORE_BYTES_MAX} bytes")]
pub struct ScoreFromSliceError {
    /// The length of the slice.
    pub actual: usize,
}

impl Score {
    /// Returns the bytes of this score, as many as the scores of its store have.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.width)]
    }

    /// Decodes a score from hexadecimal of either case.
    ///
    /// # Errors
    /// [`FromHexError`] when `text` is not hexadecimal; a text of the wrong length counts as one of
    /// odd length.
    pub fn from_hex(text: &str) -> Result<Self, FromHexError> {
        let bytes = from_hex(text)?;
        Self::try_from(bytes.as_slice()).map_err(|_| FromHexError::OddLength { digits: text.len() })
    }
}

impl From<[u8; 32]> for Score {
    fn from(bytes: [u8; 32]) -> Self {
        Self { bytes, width: 32 }
    }
}

impl TryFrom<&[u8]> for Score {
    type Error = ScoreFromSliceError;

    fn try_from(slice: &[u8]) -> Result<Self, ScoreFromSliceError> {
        let width = u8::try_from(slice.len()).unwrap_or(u8::MAX);
        let mut bytes = [0; SCORE_BYTES_MAX];
        match bytes.get_mut(..slice.len()) {
            Some(place) if width > 0 => place.copy_from_slice(slice),
            _ => return Err(ScoreFromSliceError { actual: slice.len() }),
        }
        Ok(Self { bytes, width })
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(self.as_bytes()))
    }
}

impl std::fmt::Debug for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Score({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_keeps_its_width() {
        let sha1 = Score::try_from([7u8; 20].as_slice()).unwrap();
        assert_eq!(sha1.as_bytes(), [7u8; 20]);
        assert_eq!(Score::from_hex(&sha1.to_string()), Ok(sha1));
        assert_ne!(sha1, Score::try_from([[7u8; 20].as_slice(), &[0; 12]].concat().as_slice()).unwrap());
    }

    #[test]
    fn too_long_and_empty_are_refused() {
        assert_eq!(Score::try_from([0u8; 33].as_slice()), Err(ScoreFromSliceError { actual: 33 }));
        assert_eq!(Score::try_from([0u8; 0].as_slice()), Err(ScoreFromSliceError { actual: 0 }));
    }
}

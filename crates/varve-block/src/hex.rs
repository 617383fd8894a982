//! Hexadecimal, as scores and keys are shown to users.

/// The reason why a text is not hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FromHexError {
    /// Each byte needs two digits.
    #[error("{digits} hexadecimal digits: an even number is needed")]
    OddLength { digits: usize },
    /// The text has a character other than `0-9`, `a-f` or `A-F`.
    #[error("character {position} is not a hexadecimal digit")]
    NotADigit {
        /// The position of the character, counted from 0.
        position: usize,
    },
}

/// Encodes `bytes` in lower-case hexadecimal.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

/// Decodes hexadecimal of either case.
///
/// # Errors
/// [`FromHexError`] when `text` is not an even number of hexadecimal digits.
pub fn from_hex(text: &str) -> Result<Vec<u8>, FromHexError> {
    if !text.len().is_multiple_of(2) {
        return Err(FromHexError::OddLength { digits: text.len() });
    }
    let digits = text
        .bytes()
        .enumerate()
        .map(|(position, digit)| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            b'A'..=b'F' => Ok(digit - b'A' + 10),
            _ => Err(FromHexError::NotADigit { position }),
        })
        .collect::<Result<Vec<u8>, _>>()?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)), Ok(all.clone()));
        assert_eq!(from_hex(&to_hex(&all).to_uppercase()), Ok(all));
    }

    #[test]
    fn bad_text_is_named() {
        assert_eq!(from_hex("abc"), Err(FromHexError::OddLength { digits: 3 }));
        assert_eq!(from_hex("ab0g"), Err(FromHexError::NotADigit { position: 3 }));
        assert_eq!(from_hex("é"), Err(FromHexError::NotADigit { position: 0 }));
    }
}

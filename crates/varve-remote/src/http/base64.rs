//! Base64 (RFC 4648), for headers and keys.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes in the standard alphabet, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for piece in bytes.chunks(3) {
        let number =
            (0..3).fold(0_usize, |number, at| number << 8 | usize::from(*piece.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = DIGITS[number >> (18 - 6 * at) & 63];
            text.push(if at <= piece.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Decodes a text with or without padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut number, mut bit_count) = (0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = DIGITS.iter().position(|&known| known == digit)?;
        number = number << 6 | u32::try_from(value).ok()?;
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push(number.checked_shr(bit_count)?.to_le_bytes()[0]);
        }
        number &= 0xff;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(decode("Zm9v!"), None);
    }
}

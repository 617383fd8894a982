//! Converts names of foreign formats to bytes that a path may contain.
//!
//! A character that a path cannot contain (`/`, NUL, an unpaired surrogate of UTF-16) becomes `%`
//! and its number in hexadecimal. In such a name each `%` is escaped too. The same name always
//! gives the same result.

use std::fmt::Write;

/// The upper half of code page 437, in which names of DOS are written.
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Converts a name in UTF-16.
pub(crate) fn from_utf16(units: impl IntoIterator<Item = u16>) -> Vec<u8> {
    shown(char::decode_utf16(units).map(|read| read.map_err(|lone| u32::from(lone.unpaired_surrogate()))))
}

/// Converts a name in code page 437, one byte for each character.
pub(crate) fn from_code_page(bytes: &[u8]) -> Vec<u8> {
    shown(bytes.iter().map(|byte| Ok(character(*byte))))
}

/// Converts a name whose bytes are used as they are.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| !matches!(byte, b'/' | 0);
    if bytes.iter().all(is_plain) && !matches!(bytes, b"" | b"." | b"..") {
        return bytes.to_vec();
    }
    let mut name = Vec::new();
    for byte in bytes {
        if is_plain(byte) && !matches!(byte, b'%' | b'.') {
            name.push(*byte);
        } else {
            name.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    if name.is_empty() { b"%".to_vec() } else { name }
}

/// Decodes a character of code page 437.
fn character(byte: u8) -> char {
    let upper = byte.checked_sub(0x80).and_then(|place| CODE_PAGE_437.chars().nth(usize::from(place)));
    upper.unwrap_or(char::from(byte))
}

fn shown(characters: impl Iterator<Item = Result<char, u32>>) -> Vec<u8> {
    let characters: Vec<_> = characters.collect();
    let is_plain = |read: &Result<char, u32>| !matches!(read, Ok('/' | '\0') | Err(_));
    let is_dots = matches!(characters.as_slice(), [] | [Ok('.')] | [Ok('.'), Ok('.')]);
    let mut name = String::new();
    if characters.iter().all(is_plain) && !is_dots {
        name.extend(characters.iter().flatten());
        return name.into_bytes();
    }
    for read in &characters {
        // Writing to a string cannot fail.
        let _ = match read {
            Ok(escaped @ ('/' | '\0' | '%')) => write!(name, "%{:02X}", u32::from(*escaped)),
            Ok('.') if is_dots => name.write_str("%2E"),
            Ok(plain) => name.write_char(*plain),
            Err(lone) => write!(name, "%{lone:04X}"),
        };
    }
    if name.is_empty() {
        name.push('%');
    }
    name.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u8> {
        from_utf16(text.encode_utf16())
    }

    #[test]
    fn every_name_is_one_that_a_path_can_have() {
        for (given, expected) in [
            ("grün 🦀.txt", "grün 🦀.txt"),
            ("50%", "50%"),
            ("a/b", "a%2Fb"),
            ("a/50%", "a%2F50%25"),
            ("a\0", "a%00"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("", "%"),
        ] {
            assert_eq!(String::from_utf8(wide(given)).unwrap(), expected, "{given:?}");
            assert!(!from_code_page(given.as_bytes()).contains(&b'/'), "{given:?}");
        }
        assert_eq!(from_utf16([0x61, 0xd83e]), b"a%D83E");
        assert_eq!(from_bytes(b"a/\xff%"), b"a%2F\xff%25");
        assert_eq!(from_bytes(b".."), b"%2E%2E");
        assert_eq!(from_bytes(b"\xff%."), b"\xff%.");
    }

    #[test]
    fn old_letters_are_known() {
        assert_eq!(CODE_PAGE_437.chars().count(), 128);
        assert_eq!(from_code_page(b"GR\x9aN"), "GRÜN".as_bytes());
        assert_eq!(from_code_page(&[0xff]), "\u{a0}".as_bytes());
    }
}

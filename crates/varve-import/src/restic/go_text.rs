//! Text as Go's `strconv.Quote` writes it: restic keeps the bytes of names this way. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The bytes that a quoted text stands for; `None` if an escape is malformed. The text is without
/// its quotation marks.
#[must_use]
pub fn unquote(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            push(&mut bytes, c);
            continue;
        }
        match rest.next()? {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            c @ ('\\' | '"' | '\'') => push(&mut bytes, c),
            'x' => bytes.push(u8::try_from(number(&mut rest, 0, 2, 16)?).ok()?),
            'u' => push(&mut bytes, char::from_u32(number(&mut rest, 0, 4, 16)?)?),
            'U' => push(&mut bytes, char::from_u32(number(&mut rest, 0, 8, 16)?)?),
            first @ '0'..='7' => {
                let first = first.to_digit(8)?;
                bytes.push(u8::try_from(number(&mut rest, first, 2, 8)?).ok()?);
            }
            _ => return None,
        }
    }
    Some(bytes)
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Reads `count` more digits behind the digits with the value `first`.
fn number(digits: &mut std::str::Chars<'_>, first: u32, count: u32, radix: u32) -> Option<u32> {
    let mut value = first;
    for _ in 0..count {
        value = value.checked_mul(radix)?.checked_add(digits.next()?.to_digit(radix)?)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_bytes() {
        let cases: [(&str, &[u8]); 8] = [
            ("plain", b"plain"),
            (r#"n\xff\n\"q"#, b"n\xff\n\"q"),
            (r"\a\b\f\r\t\v\\\'", b"\x07\x08\x0c\r\t\x0b\\'"),
            (r"\u00e9", "é".as_bytes()),
            (r"\U0001f600", "😀".as_bytes()),
            ("é", "é".as_bytes()),
            (r"\377\000", b"\xff\0"),
            ("", b""),
        ];
        for (quoted, bytes) in cases {
            assert_eq!(unquote(quoted).as_deref(), Some(bytes), "{quoted}");
        }
        for malformed in [r"\", r"\x", r"\x1", r"\xé1", r"\q", r"\ud800", r"\U99999999", r"\777"] {
            assert_eq!(unquote(malformed), None, "{malformed}");
        }
    }
}

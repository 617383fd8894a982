//! The name of a blob, a pack or another file: its SHA-256.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResticId(pub [u8; 32]);

impl ResticId {
    /// The id of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut id = [0; 32];
        let hash = digest(&SHA256, bytes);
        id.iter_mut().zip(hash.as_ref()).for_each(|(to, from)| *to = *from);
        Self(id)
    }

    /// The id that the text is; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = value(high)? << 4 | value(low)?;
        }
        Some(Self(id))
    }
}

impl fmt::Display for ResticId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ResticId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<'de> Deserialize<'de> for ResticId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = ResticId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 hexadecimal digits")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ResticId, E> {
                ResticId::parse(text).ok_or_else(|| E::custom("not 64 hexadecimal digits"))
            }
        }
        deserializer.deserialize_str(Digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_it_is_read() {
        let id = ResticId::of(b"");
        assert_eq!(id.to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(ResticId::parse(&id.to_string()), Some(id));
        assert_eq!(ResticId::parse("e3"), None);
        assert_eq!(ResticId::parse(&"g".repeat(64)), None);
        assert_eq!(ResticId::parse(&"é".repeat(32)), None);
    }
}

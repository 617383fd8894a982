//! The names of objects: the SHA-256 of all of an object's bytes, in hexadecimal.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use varve_block::{from_hex, to_hex};

/// The name of an object: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName([u8; 32]);

/// A text that is not the name of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of an object: 64 hexadecimal digits in lower case are needed")]
pub struct ObjectNameError {
    pub text: String,
}

impl ObjectName {
    /// The length of a name in bytes.
    pub const BYTES: usize = 32;

    /// Computes the name of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut name = [0; Self::BYTES];
        name.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(name)
    }

    /// Makes the name with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the path of the object below the publication's address:
    /// `objects/` ‖ two digits ‖ `/` ‖ 64 digits.
    #[must_use]
    pub fn path(&self) -> String {
        let text = self.to_string();
        format!("objects/{}/{text}", text.get(..2).unwrap_or_default())
    }

    /// Returns the name of the object at such a path; `None` for any other path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        let name: Self = path.rsplit_once('/')?.1.parse().ok()?;
        (name.path() == path).then_some(name)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ObjectName {
    type Err = ObjectNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = from_hex(text).ok().and_then(|bytes| bytes.try_into().ok());
        let name = bytes.map(Self).filter(|name| name.to_string() == text);
        name.ok_or_else(|| ObjectNameError { text: text.chars().take(80).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_name_is_what_sha256sum_prints() {
        let name = ObjectName::of(b"");
        assert_eq!(name.to_string(), EMPTY);
        assert_eq!(name.path(), format!("objects/e3/{EMPTY}"));
        assert_eq!(EMPTY.parse(), Ok(name));
        assert_eq!(ObjectName::from_path(&name.path()), Some(name));
    }

    #[test]
    fn a_name_has_one_spelling() {
        let upper = EMPTY.to_uppercase();
        for text in ["", "e3", &EMPTY[..62], &upper, "../../etc/passwd", &format!("{EMPTY}00")] {
            assert!(text.parse::<ObjectName>().is_err(), "{text}");
        }
        for path in
            [EMPTY, &format!("objects/ee/{EMPTY}"), &format!("/objects/e3/{EMPTY}"), "head", "objects/e3"]
        {
            assert_eq!(ObjectName::from_path(path), None, "{path}");
        }
    }
}

//! The version line of each side: `venti-<version>:<version>…-<comment>\n`.

use crate::VERSION_LINE_BYTES_MAX;

/// The beginning of every version line.
const START: &[u8] = b"venti-";

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Lengths of 2 bytes.
    V02,
    /// Lengths of 4 bytes.
    V04,
}

impl Version {
    /// The name in version lines and in hellos.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V02 => "02",
            Self::V04 => "04",
        }
    }

    /// The version of a name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::V02, Self::V04].into_iter().find(|version| version.name().as_bytes() == name)
    }

    /// The length of the length field of a message.
    #[must_use]
    pub const fn length_bytes(self) -> usize {
        match self {
            Self::V02 => 2,
            Self::V04 => 4,
        }
    }

    /// The version line of a side that speaks all versions. Both sides choose the first known
    /// version in the *other* side's list. Lists in different orders would make them choose
    /// differently, so everybody uses this order.
    #[must_use]
    pub const fn line() -> &'static [u8] {
        b"venti-04:02-varve\n"
    }
}

/// Why a version line is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The peer does not speak Venti.
    #[error(
        "byte {at} of the first line is {byte:#04x}: a Venti version line begins with `venti-`, and has only printable ASCII"
    )]
    NotALine {
        /// The number of valid bytes before it.
        at: usize,
        /// The first byte that cannot be there.
        byte: u8,
    },
    /// The line does not end within the limit.
    #[error("the first line is longer than {VERSION_LINE_BYTES_MAX} bytes")]
    TooLong,
    /// There is no common version.
    #[error("the other side offers the versions {offered:?}: only 04 and 02 are supported")]
    NothingInCommon { offered: String },
}

/// The other side's version line, as far as it has arrived.
#[derive(Debug, Default)]
pub struct VersionLine {
    bytes: Vec<u8>,
}

impl VersionLine {
    /// Accepts received bytes, up to the end of the line. Returns the number of bytes taken, and
    /// the version once the line is complete.
    ///
    /// # Errors
    /// [`VersionError`], at the first byte that cannot be part of a version line.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Version>), VersionError> {
        for (taken, &byte) in (1_usize..).zip(bytes) {
            if byte == b'\n' && self.bytes.len() >= START.len() {
                return choose(&self.bytes).map(|version| (taken, Some(version)));
            }
            let expected = START.get(self.bytes.len());
            if expected.is_some_and(|expected| *expected != byte) || !(0x20..0x80).contains(&byte) {
                return Err(VersionError::NotALine { at: self.bytes.len(), byte });
            }
            if self.bytes.len() == VERSION_LINE_BYTES_MAX {
                return Err(VersionError::TooLong);
            }
            self.bytes.push(byte);
        }
        Ok((bytes.len(), None))
    }
}

/// Chooses the first version name after the prefix. Words of the comment count, too, as in other
/// implementations.
fn choose(line: &[u8]) -> Result<Version, VersionError> {
    let words = line.get(START.len()..).unwrap_or_default().split(|byte| matches!(byte, b':' | b'-'));
    words.filter_map(Version::from_name).next().ok_or_else(|| VersionError::NothingInCommon {
        offered: String::from_utf8_lossy(line.get(START.len()..).unwrap_or_default()).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[u8]) -> Result<Option<Version>, VersionError> {
        let whole = VersionLine::default().receive(line).map(|(_, version)| version);
        let mut slowly = VersionLine::default();
        let mut last = Ok(None);
        for byte in line {
            last = slowly.receive(std::slice::from_ref(byte)).map(|(_, version)| version);
            if last.is_err() || matches!(last, Ok(Some(_))) {
                break;
            }
        }
        assert_eq!(last, whole, "byte by byte");
        whole
    }

    #[test]
    fn the_first_known_version_of_the_other_side_is_chosen() {
        for (line, expected) in [
            (&b"venti-04:02-libventi\n"[..], Version::V04),
            (b"venti-02:04-x\n", Version::V02),
            (b"venti-03:02-x\n", Version::V02),
            (b"venti-02\n", Version::V02),
            (b"venti-05-x-04\n", Version::V04),
            (Version::line(), Version::V04),
        ] {
            assert_eq!(read(line), Ok(Some(expected)), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn what_is_no_line_is_refused_at_its_first_wrong_byte() {
        assert_eq!(read(b"GET / HTTP"), Err(VersionError::NotALine { at: 0, byte: b'G' }));
        assert_eq!(read(b"venti\n"), Err(VersionError::NotALine { at: 5, byte: b'\n' }));
        assert_eq!(read(b"venti-04\r\n"), Err(VersionError::NotALine { at: 8, byte: b'\r' }));
        assert_eq!(read(b"venti-04\x80"), Err(VersionError::NotALine { at: 8, byte: 0x80 }));
        assert!(matches!(read(b"venti--x\n"), Err(VersionError::NothingInCommon { .. })));
        assert!(matches!(read(b"venti-03-x\n"), Err(VersionError::NothingInCommon { .. })));
    }

    #[test]
    fn a_line_of_1022_bytes_is_taken_and_a_longer_one_is_not() {
        let line = |length: usize| {
            let mut line = b"venti-04-".to_vec();
            line.resize(length, b'x');
            line.push(b'\n');
            line
        };
        assert_eq!(read(&line(1022)), Ok(Some(Version::V04)));
        assert_eq!(read(&line(1023)), Err(VersionError::TooLong));
    }

    #[test]
    fn what_follows_the_line_is_left() {
        assert_eq!(VersionLine::default().receive(b"venti-02\nabc"), Ok((9, Some(Version::V02))));
    }
}

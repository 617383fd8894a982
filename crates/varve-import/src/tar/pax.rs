//! The records of a PAX header. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use varve_block::to_usize;
use varve_image::{FileTime, Xattr};

/// Prefixes of keys for extended attributes: of star and GNU tar, and of libarchive.
const XATTR: &[u8] = b"SCHILY.xattr.";
const ENCODED_XATTR: &[u8] = b"LIBARCHIVE.xattr.";

/// A PAX header is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a PAX header is malformed")]
pub struct PaxError;

/// The records of one or several PAX headers. A later record replaces an earlier one, except that a
/// sparse file has several pairs of offset and length.
#[derive(Debug, Clone, Default)]
pub(super) struct PaxRecords {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    pairs: Vec<u64>,
}

/// Extended attributes.
#[derive(Debug, Default)]
pub(super) struct PaxXattrs {
    pub(super) xattrs: Vec<Xattr>,
    /// There are access lists in the text form of GNU tar, which are left out.
    pub(super) has_text_acl: bool,
    /// Some values are malformed, and are left out.
    pub(super) has_malformed: bool,
}

impl PaxRecords {
    /// Adds the records of a header: `LENGTH KEY=VALUE\n`, with the length of the whole record.
    /// After an error, it has those before the malformed one.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), PaxError> {
        while !bytes.is_empty() {
            // Zeros up to the end of the block are tolerated.
            if bytes.iter().all(|byte| *byte == 0) {
                return Ok(());
            }
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or(PaxError)?;
            let digits = bytes.get(..space).ok_or(PaxError)?;
            let length = decimal(digits).map(to_usize).ok_or(PaxError)?;
            let (record, rest) = bytes.split_at_checked(length).ok_or(PaxError)?;
            let record = record.get(space..).and_then(|record| record.strip_prefix(b" ")).ok_or(PaxError)?;
            let record = record.strip_suffix(b"\n").ok_or(PaxError)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(PaxError)?;
            let (key, value) = record.split_at_checked(equals).ok_or(PaxError)?;
            let value = value.strip_prefix(b"=").ok_or(PaxError)?;
            if matches!(key, b"GNU.sparse.offset" | b"GNU.sparse.numbytes") {
                self.pairs.push(decimal(value).ok_or(PaxError)?);
            } else if value.is_empty() {
                self.values.remove(key);
            } else {
                self.values.insert(key.to_vec(), value.to_vec());
            }
            bytes = rest;
        }
        Ok(())
    }

    /// The records of this header, on top of those for all files.
    pub(super) fn over(&self, global: &Self) -> Self {
        let mut values = global.values.clone();
        values.extend(self.values.clone());
        Self { values, pairs: self.pairs.clone() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key.as_bytes()).map(Vec::as_slice)
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, PaxError> {
        self.get(key).map(|value| decimal(value).ok_or(PaxError)).transpose()
    }

    /// The offsets and lengths of a sparse file of version 0.0.
    pub(super) fn pairs(&self) -> &[u64] {
        &self.pairs
    }

    pub(super) fn time(&self, key: &str) -> Result<Option<FileTime>, PaxError> {
        self.get(key).map(|value| time(value).ok_or(PaxError)).transpose()
    }

    /// The extended attributes.
    pub(super) fn xattrs(&self) -> PaxXattrs {
        let mut found = PaxXattrs::default();
        for (key, value) in &self.values {
            if let Some(name) = key.strip_prefix(XATTR) {
                found.xattrs.push(Xattr { name: name.to_vec(), value: value.clone() });
            } else if let Some(name) = key.strip_prefix(ENCODED_XATTR)
                && !self.values.contains_key(&[XATTR, name].concat())
            {
                match unpadded(value) {
                    Some(value) => found.xattrs.push(Xattr { name: percent_decoded(name), value }),
                    None => found.has_malformed = true,
                }
            }
        }
        found.has_text_acl = self.values.keys().any(|key| key.starts_with(b"SCHILY.acl."));
        found
    }

    /// The bytes of all records, roughly.
    pub(super) fn bytes(&self) -> usize {
        let values = self.values.iter().map(|(key, value)| key.len().saturating_add(value.len()));
        values.fold(self.pairs.len().saturating_mul(8), usize::saturating_add)
    }
}

/// A decimal number without sign.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Seconds since 1970, with a sign and with decimals.
fn time(text: &[u8]) -> Option<FileTime> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let mut nanoseconds = 0_u32;
    let decimals = parts.next().unwrap_or_default();
    for place in 0..9 {
        let digit = decimals.get(place).map_or(Some(0), |digit| char::from(*digit).to_digit(10))?;
        nanoseconds = nanoseconds.checked_mul(10)?.checked_add(digit)?;
    }
    match (is_negative, nanoseconds) {
        (false, _) => Some(FileTime::new(seconds, nanoseconds)),
        (true, 0) => Some(FileTime::new(seconds.checked_neg()?, 0)),
        (true, _) => Some(FileTime::new(
            seconds.checked_neg()?.checked_sub(1)?,
            1_000_000_000_u32.checked_sub(nanoseconds)?,
        )),
    }
}

/// Base64 with or without padding.
fn unpadded(value: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine;
    let end = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last.saturating_add(1));
    base64::engine::general_purpose::STANDARD_NO_PAD.decode(value.get(..end)?).ok()
}

fn percent_decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        let value = |digit: &u8| char::from(*digit).to_digit(16);
        match after {
            [high, low, after @ ..] if *first == b'%' => {
                let byte =
                    value(high).zip(value(low)).and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
                match byte {
                    Some(byte) => decoded.push(byte),
                    None => decoded.extend([*first, *high, *low]),
                }
                rest = after;
            }
            _ => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn records_have_their_own_length() {
        let mut pax = PaxRecords::default();
        pax.add(b"30 mtime=1350244992.023960108\n21 SCHILY.xattr.u=a\n\n\0\0").unwrap();
        assert_eq!(pax.time("mtime").unwrap(), Some(FileTime::new(1_350_244_992, 23_960_108)));
        assert_eq!(pax.xattrs().xattrs, [Xattr { name: b"u".to_vec(), value: b"a\n".to_vec() }]);
        for bad in [&b"x"[..], b"5 a=b\n", b"99 a=b\n", b"6 ab\n\n", b"0 a=b\n", b"3 a=b\n"] {
            assert_eq!(PaxRecords::default().add(bad), Err(PaxError), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn times_have_signs_and_decimals() {
        assert_eq!(time(b"-1.5"), Some(FileTime::new(-2, 500_000_000)));
        assert_eq!(time(b"-3"), Some(FileTime::new(-3, 0)));
        assert_eq!(time(b"7.0000000019"), Some(FileTime::new(7, 1)));
        assert_eq!(time(b"7.x"), None);
        assert_eq!(time(b""), None);
    }

    #[test]
    fn libarchive_encodes_attributes() {
        assert_eq!(percent_decoded(b"a%3db%zz%"), b"a=b%zz%");
        assert_eq!(unpadded(b"eQ=="), Some(b"y".to_vec()));
        assert_eq!(unpadded(b"eQ"), Some(b"y".to_vec()));
    }
}

//! The header block of a tar entry. Pure.
//!
//! | from   | bytes | part     | meaning                                                          |
//! |-------:|------:|----------|------------------------------------------------------------------|
//! |      0 |   100 | name     | ends at the first zero byte                                      |
//! |    100 |     8 | mode     | numbers are octal digits, or base-256 if the first bit is set    |
//! |    108 |    16 | uid, gid |                                                                  |
//! |    124 |    12 | size     | bytes of data that follow                                        |
//! |    136 |    12 | mtime    | seconds since 1970                                               |
//! |    148 |     8 | checksum | sum of all bytes, with the checksum as spaces                    |
//! |    156 |     1 | type     |                                                                  |
//! |    157 |   100 | linkname | target of a link                                                 |
//! |    257 |     8 | magic    | `ustar\0` 00, or `ustar  \0` of GNU                              |
//! |    329 |    16 | device   | major and minor number                                           |
//! |    345 |   155 | prefix   | only with the first magic: comes before the name                 |
//! |    386 |    96 | sparse   | GNU: 4 pairs of offset and length                                |
//! |    482 |     1 | extended | GNU: more pairs follow in blocks of their own                    |
//! |    483 |    12 | realsize | GNU: size of a sparse file                                       |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

/// The length of a header, and the unit of all data.
pub(super) const BLOCK_BYTES: usize = 512;

pub(super) type HeaderBlock = [u8; BLOCK_BYTES];

const CHECKSUM: Range<usize> = 148..156;

/// Why a block is not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the checksum of a header is wrong")]
    Checksum,
    #[error("a header has a malformed number")]
    Number,
}

/// A header whose checksum is right.
pub(super) struct Header<'a>(&'a HeaderBlock);

impl<'a> Header<'a> {
    /// `None` for a block of zeros, which ends an archive.
    pub(super) fn new(block: &'a HeaderBlock) -> Result<Option<Self>, HeaderError> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Self(block);
        let recorded = number(header.field(CHECKSUM)).ok_or(HeaderError::Checksum)?;
        let counted = |byte: (usize, &u8)| if CHECKSUM.contains(&byte.0) { b' ' } else { *byte.1 };
        let sum: i64 = block.iter().enumerate().map(|byte| i64::from(counted(byte))).sum();
        // Old programs have summed signed bytes.
        let signed: i64 = block.iter().enumerate().map(|byte| i64::from(counted(byte).cast_signed())).sum();
        if recorded == sum || recorded == signed { Ok(Some(header)) } else { Err(HeaderError::Checksum) }
    }

    fn field(&self, range: Range<usize>) -> &'a [u8] {
        self.0.get(range).unwrap_or_default()
    }

    fn text(&self, range: Range<usize>) -> &'a [u8] {
        let field = self.field(range);
        field.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn number(&self, range: Range<usize>) -> Result<i64, HeaderError> {
        number(self.field(range)).ok_or(HeaderError::Number)
    }

    pub(super) fn name(&self) -> Vec<u8> {
        let (name, prefix) = (self.text(0..100), self.text(345..500));
        if self.is_posix() && !prefix.is_empty() { [prefix, b"/", name].concat() } else { name.to_vec() }
    }

    pub(super) fn link_name(&self) -> Vec<u8> {
        self.text(157..257).to_vec()
    }

    pub(super) fn kind(&self) -> u8 {
        self.field(156..157).first().copied().unwrap_or(0)
    }

    pub(super) fn is_posix(&self) -> bool {
        self.field(257..263) == b"ustar\0"
    }

    pub(super) fn mode(&self) -> Result<i64, HeaderError> {
        self.number(100..108)
    }

    pub(super) fn uid(&self) -> Result<i64, HeaderError> {
        self.number(108..116)
    }

    pub(super) fn gid(&self) -> Result<i64, HeaderError> {
        self.number(116..124)
    }

    pub(super) fn size(&self) -> Result<u64, HeaderError> {
        u64::try_from(self.number(124..136)?).map_err(|_| HeaderError::Number)
    }

    pub(super) fn mtime(&self) -> Result<i64, HeaderError> {
        self.number(136..148)
    }

    /// Major and minor number of a device.
    pub(super) fn device(&self) -> Result<(i64, i64), HeaderError> {
        Ok((self.number(329..337)?, self.number(337..345)?))
    }

    /// The first pairs of a sparse file of GNU.
    pub(super) fn sparse(&self) -> Result<Vec<(u64, u64)>, HeaderError> {
        pairs(self.field(386..482))
    }

    /// Returns true if a block with more pairs follows.
    pub(super) fn has_more_pairs(&self) -> bool {
        self.field(482..483) != [0]
    }

    /// The size of a sparse file of GNU.
    pub(super) fn real_size(&self) -> Result<u64, HeaderError> {
        u64::try_from(self.number(483..495)?).map_err(|_| HeaderError::Number)
    }
}

/// The pairs of a block that continues a sparse file of GNU, and whether more blocks follow.
pub(super) fn more_pairs(block: &HeaderBlock) -> (Result<Vec<(u64, u64)>, HeaderError>, bool) {
    let pairs = pairs(block.get(..504).unwrap_or_default());
    (pairs, block.get(504).is_some_and(|more| *more != 0))
}

/// Pairs of offset and length, up to the first empty one.
fn pairs(bytes: &[u8]) -> Result<Vec<(u64, u64)>, HeaderError> {
    let mut found = Vec::new();
    for pair in bytes.chunks_exact(24) {
        let (offset, length) = pair.split_at_checked(12).ok_or(HeaderError::Number)?;
        if offset.first().is_none_or(|first| *first == 0) {
            break;
        }
        let value = |field| number(field).and_then(|value| u64::try_from(value).ok());
        found.push((value(offset).ok_or(HeaderError::Number)?, value(length).ok_or(HeaderError::Number)?));
    }
    Ok(found)
}

/// A number in octal digits, or in base 256.
fn number(field: &[u8]) -> Option<i64> {
    match field.split_first() {
        Some((first, rest)) if first & 0x80 != 0 => {
            // The second bit is the sign, as in two's complement.
            let start = if first & 0x40 != 0 { -1 } else { 0_i64 };
            let start = start.checked_mul(64)?.checked_add(i64::from(first & 0x3f))?;
            rest.iter().try_fold(start, |value, byte| value.checked_mul(256)?.checked_add(i64::from(*byte)))
        }
        _ => {
            let text = field.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
            text.iter().try_fold(0_i64, |value, digit| {
                let digit = char::from(*digit).to_digit(8)?;
                value.checked_mul(8)?.checked_add(i64::from(digit))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"  644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(b"8"), None);
        assert_eq!(number(&[0x80, 0, 0, 1, 0]), Some(256));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff]), Some(-1));
        assert_eq!(number(&[0xbf; 12]), None, "too large");
        assert_eq!(number(b""), Some(0));
    }
}

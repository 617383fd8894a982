//! Arena footer: the last 96 bytes of a sealed arena, after a row for each of its pages. It is
//! written once, after everything before it is durable.
//!
//! | offset | bytes | field      | meaning                                                                           |
//! |-------:|------:|------------|-----------------------------------------------------------------------------------|
//! |      0 |     8 | magic      | `varveSL1`                                                                        |
//! |      8 |     4 | version    | 1                                                                                 |
//! |     12 |     4 | page_count |                                                                                   |
//! |     16 |     8 | log_bytes  | where the page rows begin: the end of the last page, rounded up to a granule      |
//! |     24 |     8 | ordinal    | the number of arenas that were sealed before this one                             |
//! |     32 |    24 | zero       |                                                                                   |
//! |     56 |    32 | seal_code  | `BLAKE3(seal key, "seal" ‖ header_code ‖ page rows ‖ footer bytes 0..56)`         |
//! |     88 |     8 | checksum   | `XXH3` of bytes 0..88                                                             |
//!
//! Invariant: `log_bytes + 24 * page_count + 96` is the length of the file.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{LittleEndian, to_usize};
use xxhash_rust::xxh3::xxh3_64;

use crate::arenas::address::ArenaMap;
use crate::arenas::sectors::{in_sectors, may_be_lost};
use crate::keys::cipher::{CODE_BYTES, constant_time_equal};
use crate::keys::log_keys::LogKeys;
use crate::records::granule::{GRANULE_BYTES, Granule};
use crate::records::record_header::record_bytes;
use crate::records::record_sizes::EMPTY_PAGE_BYTES;

pub(crate) const FOOTER_BYTES: usize = 96;
pub(crate) const PAGE_ROW_BYTES: usize = 24;
pub(crate) const SEAL_CODE_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"varveSL1";
const VERSION: u32 = 1;

/// The place of a page and its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRow {
    pub granule: Granule,
    /// The length of the page's body in bytes.
    pub body_bytes: u32,
    /// The code of the page's header.
    pub code: [u8; CODE_BYTES],
}

impl PageRow {
    /// Returns the offset in the arena at which the next record begins, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.granule.byte_offset().saturating_add(record_bytes(self.body_bytes))
    }

    /// Returns the first place at which a page after this one may begin.
    #[must_use]
    pub fn after(&self) -> Granule {
        Granule(self.granule.0.saturating_add(1))
    }

    /// Returns true if the page names no block. Such a page only marks that everything before it is
    /// durable.
    #[must_use]
    pub fn names_nothing(&self) -> bool {
        self.body_bytes <= EMPTY_PAGE_BYTES
    }
}

/// The footer of a sealed arena. Its checksum and lengths are right. Its code is checked together
/// with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    pub page_count: u32,
    /// The end of the clumps and pages, in bytes.
    pub log_bytes: u64,
    /// The number of arenas that were sealed before this one.
    pub ordinal: u64,
    /// The code over the whole arena.
    pub seal_code: [u8; SEAL_CODE_BYTES],
}

/// The reason why the end of an arena is not a good seal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FooterError {
    /// The file does not end like a sealed arena.
    #[error("it is not sealed")]
    NotSealed,
    /// A newer program sealed the arena.
    #[error(
        "its seal has version {version}; this program reads version {VERSION}: use a newer version of it"
    )]
    NewerVersion { version: u32 },
    /// The code does not match the pages: something was changed, removed, or replaced by an older
    /// state.
    #[error("its seal is damaged")]
    Forged,
}

/// Encodes the page rows and the footer of an arena.
pub(crate) fn seal(
    keys: &LogKeys,
    header_code: &[u8; 32],
    rows: &[PageRow],
    log_bytes: u64,
    ordinal: u64,
) -> (Footer, Vec<u8>) {
    let (page_count, mut bytes) = (count(rows), encode_known(rows, log_bytes));
    let rows_end = rows.len().saturating_mul(PAGE_ROW_BYTES);
    bytes.extend_from_slice(&ordinal.to_le_bytes());
    bytes.extend_from_slice(&[0; 24]);
    let (rows, coded) = bytes.split_at(rows_end);
    let seal_code = keys.seal_code(&[b"seal", header_code, rows, coded]);
    bytes.extend_from_slice(&seal_code);
    let checksum = xxh3_64(bytes.get(rows_end..).unwrap_or_default());
    bytes.extend_from_slice(&checksum.to_le_bytes());
    (Footer { page_count, log_bytes, ordinal, seal_code }, bytes)
}

/// Returns the length of the seal over `page_count` pages, in bytes.
pub(crate) fn seal_bytes(page_count: usize) -> usize {
    page_count.saturating_mul(PAGE_ROW_BYTES).saturating_add(FOOTER_BYTES)
}

/// Returns true if `left` is the remainder of the seal over these pages after a power cut: some of
/// its sectors are there, and the others are zeros or beyond the end of the file. The ordinal and
/// the code are ignored, because they cannot be checked while a part of the seal is missing.
pub(crate) fn is_torn_seal(rows: &[PageRow], log_bytes: u64, left: &[u8]) -> bool {
    let known = encode_known(rows, log_bytes);
    let whole_bytes = seal_bytes(rows.len());
    if left.len() > whole_bytes {
        return false;
    }
    let (mut known, mut is_any_lost) = (known.as_slice(), left.len() < whole_bytes);
    for part in in_sectors(log_bytes, left) {
        let (of_part, after) = known.split_at(part.len().min(known.len()));
        known = after;
        if may_be_lost(part) {
            is_any_lost = true;
        } else if !part.starts_with(of_part) {
            return false;
        }
    }
    is_any_lost
}

/// Encodes the rows and the fields of the footer before its ordinal.
fn encode_known(rows: &[PageRow], log_bytes: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(seal_bytes(rows.len()));
    for row in rows {
        bytes.extend_from_slice(&row.granule.0.to_le_bytes());
        bytes.extend_from_slice(&row.body_bytes.to_le_bytes());
        bytes.extend_from_slice(&row.code);
    }
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count(rows).to_le_bytes());
    bytes.extend_from_slice(&log_bytes.to_le_bytes());
    bytes
}

fn count(rows: &[PageRow]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

impl Footer {
    /// Parses the last bytes of an arena's file, which has `file_bytes`. The code is not checked
    /// yet, but the page count is bounded by the longest arena of this map.
    pub(crate) fn decode(
        bytes: &[u8; FOOTER_BYTES],
        file_bytes: u64,
        map: ArenaMap,
    ) -> Result<Self, FooterError> {
        let (covered, checksum) = bytes.split_at(88);
        let mut decoder = LittleEndian::new(covered);
        if decoder.array() != Some(MAGIC) || checksum != xxh3_64(covered).to_le_bytes() {
            return Err(FooterError::NotSealed);
        }
        match decoder.u32() {
            Some(VERSION) => {}
            version => return Err(FooterError::NewerVersion { version: version.unwrap_or_default() }),
        }
        let footer = Self::fields(decoder).ok_or(FooterError::NotSealed)?;
        let is_possible = footer.log_bytes <= map.log_bytes_max()
            && u64::from(footer.page_count) <= footer.log_bytes / GRANULE_BYTES
            && footer.file_bytes() == Some(file_bytes);
        is_possible.then_some(footer).ok_or(FooterError::NotSealed)
    }

    fn fields(mut decoder: LittleEndian<'_>) -> Option<Self> {
        let page_count = decoder.u32()?;
        let log_bytes = decoder.u64()?;
        let ordinal = decoder.u64()?;
        decoder.take(24)?;
        Some(Self { page_count, log_bytes, ordinal, seal_code: decoder.array()? })
    }

    /// Returns the length of the sealed file; `None` if it overflows.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        self.log_bytes.checked_add(self.rows_bytes() as u64)?.checked_add(FOOTER_BYTES as u64)
    }

    /// Returns the length of the page rows in bytes.
    pub(crate) fn rows_bytes(&self) -> usize {
        to_usize(self.page_count).saturating_mul(PAGE_ROW_BYTES)
    }

    /// Parses the page rows and checks the seal over them.
    pub(crate) fn open(
        &self,
        keys: &LogKeys,
        header_code: &[u8; 32],
        rows: &[u8],
    ) -> Result<Vec<PageRow>, FooterError> {
        let parsed: Option<Vec<_>> = rows.as_chunks::<PAGE_ROW_BYTES>().0.iter().map(page_row).collect();
        let parsed = parsed.ok_or(FooterError::Forged)?;
        let (expected, bytes) = seal(keys, header_code, &parsed, self.log_bytes, self.ordinal);
        let same_rows = bytes.get(..rows.len()) == Some(rows);
        let ordered = parsed.is_sorted_by(|one, next| one.granule < next.granule);
        if same_rows && ordered && constant_time_equal(&expected.seal_code, &self.seal_code) {
            Ok(parsed)
        } else {
            Err(FooterError::Forged)
        }
    }
}

fn page_row(bytes: &[u8; PAGE_ROW_BYTES]) -> Option<PageRow> {
    let mut decoder = LittleEndian::new(bytes);
    Some(PageRow { granule: Granule(decoder.u32()?), body_bytes: decoder.u32()?, code: decoder.array()? })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn sealed() -> (LogKeys, Vec<PageRow>, Vec<u8>) {
        let keys = LogKeys::from_master(&[9; 32]);
        let rows = (1..4).map(|n| PageRow { granule: Granule(n * 10), body_bytes: 77, code: [n as u8; 16] });
        let rows: Vec<_> = rows.collect();
        let (_, bytes) = seal(&keys, &[8; 32], &rows, 8192, 5);
        (keys, rows, bytes)
    }

    fn open(keys: &LogKeys, bytes: &[u8], header_code: &[u8; 32]) -> Result<Vec<PageRow>, FooterError> {
        let (rows, footer) = bytes.split_at(bytes.len() - FOOTER_BYTES);
        let map = ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap();
        let footer = Footer::decode(footer.try_into().unwrap(), 8192 + bytes.len() as u64, map)?;
        footer.open(keys, header_code, rows)
    }

    #[test]
    fn a_seal_claims_no_more_than_an_arena_can_hold() {
        let map = ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap();
        let claimed = |page_count: u32, log_bytes: u64| {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(&MAGIC);
            bytes.extend_from_slice(&VERSION.to_le_bytes());
            bytes.extend_from_slice(&page_count.to_le_bytes());
            bytes.extend_from_slice(&log_bytes.to_le_bytes());
            bytes.resize(88, 0);
            let checksum = xxh3_64(&bytes).to_le_bytes();
            bytes.extend_from_slice(&checksum);
            let file_bytes = log_bytes + u64::from(page_count) * PAGE_ROW_BYTES as u64 + FOOTER_BYTES as u64;
            Footer::decode(bytes.as_slice().try_into().unwrap(), file_bytes, map)
        };
        assert!(claimed(4, 8192).is_ok());
        assert_eq!(claimed(u32::MAX, 8192), Err(FooterError::NotSealed));
        assert_eq!(claimed(4, map.log_bytes_max() + 1), Err(FooterError::NotSealed));
    }

    #[test]
    fn a_seal_opens() {
        let (keys, rows, bytes) = sealed();
        assert_eq!(open(&keys, &bytes, &[8; 32]), Ok(rows));
    }

    #[test]
    fn a_torn_seal_is_told_from_what_is_none() {
        let (_, rows, bytes) = sealed();
        // The offset of the seal in its sector determines the parts that a power cut can take.
        for place in (8192..8192 + 512).step_by(128) {
            let (_, bytes) = seal(&LogKeys::from_master(&[9; 32]), &[8; 32], &rows, place, 5);
            assert!(!is_torn_seal(&rows, place, &bytes), "a whole one is not torn");
            for length in 0..bytes.len() {
                assert!(is_torn_seal(&rows, place, &bytes[..length]), "the file's end at {length}");
            }
            let border = ((512 - place % 512) as usize).min(bytes.len());
            for lost in [0..border, border..bytes.len()] {
                let mut torn = bytes.clone();
                torn[lost.clone()].fill(0);
                assert_eq!(is_torn_seal(&rows, place, &torn), !lost.is_empty(), "lost {lost:?} at {place}");
            }
        }
        let cut = &bytes[..100];
        for bit in 0..(3 * PAGE_ROW_BYTES + 24) * 8 {
            let mut bad = cut.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_torn_seal(&rows, 8192, &bad), "bit {bit}");
        }
        assert!(!is_torn_seal(&rows[1..], 8192, &bytes[..30]), "those of other pages");
        assert!(!is_torn_seal(&rows, 8192, &[&bytes[..], b"more"].concat()), "longer than a seal");
    }

    #[test]
    fn every_flip_and_cut_is_noticed() {
        let (keys, _, bytes) = sealed();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&keys, &bad, &[8; 32]).is_err(), "bit {bit}");
        }
        assert_eq!(open(&keys, &bytes, &[7; 32]), Err(FooterError::Forged), "another arena's header");
        assert_eq!(
            open(&keys, &bytes[PAGE_ROW_BYTES..], &[8; 32]),
            Err(FooterError::NotSealed),
            "a row removed"
        );
    }
}

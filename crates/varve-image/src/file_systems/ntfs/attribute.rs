//! Attributes: the parts of a file's records.
//!
//! | offset | bytes | of every attribute         | offset | bytes | of one outside of its record       |
//! |-------:|------:|----------------------------|-------:|------:|------------------------------------|
//! |      0 |     4 | kind                       |     16 |     8 | its first cluster in the stream    |
//! |      4 |     4 | bytes of the attribute     |     32 |     2 | position of its runs               |
//! |      8 |     1 | 0: its value is here       |     34 |     1 | power of two of a compression unit |
//! |      9 |     1 | letters of its name        |     40 |     8 | allocated bytes                    |
//! |     10 |     2 | position of its name       |     48 |     8 | size                               |
//! |     12 |     2 | flags                      |     56 |     8 | bytes that were ever written       |
//! |     14 |     2 | its number in the record   |        |       |                                    |
//! |     16 |     4 | bytes of the value here    |        |       |                                    |
//! |     20 |     2 | position of the value here |        |       |                                    |
//!
//! Only the first part of a stream has its sizes. The others have clusters that follow it.

use crate::bytes::fields::{u8_at, u16_at, u32_at, u64_at};
use varve_block::to_usize;

pub(super) const STANDARD_INFORMATION: u32 = 0x10;
pub(super) const ATTRIBUTE_LIST: u32 = 0x20;
pub(super) const FILE_NAME: u32 = 0x30;
pub(super) const VOLUME_INFORMATION: u32 = 0x70;
pub(super) const DATA: u32 = 0x80;
pub(super) const INDEX_ROOT: u32 = 0x90;
pub(super) const INDEX_ALLOCATION: u32 = 0xa0;
pub(super) const BITMAP: u32 = 0xb0;
pub(super) const REPARSE_POINT: u32 = 0xc0;
const END: u32 = 0xffff_ffff;

const IS_COMPRESSED: u16 = 0x00ff;
const IS_ENCRYPTED: u16 = 0x4000;
const RESIDENT_HEADER_BYTES: usize = 24;
const OUTSIDE_HEADER_BYTES: usize = 64;

/// An attribute in a record. Its header lies in the record, and its value is not believed yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct NtfsAttribute<'a> {
    bytes: &'a [u8],
}

/// The sizes of a stream, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamSizes {
    pub(super) allocated: u64,
    pub(super) size: u64,
    /// Bytes behind it read as zeros, regardless of the bytes on the disk.
    pub(super) written: u64,
}

impl<'a> NtfsAttribute<'a> {
    /// Returns the attribute at the beginning of `bytes`, and the bytes behind it; `None` at the
    /// end.
    ///
    /// # Errors
    /// The failed check, in words.
    fn split(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, &'static str> {
        if u32_at(bytes, 0) == END || bytes.len() < 8 {
            return Ok(None);
        }
        let length = to_usize(u32_at(bytes, 4));
        let least = if u8_at(bytes, 8) == 0 { RESIDENT_HEADER_BYTES } else { OUTSIDE_HEADER_BYTES };
        let split = bytes.split_at_checked(length).filter(|(attribute, _)| attribute.len() >= least);
        let (bytes, rest) = split.ok_or("it has an attribute of an impossible length")?;
        Ok(Some((Self { bytes }, rest)))
    }

    pub(super) fn kind(self) -> u32 {
        u32_at(self.bytes, 0)
    }

    /// Returns the name as UTF-16; empty for the main stream of a kind.
    pub(super) fn name(self) -> &'a [u8] {
        let at = usize::from(u16_at(self.bytes, 10));
        let length = usize::from(u8_at(self.bytes, 9)).saturating_mul(2);
        self.bytes.get(at..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }

    pub(super) fn is_compressed(self) -> bool {
        u16_at(self.bytes, 12) & IS_COMPRESSED != 0
    }

    pub(super) fn is_encrypted(self) -> bool {
        u16_at(self.bytes, 12) & IS_ENCRYPTED != 0
    }

    /// Returns the value, if it is in the record.
    pub(super) fn resident_value(self) -> Option<&'a [u8]> {
        if u8_at(self.bytes, 8) != 0 {
            return None;
        }
        let at = usize::from(u16_at(self.bytes, 20));
        let length = to_usize(u32_at(self.bytes, 16));
        self.bytes.get(at..)?.get(..length)
    }

    /// Returns true if its value is in clusters of the volume.
    pub(super) fn is_outside(self) -> bool {
        u8_at(self.bytes, 8) != 0
    }

    pub(super) fn first_cluster(self) -> u64 {
        if self.is_outside() { u64_at(self.bytes, 16) } else { 0 }
    }

    pub(super) fn run_bytes(self) -> &'a [u8] {
        self.bytes.get(usize::from(u16_at(self.bytes, 32))..).unwrap_or_default()
    }

    /// Returns the power of two of the clusters that are compressed together.
    pub(super) fn unit_power(self) -> u8 {
        u8_at(self.bytes, 34)
    }

    pub(super) fn sizes(self) -> StreamSizes {
        let [allocated, size, written] = [40, 48, 56].map(|at| u64_at(self.bytes, at));
        StreamSizes { allocated, size, written: written.min(size) }
    }
}

/// Returns the attributes of a record.
///
/// # Errors
/// The failed check, in words.
pub(super) fn attributes(mut bytes: &[u8]) -> Result<Vec<NtfsAttribute<'_>>, &'static str> {
    let mut found = Vec::new();
    while let Some((attribute, rest)) = NtfsAttribute::split(bytes)? {
        found.push(attribute);
        bytes = rest;
    }
    Ok(found)
}

//! Items with a name: entries of folders, and extended attributes.
//!
//! | offset | bytes | of a name                                              |
//! |-------:|------:|---------------------------------------------------------|
//! |      0 |    17 | key of the inode or of the subvolume                   |
//! |     25 |     2 | bytes of the data, which only attributes have          |
//! |     27 |     2 | bytes of the name                                      |
//! |     29 |     1 | kind of the file                                       |
//! |     30 |       | name, then data                                        |
//!
//! An item under a hash has one of these after the other, if several names have the same hash.

use super::key::TreeKey;
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{u8_at, u16_at};

const HEAD_BYTES: usize = 30;
/// The first value of the hash of names.
const HASH_SEED: u32 = !1;

/// A name, with its value or its target.
pub(super) struct NamedItem<'a> {
    pub(super) target: TreeKey,
    pub(super) kind: u8,
    pub(super) name: &'a [u8],
    pub(super) data: &'a [u8],
}

/// Returns the hash of a name.
pub(super) fn name_hash(name: &[u8]) -> u64 {
    crc32c_from(HASH_SEED, name).into()
}

/// Iterates over the names in the data of an item, up to its end or the first invalid name.
pub(super) fn named_items(mut rest: &[u8]) -> impl Iterator<Item = Result<NamedItem<'_>, &'static str>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut rest);
        let name_end = HEAD_BYTES.saturating_add(usize::from(u16_at(bytes, 27)));
        let data_end = name_end.saturating_add(usize::from(u16_at(bytes, 25)));
        let parts = bytes.get(HEAD_BYTES..name_end).zip(bytes.get(name_end..data_end));
        let Some((name, data)) = parts.filter(|(name, _)| !name.is_empty()) else {
            return Some(Err("a name is empty or cut off"));
        };
        rest = bytes.get(data_end..).unwrap_or_default();
        Some(Ok(NamedItem { target: TreeKey::parse(bytes), kind: u8_at(bytes, 29), name, data }))
    })
}

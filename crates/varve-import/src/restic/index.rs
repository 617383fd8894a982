//! Index files: the blobs of each pack. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use serde::Deserialize;
use varve_block::to_usize;

use super::crypto::OVERHEAD_BYTES;
use super::restic_id::ResticId;

/// The longest blob that is read: far above the longest chunk of restic (8 MiB), and above the list
/// of a folder with a million files.
pub(super) const BLOB_BYTES_MAX: u32 = 1 << 30;

/// The kind of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackedKind {
    Data,
    Tree,
}

/// A blob in a pack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackedPlace {
    pub id: ResticId,
    pub kind: PackedKind,
    /// In bytes, from the start of the pack.
    pub offset: u32,
    /// Encrypted, in bytes.
    pub length: u32,
    /// The plain length in bytes if it is compressed.
    pub uncompressed: Option<u32>,
}

/// Why an index file is not used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("it is not an index")]
    Json(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct IndexJson {
    packs: Option<Vec<PackJson>>,
}

#[derive(Deserialize)]
struct PackJson {
    id: ResticId,
    blobs: Option<Vec<PackedJson>>,
}

#[derive(Deserialize)]
struct PackedJson {
    id: ResticId,
    #[serde(rename = "type")]
    kind: PackedKind,
    offset: u64,
    length: u64,
    uncompressed_length: Option<u64>,
}

impl PackedPlace {
    /// The length of the plain bytes.
    #[must_use]
    pub fn plain_bytes(&self) -> u64 {
        let sealed = u64::from(self.length).saturating_sub(OVERHEAD_BYTES as u64);
        self.uncompressed.map_or(sealed, u64::from)
    }

    /// A blob with lengths that are possible.
    pub(super) fn checked(
        id: ResticId,
        kind: PackedKind,
        offset: u64,
        length: u64,
        uncompressed: Option<u64>,
    ) -> Option<Self> {
        let is_possible = |length: u64| u32::try_from(length).ok().filter(|length| *length <= BLOB_BYTES_MAX);
        let uncompressed = match uncompressed {
            Some(0) | None => None,
            Some(length) => Some(is_possible(length)?),
        };
        let (offset, length) = (u32::try_from(offset).ok()?, is_possible(length)?);
        let is_long_enough = to_usize(length) >= OVERHEAD_BYTES;
        is_long_enough.then_some(Self { id, kind, offset, length, uncompressed })
    }
}

/// The packs of an index file, each with its blobs. Blobs with impossible lengths are left out.
///
/// # Errors
/// [`IndexError`].
pub fn parse_index(bytes: &[u8]) -> Result<Vec<(ResticId, Vec<PackedPlace>)>, IndexError> {
    let index: IndexJson = serde_json::from_slice(bytes).map_err(IndexError::Json)?;
    let place = |blob: PackedJson| {
        PackedPlace::checked(blob.id, blob.kind, blob.offset, blob.length, blob.uncompressed_length)
    };
    let pack =
        |pack: PackJson| (pack.id, pack.blobs.unwrap_or_default().into_iter().filter_map(place).collect());
    Ok(index.packs.unwrap_or_default().into_iter().map(pack).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn an_index_lists_packs_and_blobs() {
        let id = "9f5115b517cea09d92bb4ba1273dcefa0a04be1335532a2af61a86649658a193";
        let text = format!(
            r#"{{"supersedes":["{id}"],"packs":[{{"id":"{id}","blobs":[
                {{"id":"{id}","type":"data","offset":46,"length":42,"uncompressed_length":1}},
                {{"id":"{id}","type":"tree","offset":0,"length":46}},
                {{"id":"{id}","type":"data","offset":0,"length":31}},
                {{"id":"{id}","type":"data","offset":99999999999,"length":40}}]}},{{"id":"{id}","blobs":null}}]}}"#
        );
        let packs = parse_index(text.as_bytes()).unwrap();
        assert_eq!(packs.len(), 2);
        assert_eq!(packs[0].1.len(), 2, "impossible lengths are left out");
        assert_eq!((packs[0].1[0].plain_bytes(), packs[0].1[1].plain_bytes()), (1, 14));
        assert!(parse_index(b"{\"packs\":[{\"id\":\"12\"}]}").is_err());
        assert!(parse_index(b"{}").unwrap().is_empty());
    }
}

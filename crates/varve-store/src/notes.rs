//! Notes of the store about its own log, each a block of type note (`BlockType::NOTE`).
//!
//! | offset | bytes | field      | meaning                                                                          |
//! |-------:|------:|------------|----------------------------------------------------------------------------------|
//! |      0 |     4 | kind       | 1: arenas were replaced; 2: barren blocks                                        |
//! |      4 |     4 | row_count  | the number of rows                                                               |
//! |      8 |     4 | part       | the number of this note among those of its list, from 0                          |
//! |     12 |     4 | part_count | the number of notes of its list                                                  |
//! |     16 |    16 | list       | random; notes of one list share it                                               |
//! |     32 |       | rows       | see below                                                                        |
//!
//! A row of a note of kind 1, 80 bytes, in ascending order of arenas:
//!
//! | offset | bytes | field           | meaning                                                                     |
//! |-------:|------:|-----------------|-----------------------------------------------------------------------------|
//! |      0 |     8 | arena           | the number of the arena                                                     |
//! |      8 |     4 | old_generation  | the generation that was replaced                                            |
//! |     12 |     4 | new_generation  | the generation that replaces it                                             |
//! |     16 |    32 | old_seal_code   | the seal code of the replaced generation                                    |
//! |     48 |    32 | new_seal_code   | the seal code of the new generation                                         |
//!
//! A row of a note of kind 2, 8 bytes, in ascending order through the whole list:
//!
//! | offset | bytes | field       | meaning                                                                         |
//! |-------:|------:|-------------|---------------------------------------------------------------------------------|
//! |      0 |     8 | fingerprint | the first 8 bytes of `BLAKE3(score ‖ type)` of a barren block                   |
//!
//! **Replaced arenas.** This note is the commit record of a collector. All new arenas are durable
//! under their own names before it is written, and take the old names after it.
//!
//! **Barren blocks** lead to blocks that a collector may have removed. No snapshot needs them. They
//! count as absent when a block is looked for, so they are stored anew when they are put, after
//! everything below them. Otherwise a caller that skips a subtree whose top is there would rely on
//! removed blocks. The newest complete list counts, for places before it.
//!
//! A note counts only in an arena whose writer could read (its wrap is not 2).
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BLOCK_BYTES_MAX, BlockName, LittleEndian, to_usize};
use varve_log::{ArenaId, Seal};

const KIND_REPLACED: u32 = 1;
const KIND_BARREN: u32 = 2;
const HEADER_BYTES: usize = 32;
const REPLACED_ROW_BYTES: usize = 80;
const BARREN_ROW_BYTES: usize = 8;
/// The most rows in one note of barren blocks.
const BARREN_ROWS_MAX: usize = (BLOCK_BYTES_MAX - HEADER_BYTES) / BARREN_ROW_BYTES;

/// A note of the store about its own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogNote {
    /// These arenas were replaced by later generations of themselves.
    Replaced { list: [u8; 16], arenas: Vec<ReplacedSeal> },
    /// One part of a list of barren blocks.
    Barren(BarrenPart),
}

/// An arena's seal before and after it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedSeal {
    pub arena: ArenaId,
    pub old_generation: u32,
    pub new_generation: u32,
    pub old_code: [u8; 32],
    pub new_code: [u8; 32],
}

/// A part of a list of barren blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarrenPart {
    pub list: [u8; 16],
    pub part: u32,
    pub part_count: u32,
    /// In ascending order.
    pub fingerprints: Vec<u64>,
}

/// The fingerprint of a block's name in notes.
#[must_use]
pub fn note_fingerprint(name: &BlockName) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.score.as_bytes()).update(&[name.block_type.to_byte()]);
    let hash = hasher.finalize();
    hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns true if a block can lead to other blocks: it is no leaf of a file, and no note.
#[must_use]
pub fn is_structure(name: &BlockName) -> bool {
    use varve_block::BlockKind;
    let kind = name.block_type.kind();
    name.block_type.depth() > 0 || matches!(kind, BlockKind::Directory | BlockKind::Root)
}

impl ReplacedSeal {
    /// The most rows in one note.
    pub const COUNT_MAX: usize = (BLOCK_BYTES_MAX - HEADER_BYTES) / REPLACED_ROW_BYTES;

    /// Returns true if `seal` is that of the new generation.
    #[must_use]
    pub fn is_new(&self, seal: &Seal) -> bool {
        seal.generation == self.new_generation && seal.code == self.new_code
    }
}

impl BarrenPart {
    /// Divides a list into parts that fit into notes. An empty list has one part. The fingerprints
    /// must be in ascending order.
    #[must_use]
    pub fn divide(list: [u8; 16], fingerprints: &[u64]) -> Vec<Self> {
        let mut parts: Vec<&[u64]> = fingerprints.chunks(BARREN_ROWS_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let part_count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let part =
            |(part, rows): (u32, &&[u64])| Self { list, part, part_count, fingerprints: rows.to_vec() };
        (0..).zip(&parts).map(part).collect()
    }
}

impl LogNote {
    /// Returns the bytes of the block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, list, part, part_count) = match self {
            Self::Replaced { list, .. } => (KIND_REPLACED, list, 0, 1),
            Self::Barren(part) => (KIND_BARREN, &part.list, part.part, part.part_count),
        };
        let mut rows = Vec::new();
        let row_count = match self {
            Self::Replaced { arenas, .. } => {
                arenas.iter().for_each(|arena| arena.encode_into(&mut rows));
                arenas.len()
            }
            Self::Barren(part) => {
                part.fingerprints.iter().for_each(|name| rows.extend_from_slice(&name.to_le_bytes()));
                part.fingerprints.len()
            }
        };
        let row_count = u32::try_from(row_count).unwrap_or(u32::MAX);
        let words = [kind, row_count, part, part_count].map(u32::to_le_bytes);
        [words.as_flattened(), list, &rows].concat()
    }

    /// Parses the bytes of a block of type note; `None` if they are malformed, or of a kind that
    /// this version does not know.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = LittleEndian::new(bytes);
        let (kind, row_count) = (decoder.u32()?, to_usize(decoder.u32()?));
        let (part, part_count) = (decoder.u32()?, decoder.u32()?);
        let list = decoder.array()?;
        let rows = decoder.left();
        let row_bytes = match kind {
            KIND_REPLACED => REPLACED_ROW_BYTES,
            KIND_BARREN => BARREN_ROW_BYTES,
            _ => return None,
        };
        if part >= part_count || rows.len() != row_count.checked_mul(row_bytes)? {
            return None;
        }
        if kind == KIND_BARREN {
            let rows = rows.as_chunks::<BARREN_ROW_BYTES>().0;
            let fingerprints: Vec<u64> = rows.iter().map(|row| u64::from_le_bytes(*row)).collect();
            let is_sorted = fingerprints.is_sorted_by(|one, next| one < next);
            let part = BarrenPart { list, part, part_count, fingerprints };
            return is_sorted.then_some(Self::Barren(part));
        }
        let rows = rows.as_chunks::<REPLACED_ROW_BYTES>().0;
        let arenas = rows.iter().map(|row| ReplacedSeal::decode(row)).collect::<Option<Vec<_>>>()?;
        let is_sorted = arenas.is_sorted_by(|one, next| one.arena < next.arena);
        (is_sorted && part_count == 1).then_some(Self::Replaced { list, arenas })
    }
}

impl ReplacedSeal {
    fn encode_into(&self, rows: &mut Vec<u8>) {
        rows.extend_from_slice(&self.arena.0.to_le_bytes());
        rows.extend_from_slice(&self.old_generation.to_le_bytes());
        rows.extend_from_slice(&self.new_generation.to_le_bytes());
        rows.extend_from_slice(&self.old_code);
        rows.extend_from_slice(&self.new_code);
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let mut decoder = LittleEndian::new(row);
        let row = Self {
            arena: ArenaId(decoder.u64()?),
            old_generation: decoder.u32()?,
            new_generation: decoder.u32()?,
            old_code: decoder.array()?,
            new_code: decoder.array()?,
        };
        (row.new_generation > row.old_generation).then_some(row)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replaced() -> impl Strategy<Value = LogNote> {
        let row = (any::<u64>(), any::<[u8; 32]>(), any::<[u8; 32]>(), 0_u32..9, 1_u32..9);
        (any::<[u8; 16]>(), prop::collection::vec(row, 0..20)).prop_map(|(list, rows)| {
            let row = |(arena, old_code, new_code, old_generation, more)| ReplacedSeal {
                arena: ArenaId(arena),
                old_generation,
                new_generation: old_generation + more,
                old_code,
                new_code,
            };
            let mut arenas: Vec<_> = rows.into_iter().map(row).collect();
            arenas.sort_by_key(|row| row.arena);
            arenas.dedup_by_key(|row| row.arena);
            LogNote::Replaced { list, arenas }
        })
    }

    fn barren() -> impl Strategy<Value = LogNote> {
        (any::<[u8; 16]>(), prop::collection::btree_set(any::<u64>(), 0..50), 0_u32..5, 1_u32..5).prop_map(
            |(list, names, part, more)| {
                let fingerprints = names.into_iter().collect();
                LogNote::Barren(BarrenPart { list, part, part_count: part + more, fingerprints })
            },
        )
    }

    proptest! {
        #[test]
        fn a_note_survives_the_round_trip(note in prop_oneof![replaced(), barren()]) {
            prop_assert_eq!(LogNote::decode(&note.encode()), Some(note));
        }

        #[test]
        fn no_note_panics(
            note in prop_oneof![replaced(), barren()],
            flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
            cut in any::<usize>(),
        ) {
            let mut bytes = note.encode();
            for (place, byte) in flips {
                let place = place % bytes.len();
                bytes[place] ^= byte;
            }
            bytes.truncate(cut % (bytes.len() + 1));
            if let Some(decoded) = LogNote::decode(&bytes) {
                prop_assert_eq!(decoded.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_list_is_divided_into_parts_that_fit_into_blocks() {
        for count in [0, 1, BARREN_ROWS_MAX, BARREN_ROWS_MAX + 1, 3 * BARREN_ROWS_MAX] {
            let names: Vec<u64> = (0..count as u64).collect();
            let parts = BarrenPart::divide([1; 16], &names);
            assert_eq!(parts.len(), count.div_ceil(BARREN_ROWS_MAX).max(1));
            let joined: Vec<u64> = parts.iter().flat_map(|part| part.fingerprints.clone()).collect();
            assert_eq!(joined, names);
            for part in parts {
                let bytes = LogNote::Barren(part.clone()).encode();
                assert!(bytes.len() <= BLOCK_BYTES_MAX);
                assert_eq!(LogNote::decode(&bytes), Some(LogNote::Barren(part)));
            }
        }
    }
}

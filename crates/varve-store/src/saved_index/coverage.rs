//! The part of the log that a saved index covers. It is stored as a note in the index.
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     8 | sealed_count  | rows of sealed arenas that are covered whole                                   |
//! |      8 |     8 | part_count    | rows of arenas that are covered in part                                        |
//! |     16 |     8 | catalog_count | rows of catalog roots and notes                                                |
//! |     24 |       | catalog rows  | address `u64`, width of the score 1, score 32 (padded with zeros), type 1      |
//! |        |       | sealed rows   | arena `u64`, ordinal `u64`, generation `u32`, seal code 32                     |
//! |        |       | part rows     | arena `u64`, covered up to granule `u32`, its last page's code 16 or zeros     |
//!
//! A part row with granule 0 covers nothing. A collector was about to replace the arena, and what
//! the index has of it is outdated.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};

use varve_block::{BlockName, BlockType, LogAddress, Score, to_usize};
use varve_log::{Appender, ArenaId, ArenaMap, Granule, Seal, Seals};

/// The part of the log that an index covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    sealed: Seals,
    /// The arenas that had no seal, and the places to continue reading.
    part: CoveredParts,
    /// The catalog roots in the covered part that have to be read.
    catalogs: BTreeMap<LogAddress, BlockName>,
    /// The clumps in the covered part that hold notes, each with the name of one of them.
    notes: BTreeMap<LogAddress, BlockName>,
}

impl Coverage {
    /// Returns true if nothing of the log is covered.
    pub(crate) fn is_nothing(&self) -> bool {
        self.sealed.is_empty() && self.part.0.is_empty() && self.catalogs.is_empty() && self.notes.is_empty()
    }

    /// Returns the seals of the arenas that are covered whole.
    pub(crate) fn seals(&self) -> &Seals {
        &self.sealed
    }

    /// Returns the blocks in the covered part that have to be found without a name.
    pub(crate) fn in_sight(&self) -> RootsInSight {
        RootsInSight { catalogs: self.catalogs.clone(), notes: self.notes.clone() }
    }

    /// Returns the seals, and the parts of the other arenas.
    pub(crate) fn into_seals_and_parts(self) -> (Seals, CoveredParts) {
        (self.sealed, self.part)
    }

    /// Returns true if each covered part still ends with the same page. `last_page` returns the
    /// code of the last page before a place in an arena, if it can be read.
    pub(crate) fn has_last_pages(
        &self,
        mut last_page: impl FnMut(ArenaId, Granule) -> Option<[u8; 16]>,
    ) -> bool {
        self.part.0.iter().all(|(id, part)| {
            *part == CoveredPart::NOTHING || last_page(*id, part.end) == Some(part.last_page)
        })
    }
}

/// The blocks of the log that a reader has to find without a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct RootsInSight {
    /// The catalog roots that have to be read.
    pub(crate) catalogs: BTreeMap<LogAddress, BlockName>,
    /// The clumps that hold notes, each with the name of one of them.
    pub(crate) notes: BTreeMap<LogAddress, BlockName>,
}

/// The arenas that an index covers in part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoveredParts(BTreeMap<ArenaId, CoveredPart>);

impl CoveredParts {
    /// Returns the end of the covered part of an arena; `None` if the arena is not covered in part.
    pub(crate) fn end_in(&self, arena: ArenaId) -> Option<Granule> {
        self.0.get(&arena).map(|part| part.end)
    }
}

/// The part of an arena that an index covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CoveredPart {
    /// The end of the part.
    end: Granule,
    /// The code of the last page in the part; zeros if it has none. A crash may have cut that page
    /// off, and others may have been written in its place.
    last_page: [u8; 16],
}

impl CoveredPart {
    /// No part of an arena.
    const NOTHING: Self = Self { end: Granule(0), last_page: [0; 16] };
}

impl Coverage {
    /// Makes the coverage of an index that has everything that the log has now. A crash can take
    /// back a part that is not durable yet. Of the seals, only the durable ones are included.
    pub(crate) fn durable(appender: &Appender, in_sight: RootsInSight) -> Self {
        let sealed = appender.durable_seals().map(|(arena, seal)| (arena, *seal)).collect();
        Self::with(appender, sealed, in_sight)
    }

    /// Like [`durable`](Self::durable), but with all seals, for a run that is saved only after a
    /// later sync has made them durable. A snapshot of many arenas that ends with one sync has no
    /// durable seals before that.
    pub(crate) fn once_synced(appender: &Appender, in_sight: RootsInSight) -> Self {
        Self::with(appender, appender.seals().clone(), in_sight)
    }

    fn with(appender: &Appender, sealed: Seals, in_sight: RootsInSight) -> Self {
        let RootsInSight { catalogs, notes } = in_sight;
        let part = appender
            .unsealed()
            .map(|(id, end, code)| (id, CoveredPart { end, last_page: code.unwrap_or_default() }));
        Self { sealed, part: CoveredParts(part.collect()), catalogs, notes }
    }

    /// Covers these arenas no longer, which are about to be replaced.
    pub(crate) fn let_go_of(&mut self, arenas: &BTreeSet<ArenaId>, map: ArenaMap) {
        for id in arenas {
            self.sealed.remove(*id);
            self.part.0.insert(*id, CoveredPart::NOTHING);
        }
        let stays = |address: &LogAddress| !arenas.contains(&map.locate(*address).0);
        self.catalogs.retain(|address, _| stays(address));
        self.notes.retain(|address, _| stays(address));
    }

    /// Returns the arenas whose entries in the index are outdated.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = ArenaId> {
        self.part.0.iter().filter(|(_, part)| **part == CoveredPart::NOTHING).map(|(id, _)| *id)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend_from_slice(&(self.sealed.len() as u64).to_le_bytes());
        note.extend_from_slice(&(self.part.0.len() as u64).to_le_bytes());
        let root_count = self.catalogs.len().saturating_add(self.notes.len()) as u64;
        note.extend_from_slice(&root_count.to_le_bytes());
        for (address, name) in self.catalogs.iter().chain(&self.notes) {
            let score = name.score.as_bytes();
            let mut row =
                [&address.granule().to_le_bytes()[..], &[u8::try_from(score.len()).unwrap_or(0)], score]
                    .concat();
            row.resize(41, 0);
            note.extend_from_slice(&row);
            note.push(name.block_type.to_byte());
        }
        for (arena, seal) in self.sealed.iter() {
            note.extend_from_slice(&arena.0.to_le_bytes());
            note.extend_from_slice(&seal.ordinal.to_le_bytes());
            note.extend_from_slice(&seal.generation.to_le_bytes());
            note.extend_from_slice(&seal.code);
        }
        for (arena, part) in &self.part.0 {
            note.extend_from_slice(&arena.0.to_le_bytes());
            note.extend_from_slice(&part.end.0.to_le_bytes());
            note.extend_from_slice(&part.last_page);
        }
        note
    }

    pub(crate) fn decode(note: &[u8]) -> Option<Self> {
        let (counts, rest) = note.split_first_chunk::<24>()?;
        let mut numbers = counts.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let (sealed_count, part_count) = (numbers.next()?, numbers.next()?);
        let catalog_count = numbers.next()?;
        let (catalog_rows, rest) = rest.split_at_checked(to_usize(catalog_count.checked_mul(42)?))?;
        let (mut catalogs, mut notes) = (BTreeMap::new(), BTreeMap::new());
        for row in catalog_rows.as_chunks::<42>().0 {
            let (address, row) = row.split_first_chunk()?;
            let (width, name) = row.split_first()?;
            let score = Score::try_from(name.get(..usize::from(*width))?).ok()?;
            let block_type = BlockType::from_byte(*name.last()?)?;
            let address = LogAddress::new(u64::from_le_bytes(*address))?;
            let rows = if block_type == BlockType::NOTE { &mut notes } else { &mut catalogs };
            rows.insert(address, BlockName { score, block_type });
        }
        let (sealed_rows, part_rows) = rest.split_at_checked(to_usize(sealed_count.checked_mul(52)?))?;
        if part_rows.len() as u64 != part_count.checked_mul(28)? {
            return None;
        }
        let arena = |row: &[u8]| Some(ArenaId(u64::from_le_bytes(*row.first_chunk()?)));
        let mut coverage = Self { catalogs, notes, ..Self::default() };
        for row in sealed_rows.as_chunks::<52>().0 {
            let (head, code) = row.split_last_chunk::<32>()?;
            let ordinal = u64::from_le_bytes(*head.get(8..)?.first_chunk()?);
            let generation = u32::from_le_bytes(*head.last_chunk()?);
            coverage.sealed.insert(arena(row)?, Seal { ordinal, generation, code: *code });
        }
        for row in part_rows.as_chunks::<28>().0 {
            let (head, last_page) = row.split_last_chunk::<16>()?;
            let end = Granule(u32::from_le_bytes(*head.last_chunk()?));
            coverage.part.0.insert(arena(row)?, CoveredPart { end, last_page: *last_page });
        }
        Some(coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_survives_the_round_trip() {
        let name =
            BlockName { score: Score::try_from([3; 20].as_slice()).unwrap(), block_type: BlockType::CATALOG };
        let mut sealed = Seals::default();
        for n in 0..5 {
            sealed.insert(ArenaId(n), Seal { ordinal: 10 - n, generation: 1, code: [9; 32] });
        }
        let some = Coverage {
            sealed,
            part: CoveredParts([(ArenaId(5), CoveredPart { end: Granule(77), last_page: [4; 16] })].into()),
            catalogs: [12, 700].map(|place| (LogAddress::new(place).unwrap(), name)).into(),
            notes: [(LogAddress::new(9).unwrap(), BlockName { block_type: BlockType::NOTE, ..name })].into(),
        };
        for coverage in [Coverage::default(), some] {
            let note = coverage.encode();
            assert_eq!(Coverage::decode(&note), Some(coverage));
            for length in 0..note.len() {
                assert_eq!(Coverage::decode(&note[..length]), None);
            }
        }
    }
}

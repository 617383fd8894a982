//! The ends of an arena's records and their codes. Segments are cut at these ends, and their names
//! are checked against them.

use std::collections::BTreeMap;

use varve_log::{
    ArenaHeader, ArenaId, ArenaState, DirectoryPage, Granule, Log, OpenedArena, PageRow, ProvenPages,
    ReadLogError, RecoveredArena, Seal,
};

#[cfg(test)]
use crate::objects::object_name::{SegmentEnd, SegmentName};

/// The end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordEnd {
    /// The place of the record.
    pub(crate) granule: Granule,
    /// The offset of the next record, in bytes.
    pub(crate) end: u64,
    /// The code of the record's header.
    pub(crate) code: [u8; 16],
}

/// The end of a sealed arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealEnd {
    pub(crate) code: [u8; 32],
    /// The seal as ledgers cover it.
    pub(crate) seal: Seal,
    /// The length of the arena's file.
    pub(crate) file_bytes: u64,
}

/// The records of an arena up to its last page, as the pages name them.
#[derive(Debug)]
pub(crate) struct ArenaRecords {
    pub(crate) id: ArenaId,
    pub(crate) generation: u32,
    uid: [u8; 16],
    records: Vec<RecordEnd>,
    by_code: BTreeMap<[u8; 16], u64>,
    /// `None` if the arena is damaged: the records before the seal are then unknown.
    pub(crate) seal: Option<SealEnd>,
    /// The number of arenas that the last page has seen sealed.
    pub(crate) sealed_count: Option<u64>,
    /// The reason why later records are unknown.
    pub(crate) damage: Option<RecordsDamage>,
    /// The offset of an unfinished tail after a crash. It was never acknowledged, and the next
    /// writer cuts it off.
    pub(crate) unfinished: Option<u64>,
}

/// The reason why not all records of an arena are known.
#[derive(Debug, thiserror::Error)]
pub enum RecordsDamage {
    /// A page, the header or the seal is unreadable.
    #[error("{0}")]
    Unreadable(#[from] ReadLogError),
    /// There is something between two records that no page names.
    #[error("arena {arena}, offset {offset}: a record is damaged; the records after it can still be read")]
    Gap { arena: ArenaId, offset: u64 },
    /// The disk does not return something that may be a page.
    #[error("arena {arena}, offset {offset}: the disk cannot read this place")]
    Withheld { arena: ArenaId, offset: u64 },
    /// An object of the replica does not reach as far as its name says.
    #[error("arena {arena}, offset {offset}: the object that begins here is cut short")]
    CutShort { arena: ArenaId, offset: u64 },
    /// The ledger counts the arena as sealed, and the arena is missing.
    #[error("arena {arena}: it is missing")]
    Missing { arena: ArenaId },
    /// The ledger counts the arena as sealed, and it has no seal.
    #[error("arena {arena}: its seal is gone: it was cut, or put back from an older state")]
    SealLost {
        arena: ArenaId,
        /// The end of its records, in bytes.
        offset: u64,
    },
}

impl RecordsDamage {
    /// Returns the offset of the damage in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Gap { offset, .. }
            | Self::Withheld { offset, .. }
            | Self::CutShort { offset, .. }
            | Self::SealLost { offset, .. } => *offset,
            Self::Unreadable(
                ReadLogError::Record { offset, .. }
                | ReadLogError::Forged { offset, .. }
                | ReadLogError::Clump { offset, .. }
                | ReadLogError::Page { offset, .. }
                | ReadLogError::Storage { offset, .. },
            ) => *offset,
            Self::Missing { .. } | Self::Unreadable(_) => 0,
        }
    }
}

/// Returns the part of a scan's result from which the next writer will continue. Without the read
/// key, if the arena has a torn tail, that is the part that is surely durable.
fn as_left(log: &Log, arena: &OpenedArena, found: RecoveredArena) -> Result<RecoveredArena, ReadLogError> {
    if log.keys().can_read() {
        return log.judge(arena, found);
    }
    let is_torn = found.gap.is_some_and(|gap| gap >= found.durable_bytes);
    if !is_torn {
        return Ok(found);
    }
    let mut proven = ProvenPages::of(found).proven;
    proven.log_bytes = proven.pages.last().map_or(ArenaHeader::BYTES, |(row, _)| row.end());
    proven.gap = None;
    Ok(proven)
}

impl ArenaRecords {
    /// Reads an arena's directory pages. Damage is a result, not an error.
    pub(crate) fn read(log: &Log, arena: &OpenedArena) -> Result<Self, ReadLogError> {
        Self::read_as(log, arena, false)
    }

    /// Does the same for an arena that may have a tail from a crash. It ends where the next writer
    /// will find its end.
    pub(crate) fn read_left(log: &Log, arena: &OpenedArena) -> Result<Self, ReadLogError> {
        Self::read_as(log, arena, true)
    }

    fn read_as(log: &Log, arena: &OpenedArena, is_left: bool) -> Result<Self, ReadLogError> {
        let mut found = Self {
            id: arena.id(),
            generation: arena.header().generation,
            uid: arena.header().uid,
            records: Vec::new(),
            by_code: BTreeMap::new(),
            seal: None,
            sealed_count: None,
            damage: None,
            unfinished: None,
        };
        match log.state(arena) {
            Ok(ArenaState::Sealed { footer, pages }) => {
                found.read_pages(log, arena, &pages)?;
                if found.damage.is_none() && found.log_bytes() != footer.log_bytes {
                    found.damage = Some(RecordsDamage::Gap { arena: arena.id(), offset: found.log_bytes() });
                }
                found.seal = Some(SealEnd {
                    code: footer.seal_code,
                    seal: Seal::of(arena.header(), &footer),
                    // Not from the file's length, which a running writer may change meanwhile.
                    file_bytes: footer.file_bytes().unwrap_or(u64::MAX),
                });
            }
            Ok(ArenaState::Unsealed) => found.scan(log, arena, is_left)?,
            Err(error) if error.is_damage() => {
                found.scan(log, arena, false)?;
                found.damage = Some(error.into());
            }
            Err(error) => return Err(error),
        }
        found.by_code = found.records.iter().map(|record| (record.code, record.end)).collect();
        Ok(found)
    }

    fn read_pages(&mut self, log: &Log, arena: &OpenedArena, rows: &[PageRow]) -> Result<(), ReadLogError> {
        for row in rows {
            match log.read_page(arena, row) {
                Ok(page) => {
                    if !self.push_page(row, &page) {
                        return Ok(());
                    }
                }
                Err(error) if error.is_damage() => {
                    self.damage = Some(error.into());
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn scan(&mut self, log: &Log, arena: &OpenedArena, is_left: bool) -> Result<(), ReadLogError> {
        let mut found = log.scan(arena)?;
        if is_left && found.hidden.is_none() {
            found = as_left(log, arena, found)?;
            if found.gap.is_none() && log.file_bytes(arena.id())? > found.log_bytes {
                self.unfinished = Some(found.log_bytes);
            }
        }
        if let Some(offset) = found.first_hidden() {
            // There may be a page. Only the records before it count.
            found.pages.retain(|(row, _)| row.granule.byte_offset() < offset);
            self.damage = Some(RecordsDamage::Withheld { arena: self.id, offset });
        }
        // The next writer cuts off the last durable mark, so it is not part of the history. Its
        // ledger counts all the same.
        let sealed_count = found.pages.last().map(|(_, page)| page.ledger().arena_count);
        found.drop_mark();
        for (row, page) in found.pages {
            if !self.push_page(&row, &page) {
                return Ok(());
            }
        }
        self.sealed_count = sealed_count;
        if let Some(offset) = found.gap {
            // No page follows it, or none that counts.
            self.damage.get_or_insert(RecordsDamage::Gap { arena: self.id, offset });
        }
        Ok(())
    }

    /// Adds a page and its clumps. Returns false if they do not follow the known records.
    fn push_page(&mut self, row: &PageRow, page: &DirectoryPage) -> bool {
        let kept = self.records.len();
        let clumps = page.clumps().iter().map(|clump| (clump.granule, clump.end(), clump.code));
        for (granule, end, code) in clumps.chain([(row.granule, row.end(), row.code)]) {
            let expected = self.log_bytes();
            if granule.byte_offset() != expected {
                // A segment may end with any record, but a record that no page names was never
                // acknowledged.
                self.records.truncate(kept);
                self.damage = Some(RecordsDamage::Gap { arena: self.id, offset: expected });
                return false;
            }
            self.records.push(RecordEnd { granule, end, code });
        }
        self.sealed_count = Some(page.ledger().arena_count);
        true
    }

    /// Returns the end of the known records, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.records.last().map_or(ArenaHeader::BYTES, |last| last.end)
    }

    /// Returns the end of the arena: after its seal, if everything before the seal is known.
    pub(crate) fn end(&self) -> u64 {
        match (&self.seal, &self.damage) {
            (Some(seal), None) => seal.file_bytes,
            _ if self.records.is_empty() => 0,
            _ => self.log_bytes(),
        }
    }

    /// Returns the end of the record with this code.
    pub(crate) fn end_of(&self, code: &[u8; 16]) -> Option<u64> {
        self.by_code.get(code).copied()
    }

    /// Returns the record that ends at `offset`.
    fn ending_at(&self, offset: u64) -> Option<&RecordEnd> {
        self.records.binary_search_by_key(&offset, |record| record.end).ok().map(|place| &self.records[place])
    }

    /// Returns the `start` of a segment that begins at `offset`; `None` if no segment can begin
    /// there.
    pub(crate) fn start_at(&self, offset: u64) -> Option<[u8; 16]> {
        if offset == 0 { Some(self.uid) } else { self.ending_at(offset).map(|record| record.code) }
    }

    pub(crate) fn last(&self) -> Option<&RecordEnd> {
        self.records.last()
    }

    /// Returns the records between two offsets.
    pub(crate) fn within(&self, range: &std::ops::Range<u64>) -> &[RecordEnd] {
        let first = self.records.partition_point(|record| record.granule.byte_offset() < range.start);
        let end = self.records.partition_point(|record| record.end <= range.end);
        self.records.get(first..end).unwrap_or_default()
    }
}

#[cfg(test)]
impl ArenaRecords {
    /// Makes an arena whose records have these lengths, in granules. The code of each is its
    /// number.
    pub(crate) fn of_lengths(lengths: &[u64], is_sealed: bool) -> Self {
        let mut end = ArenaHeader::BYTES;
        let mut records = Vec::new();
        for (number, granules) in (1_u8..).zip(lengths) {
            let granule = Granule::at_or_after(end).expect("a short arena");
            end += granules * varve_log::GRANULE_BYTES;
            records.push(RecordEnd { granule, end, code: [number; 16] });
        }
        let seal = Seal { ordinal: 0, generation: 0, code: [99; 32] };
        Self {
            id: ArenaId(0),
            generation: 0,
            uid: [0; 16],
            by_code: records.iter().map(|record| (record.code, record.end)).collect(),
            records,
            seal: is_sealed.then_some(SealEnd { code: seal.code, seal, file_bytes: end + 96 }),
            sealed_count: None,
            damage: None,
            unfinished: None,
        }
    }

    /// Returns all offsets where a segment may begin or end.
    pub(crate) fn cuts(&self) -> Vec<u64> {
        let ends = self.records.iter().map(|record| record.end);
        std::iter::once(0).chain(ends).chain(self.seal.map(|seal| seal.file_bytes)).collect()
    }

    /// Returns the name of the segment between two of these offsets.
    pub(crate) fn name_of(&self, from: u64, to: u64) -> SegmentName {
        let end = match self.ending_at(to) {
            Some(record) => SegmentEnd::Record(record.code),
            None => SegmentEnd::Seal(self.seal.expect("it is sealed").code),
        };
        let start = self.start_at(from).expect("a segment begins there");
        SegmentName { arena: self.id, generation: self.generation, offset: from, start, end }
    }
}

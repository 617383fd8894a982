//! Where an arena's records end, and with which codes: what segments may be cut at, and what their names are held against.

use std::collections::BTreeMap;

use varve_log::{
    ArenaHeader, ArenaId, ArenaState, DirectoryPage, Granule, Log, OpenedArena, PageRow, Proven,
    ReadLogError, Recovered, Seal,
};

#[cfg(test)]
use crate::objects::object_name::{SegmentEnd, SegmentName};

/// A record's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordEnd {
    /// Where the record begins.
    pub(crate) granule: Granule,
    /// Where the next one begins, in bytes.
    pub(crate) end: u64,
    /// Its header's code.
    pub(crate) code: [u8; 16],
}

/// How a sealed arena ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealEnd {
    pub(crate) code: [u8; 32],
    /// What ledgers know of it.
    pub(crate) seal: Seal,
    /// The length of the arena's file.
    pub(crate) file_bytes: u64,
}

/// The records of an arena up to its last page, as its pages name them.
#[derive(Debug)]
pub(crate) struct ArenaRecords {
    pub(crate) id: ArenaId,
    pub(crate) generation: u32,
    uid: [u8; 16],
    records: Vec<RecordEnd>,
    by_code: BTreeMap<[u8; 16], u64>,
    /// Not there if the arena is damaged: then nobody can tell what comes before it.
    pub(crate) seal: Option<SealEnd>,
    /// How many of the first arenas the last page has seen sealed.
    pub(crate) sealed_count: Option<u64>,
    /// Why records after these are not known.
    pub(crate) damage: Option<RecordsDamage>,
    /// Where, in bytes, something begins that a crash has left unfinished: nobody was promised that, and the next writer cuts it off.
    pub(crate) unfinished: Option<u64>,
}

/// Why an arena's records cannot all be told.
#[derive(Debug, thiserror::Error)]
pub enum RecordsDamage {
    /// A page, the header or the seal does not read as what it should be.
    #[error(transparent)]
    Unreadable(#[from] ReadLogError),
    /// Between two records there is something that no page names.
    #[error("arena {arena}, offset {offset}: a record is damaged; those after it can still be read")]
    Gap {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
    },
    /// The disk does not give something that may be a page.
    #[error("arena {arena}, offset {offset}: the disk does not give what is there")]
    Withheld {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
    },
    /// The ledger counts it among the sealed arenas, and nothing of it is there.
    #[error("arena {arena}: it is missing")]
    Missing {
        /// Which arena.
        arena: ArenaId,
    },
    /// The ledger counts it among the sealed arenas, and it is not sealed.
    #[error("arena {arena}: it was sealed, and is not any more: it was cut, or put back as it was before")]
    SealLost {
        /// Which arena.
        arena: ArenaId,
        /// Where its records end, in bytes.
        offset: u64,
    },
}

impl RecordsDamage {
    /// Where the damage is, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Gap { offset, .. } | Self::Withheld { offset, .. } | Self::SealLost { offset, .. } => {
                *offset
            }
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

/// Of what a scan has found, what the next writer will go on from. One who cannot read clumps believes what is surely durable, if more
/// than that is not whole.
fn as_left(log: &Log, arena: &OpenedArena, found: Recovered) -> Result<Recovered, ReadLogError> {
    if log.keys().can_read() {
        return log.judge(arena, found);
    }
    let is_torn = found.gap.is_some_and(|gap| gap >= found.durable_bytes);
    if !is_torn {
        return Ok(found);
    }
    let mut proven = Proven::of(found).proven;
    proven.log_bytes = proven.pages.last().map_or(ArenaHeader::BYTES, |(row, _)| row.end());
    proven.gap = None;
    Ok(proven)
}

impl ArenaRecords {
    /// Reads an arena's directory pages. Damage is no error, but an answer.
    pub(crate) fn read(log: &Log, arena: &OpenedArena) -> Result<Self, ReadLogError> {
        Self::read_as(log, arena, false)
    }

    /// The same of an arena that a writer may have left in a crash: it ends where the next writer will find its end.
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
                    // Not what the file's length was before or is after: a writer may be at work.
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
            // A page may be there. What is known before it counts, and no more.
            found.pages.retain(|(row, _)| row.granule.byte_offset() < offset);
            self.damage = Some(RecordsDamage::Withheld { arena: self.id, offset });
        }
        // The next writer cuts off the mark that the last one has left: it is no part of the history. What it says of the
        // seals counts all the same.
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

    /// Takes in a page and the clumps that it names; false if they do not follow what is known already.
    fn push_page(&mut self, row: &PageRow, page: &DirectoryPage) -> bool {
        let kept = self.records.len();
        let clumps = page.clumps().iter().map(|clump| (clump.granule, clump.end(), clump.code));
        for (granule, end, code) in clumps.chain([(row.granule, row.end(), row.code)]) {
            let expected = self.log_bytes();
            if granule.byte_offset() != expected {
                // A segment may end with any record, but what no page names was never acknowledged.
                self.records.truncate(kept);
                self.damage = Some(RecordsDamage::Gap { arena: self.id, offset: expected });
                return false;
            }
            self.records.push(RecordEnd { granule, end, code });
        }
        self.sealed_count = Some(page.ledger().arena_count);
        true
    }

    /// Where the known records end, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.records.last().map_or(ArenaHeader::BYTES, |last| last.end)
    }

    /// Where the arena ends: behind its seal, if all before that is known.
    pub(crate) fn end(&self) -> u64 {
        match (&self.seal, &self.damage) {
            (Some(seal), None) => seal.file_bytes,
            _ if self.records.is_empty() => 0,
            _ => self.log_bytes(),
        }
    }

    /// Where the record with this code ends.
    pub(crate) fn end_of(&self, code: &[u8; 16]) -> Option<u64> {
        self.by_code.get(code).copied()
    }

    /// The record that ends at `offset`.
    fn ending_at(&self, offset: u64) -> Option<&RecordEnd> {
        self.records.binary_search_by_key(&offset, |record| record.end).ok().map(|place| &self.records[place])
    }

    /// What a segment that begins at `offset` says of what comes before it; `None` where no segment begins.
    pub(crate) fn start_at(&self, offset: u64) -> Option<[u8; 16]> {
        if offset == 0 { Some(self.uid) } else { self.ending_at(offset).map(|record| record.code) }
    }

    pub(crate) fn last(&self) -> Option<&RecordEnd> {
        self.records.last()
    }

    /// The records that lie between two offsets.
    pub(crate) fn within(&self, range: &std::ops::Range<u64>) -> &[RecordEnd] {
        let first = self.records.partition_point(|record| record.granule.byte_offset() < range.start);
        let end = self.records.partition_point(|record| record.end <= range.end);
        self.records.get(first..end).unwrap_or_default()
    }
}

#[cfg(test)]
impl ArenaRecords {
    /// An arena whose records have these lengths, in granules; the code of each is its number.
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

    /// All places where a segment may begin or end.
    pub(crate) fn cuts(&self) -> Vec<u64> {
        let ends = self.records.iter().map(|record| record.end);
        std::iter::once(0).chain(ends).chain(self.seal.map(|seal| seal.file_bytes)).collect()
    }

    /// What the segment between two of these places is called.
    pub(crate) fn name_of(&self, from: u64, to: u64) -> SegmentName {
        let end = match self.ending_at(to) {
            Some(record) => SegmentEnd::Record(record.code),
            None => SegmentEnd::Seal(self.seal.expect("it is sealed").code),
        };
        let start = self.start_at(from).expect("a segment begins there");
        SegmentName { arena: self.id, generation: self.generation, offset: from, start, end }
    }
}

//! A meta block: some records of a directory of vac. Big-endian.
//!
//! | at | size | what          |                                                                                |
//! |---:|-----:|---------------|--------------------------------------------------------------------------------|
//! |  0 |    4 | magic         | 0x5656fc79, or 0x5656fc7a, in which a name precedes longer names that begin with it |
//! |  4 |    2 | size          | the bytes of the block that are used                                           |
//! |  6 |    2 | free          | the bytes of holes among them; a hint                                          |
//! |  8 |    2 | slots         | the number of slots                                                            |
//! | 10 |    2 | records       | the number of slots in use                                                     |
//! | 12 |    4 | slot *        | the offset and length of a record; slots are in the order of the names         |
//!
//! Records follow the slots. This reader accepts them in any order.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use super::record::{DecodeVacRecordError, VacRecord};

const MAGIC: u32 = 0x5656_fc79;
const MAGIC_UNBOTCHED: u32 = 0x5656_fc7a;
const HEADER_BYTES: usize = 12;
const SLOT_BYTES: usize = 4;
/// vac plans one slot for this many bytes of a block.
const BYTES_A_SLOT: usize = 100;
/// A block is full when this share of it is used.
const FULL_PERCENT: usize = 80;

/// The records of a block, checked to lie within it.
#[derive(Debug)]
pub struct MetaBlock<'a> {
    block: &'a [u8],
    slots: &'a [u8],
}

/// The reason why bytes are not a meta block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeMetaBlockError {
    #[error("a block of a vac directory cannot begin with {magic:#010x}")]
    Magic { magic: u32 },
    /// The sizes in the header are inconsistent.
    #[error(
        "the block of a vac directory is invalid: {records} records in {slots} slots, and {size} of {bytes} bytes"
    )]
    Sizes {
        /// The size of the block.
        bytes: usize,
        /// The used bytes according to the header.
        size: usize,
        /// The slots according to the header.
        slots: usize,
        /// The slots in use according to the header.
        records: usize,
    },
    /// A record lies outside of the block, or the records together exceed it.
    #[error(
        "record {number} of a block of a vac directory is outside of the block: {length} bytes at {offset}"
    )]
    Slot { number: usize, offset: usize, length: usize },
}

impl<'a> MetaBlock<'a> {
    /// Decodes a block whose trailing zeros have been restored.
    ///
    /// # Errors
    /// [`DecodeMetaBlockError`] names the numbers that no writer would have written.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeMetaBlockError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Self { block: &[], slots: &[] });
        }
        let wrong =
            |size, slots, records| DecodeMetaBlockError::Sizes { bytes: bytes.len(), size, slots, records };
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| wrong(0, 0, 0))?;
        let &[m0, m1, m2, m3, s0, s1, _, _, i0, i1, n0, n1] = header;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != MAGIC && magic != MAGIC_UNBOTCHED {
            return Err(DecodeMetaBlockError::Magic { magic });
        }
        let [size, slots, records] =
            [[s0, s1], [i0, i1], [n0, n1]].map(|number| usize::from(u16::from_be_bytes(number)));
        let used = bytes.get(..size).ok_or_else(|| wrong(size, slots, records))?;
        let slots_end = slots.saturating_mul(SLOT_BYTES).saturating_add(HEADER_BYTES);
        let in_use = rest.get(..records.saturating_mul(SLOT_BYTES));
        let block = Self { block: used, slots: in_use.ok_or_else(|| wrong(size, slots, records))? };
        if records > slots || slots_end > size {
            return Err(wrong(size, slots, records));
        }
        block.check(slots_end)?;
        Ok(block)
    }

    /// Checks that every record lies after the slots, and that together they do not exceed the
    /// block.
    fn check(&self, slots_end: usize) -> Result<(), DecodeMetaBlockError> {
        let mut total = 0_usize;
        for (number, (offset, length)) in self.places().enumerate() {
            total = total.saturating_add(length);
            let end = offset.saturating_add(length);
            if offset < slots_end || end > self.block.len() || total > self.block.len() {
                return Err(DecodeMetaBlockError::Slot { number, offset, length });
            }
        }
        Ok(())
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        self.slots.chunks_exact(SLOT_BYTES).map(move |slot| {
            let (offset, length) = slot.split_at(SLOT_BYTES.div_euclid(2));
            (number(offset), number(length))
        })
    }

    /// Iterates over the records in the order of the slots. A malformed record does not hide the
    /// others.
    pub fn records(&self) -> impl Iterator<Item = Result<VacRecord, DecodeVacRecordError>> {
        self.places().map(|(offset, length)| {
            let bytes = self.block.get(offset..offset.saturating_add(length)).unwrap_or_default();
            VacRecord::decode(bytes)
        })
    }
}

/// Fills a block with records, one after the other, as vac does.
#[derive(Debug)]
pub struct MetaBlockBuilder {
    block_bytes: usize,
    slot_count: usize,
    records: Vec<u8>,
    /// The offset of each record in `records`, its length, and its name, in the order of the slots.
    slots: Vec<(u16, u16, Vec<u8>)>,
    free: u16,
}

impl MetaBlockBuilder {
    /// Makes an empty block of 512 to 65,535 bytes; `None` for other sizes.
    #[must_use]
    pub fn new(block_bytes: u32) -> Option<Self> {
        let block_bytes = usize::from(u16::try_from(block_bytes).ok()?);
        let slot_count = block_bytes.checked_div(BYTES_A_SLOT)?;
        let is_good = block_bytes >= 512;
        is_good.then_some(Self { block_bytes, slot_count, records: Vec::new(), slots: Vec::new(), free: 0 })
    }

    fn slots_end(&self) -> usize {
        self.slot_count.saturating_mul(SLOT_BYTES).saturating_add(HEADER_BYTES)
    }

    /// Returns true if it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Appends a record. Returns false if it belongs in the next block. `first_bytes` is the size
    /// of the record before vac adds the owner: vac decides by that size, and counts the growth as
    /// free. With the same decisions, the blocks equal those of vac, and a store keeps them once.
    pub fn push(&mut self, name: &[u8], record: &[u8], first_bytes: usize) -> bool {
        let offset = self.slots_end().saturating_add(self.records.len());
        let room = self.block_bytes.saturating_mul(FULL_PERCENT).checked_div(100).unwrap_or(0);
        let room = room.saturating_add(usize::from(self.free)).saturating_sub(offset);
        let end = offset.saturating_add(record.len());
        let is_full = self.slots.len() >= self.slot_count || first_bytes > room || end > self.block_bytes;
        let must_fit = self.is_empty() && end <= self.block_bytes;
        let (Ok(offset), Ok(length)) = (u16::try_from(offset), u16::try_from(record.len())) else {
            return false;
        };
        if is_full && !must_fit {
            return false;
        }
        let place = self.slots.partition_point(|(_, _, other)| slot_order(other, name) == Ordering::Less);
        self.slots.insert(place, (offset, length, name.to_vec()));
        self.records.extend_from_slice(record);
        let grown = u16::try_from(record.len().saturating_sub(first_bytes)).unwrap_or(0);
        self.free = self.free.saturating_add(grown);
        true
    }

    /// Returns the bytes of the block.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
        let slots_end = self.slots_end();
        let mut block = Vec::with_capacity(self.block_bytes);
        block.extend_from_slice(&MAGIC.to_be_bytes());
        block.extend_from_slice(&short(slots_end.saturating_add(self.records.len())));
        block.extend_from_slice(&self.free.to_be_bytes());
        block.extend_from_slice(&short(self.slot_count));
        block.extend_from_slice(&short(self.slots.len()));
        for (offset, length, _) in &self.slots {
            block.extend_from_slice(&offset.to_be_bytes());
            block.extend_from_slice(&length.to_be_bytes());
        }
        block.resize(slots_end, 0);
        block.extend_from_slice(&self.records);
        block
    }
}

/// The order that the magic number of vac's blocks stands for: a name follows every longer one that
/// begins with it.
fn slot_order(one: &[u8], other: &[u8]) -> Ordering {
    let by_bytes = one.iter().zip(other).map(|(one, other)| one.cmp(other)).find(|order| order.is_ne());
    by_bytes.unwrap_or_else(|| other.len().cmp(&one.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> VacRecord {
        VacRecord { name: name.into(), meta_entry: 1, ..VacRecord::default() }
    }

    fn block_of(names: &[&str]) -> Vec<u8> {
        let mut builder = MetaBlockBuilder::new(8192).unwrap();
        for name in names {
            let bytes = record(name).encode().unwrap();
            assert!(builder.push(name.as_bytes(), &bytes, bytes.len()));
        }
        builder.finish()
    }

    #[test]
    fn slots_are_in_the_order_of_the_magic() {
        let block = block_of(&["a", "abc", "empty", "ab", "emptydir", "1121", "1121.1"]);
        let names: Vec<_> = MetaBlock::decode(&block)
            .unwrap()
            .records()
            .map(|record| String::from_utf8(record.unwrap().name).unwrap())
            .collect();
        assert_eq!(names, ["1121.1", "1121", "abc", "ab", "a", "emptydir", "empty"]);
    }

    #[test]
    fn a_block_takes_so_many_and_no_more() {
        let mut builder = MetaBlockBuilder::new(8192).unwrap();
        let mut count = 0;
        while builder.push(b"x", &record("x").encode().unwrap(), 50) {
            count += 1;
        }
        assert_eq!(count, 81);
        let mut builder = MetaBlockBuilder::new(512).unwrap();
        assert!(!builder.push(b"x", &[7; 500], 500), "it does not fit at all");
        assert!(builder.push(b"x", &[7; 470], 470), "more than 80 percent, but alone");
        assert!(!builder.push(b"y", &[7; 10], 10));
    }

    #[test]
    fn what_does_not_lie_within_is_refused() {
        let good = block_of(&["a", "b"]);
        assert_eq!(MetaBlock::decode(&[0; 100]).unwrap().records().count(), 0);
        assert!(MetaBlock::decode(&good[..11]).is_err());
        assert!(matches!(MetaBlock::decode(&[1; 100]), Err(DecodeMetaBlockError::Magic { .. })));
        let with = |at: usize, number: u16| {
            let mut bad = good.clone();
            bad[at..at + 2].copy_from_slice(&number.to_be_bytes());
            MetaBlock::decode(&bad).unwrap_err()
        };
        for (at, number) in [(4, 9000), (4, 20), (8, 1), (8, 9000), (10, 82)] {
            assert!(matches!(with(at, number), DecodeMetaBlockError::Sizes { .. }), "{at} {number}");
        }
        for (at, number) in [(12, 0), (12, 8000), (14, 500)] {
            assert!(matches!(with(at, number), DecodeMetaBlockError::Slot { .. }), "{at} {number}");
        }
    }
}

//! The log: a ring of records, each a header and parts of transactions. Finds the newest record,
//! and those whose changes may not be in their places yet.
//!
//! The ring has blocks of 512 bytes. Each time that the writer begins anew at the first block, it
//! counts a cycle. A position in the log is a cycle (32 bits) and a block (32 bits).
//!
//! | at     | bytes | field of a record's header (big-endian)                       |
//! |-------:|------:|---------------------------------------------------------------|
//! |      0 |     4 | `0xfeedbabe`                                                  |
//! |      4 |     4 | cycle                                                         |
//! |      8 |     4 | version: 1, 2                                                 |
//! |     12 |     4 | bytes of its data                                             |
//! |     16 |     8 | its position                                                  |
//! |     24 |     8 | position of the oldest record that is still needed            |
//! |     32 |     4 | checksum, little-endian: of the header, and of the data       |
//! |     40 |     4 | number of operations                                          |
//! |     44 | 64× 4 | the first bytes of each block of data, which have the cycle in their place |
//! |    300 |     4 | byte order: 1 is little-endian                                |
//! |    320 |     4 | the largest number of bytes in a record                       |
//!
//! If a record may have more than 32 KiB (version 2), more headers follow, one for each 32 KiB: the
//! cycle, and the first bytes of 64 more blocks of data.

use super::damaged;
use super::superblock::XfsSuperblock;
use crate::bytes::crc::crc32c_from;
use crate::bytes::fields::{be32_at, put, u32_at};
use crate::bytes::read_at::ReadAt;
use crate::file_systems::file_system::FileSystemError;
use varve_block::to_usize;

pub(super) const LOG_BLOCK_BYTES: usize = 512;
const RECORD_MAGIC: u32 = 0xfeed_babe;
const CHECKSUM_AT: usize = 32;
const FIRST_BYTES_AT: usize = 44;
const LITTLE_ENDIAN: u32 = 1;
/// The bytes of a header that count for its checksum: 64-bit systems, and 32-bit systems.
const HEADER_BYTES: [usize; 2] = [328, 324];
const MORE_HEADER_BYTES: usize = 260;
/// Each header has the first bytes of this number of blocks.
const FIRST_BYTES_COUNT: usize = 64;
const DATA_BYTES_MAX: u32 = 1 << 20;
/// At most this number of blocks at the end of the log may be torn: eight records of 256 KiB.
const TORN_BLOCKS_MAX: u32 = 4096 + 64;
/// The log is read at most this often in search of its newest record: a few records may be torn.
const SEARCHES_MAX: usize = 24;
/// The flag of an operation that marks an unmount.
const UNMOUNT: u8 = 0x20;
const OPERATION_HEAD_BYTES: usize = 12;

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct XfsLogPlace {
    cycle: u32,
    block: u32,
}

impl XfsLogPlace {
    fn parse(bytes: &[u8], at: usize) -> Self {
        Self { cycle: be32_at(bytes, at), block: be32_at(bytes, at.saturating_add(4)) }
    }
}

/// A record that was read whole.
pub(super) struct XfsLogRecord {
    place: XfsLogPlace,
    tail: XfsLogPlace,
    /// All of its blocks, with its headers.
    blocks: u32,
    operation_count: u32,
    data: Vec<u8>,
}

impl XfsLogRecord {
    /// Returns its position as one number.
    pub(super) fn position(&self) -> u64 {
        u64::from(self.place.cycle) << 32 | u64::from(self.place.block)
    }

    pub(super) fn operations(&self) -> XfsLogOperations<'_> {
        XfsLogOperations { rest: &self.data, left: self.operation_count }
    }

    fn is_unmount(&self) -> bool {
        self.operation_count == 1
            && self
                .operations()
                .next()
                .is_some_and(|operation| operation.is_ok_and(|operation| operation.flags & UNMOUNT != 0))
    }
}

/// A part of a transaction.
pub(super) struct XfsLogOperation<'a> {
    pub(super) transaction: u32,
    pub(super) flags: u8,
    pub(super) bytes: &'a [u8],
}

/// Iterates over the operations of a record.
pub(super) struct XfsLogOperations<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for XfsLogOperations<'a> {
    type Item = Result<XfsLogOperation<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let split = self.rest.split_at_checked(OPERATION_HEAD_BYTES).and_then(|(head, rest)| {
            let length = to_usize(be32_at(head, 4));
            let (bytes, rest) = rest.split_at_checked(length)?;
            Some((head, bytes, rest))
        });
        let Some((head, bytes, rest)) = split else {
            self.left = 0;
            return Some(Err("an operation is longer than its record"));
        };
        self.rest = rest;
        let flags = head.get(9).copied().unwrap_or(0);
        Some(Ok(XfsLogOperation { transaction: be32_at(head, 0), flags, bytes }))
    }
}

/// The state of a log.
pub(super) enum XfsLogState {
    /// The volume was unmounted: everything is in its place, and no change is newer than this
    /// position.
    Clean(u64),
    /// The records between these two, and both, may have to be replayed.
    Records(XfsLogSpan),
}

/// A part of the log, from its oldest to its newest record.
#[derive(Debug, Clone, Copy)]
pub(super) struct XfsLogSpan {
    first: XfsLogPlace,
    last: XfsLogPlace,
}

/// A log on the volume itself.
pub(super) struct XfsLog<'a> {
    volume: &'a dyn ReadAt,
    /// In bytes.
    start: u64,
    blocks: u32,
}

fn wrong(problem: &str) -> FileSystemError {
    damaged("log", problem)
}

impl<'a> XfsLog<'a> {
    /// Returns the log of a volume; `None` if it is on another volume.
    pub(super) fn of(
        volume: &'a dyn ReadAt,
        superblock: &XfsSuperblock,
    ) -> Result<Option<Self>, FileSystemError> {
        if superblock.log_start == 0 {
            return Ok(None);
        }
        let block_bytes = u64::from(superblock.block_bytes);
        let positions = superblock.positions(superblock.log_start, superblock.log_blocks.into());
        let positions = positions.ok_or_else(|| wrong("it lies in blocks that do not exist"))?;
        let bytes = u64::from(superblock.log_blocks).saturating_mul(block_bytes);
        let blocks = u32::try_from(bytes >> 9).ok().filter(|blocks| *blocks > 64);
        Ok(Some(Self {
            volume,
            start: positions.start.saturating_mul(block_bytes),
            blocks: blocks.ok_or_else(|| wrong("its length is impossible"))?,
        }))
    }

    /// Reads blocks of the ring.
    fn read(&self, first: u32, count: u32) -> Result<Vec<u8>, FileSystemError> {
        let bytes_of = |blocks: u32| to_usize(blocks).saturating_mul(LOG_BLOCK_BYTES);
        let before = self.blocks.saturating_sub(first).min(count);
        let mut bytes = vec![0; bytes_of(count)];
        let (one, two) = bytes.split_at_mut(bytes_of(before));
        let at = self.start.saturating_add(u64::from(first) << 9);
        let read = self.volume.read_at(at, one).and_then(|()| self.volume.read_at(self.start, two));
        read.map_err(|source| FileSystemError::Read { what: "log".into(), source })?;
        Ok(bytes)
    }

    /// Returns the cycle in which a block was written.
    fn cycle_at(&self, block: u32) -> Result<u32, FileSystemError> {
        Ok(cycle_of(&self.read(block, 1)?))
    }

    /// Returns the first block that belongs to the cycle before, or the number of blocks.
    fn head(&self) -> Result<u32, FileSystemError> {
        let newest = self.cycle_at(0)?;
        let (mut from, mut to) = (0, self.blocks);
        while to.saturating_sub(from) > 1 {
            let middle = from.midpoint(to);
            if self.cycle_at(middle)? == newest { from = middle } else { to = middle }
        }
        Ok(to)
    }

    fn before(&self, block: u32, count: u32) -> u32 {
        block.checked_sub(count).unwrap_or_else(|| block.saturating_add(self.blocks).saturating_sub(count))
    }

    fn after(&self, block: u32, count: u32) -> u32 {
        let next = block.saturating_add(count);
        next.checked_sub(self.blocks).unwrap_or(next)
    }

    /// Finds the records that may have to be replayed.
    ///
    /// The last records may be torn: they were never acknowledged. The newest record is the last
    /// one that is whole, and before which all records are.
    pub(super) fn state(&self) -> Result<XfsLogState, FileSystemError> {
        let mut head = self.head()?;
        let (mut left, mut searches) = (TORN_BLOCKS_MAX.min(self.blocks), 0);
        while left > 0 && searches < SEARCHES_MAX {
            // A record begins before the head, at most as many blocks as it can have.
            head = self.before(head, 1);
            left = left.saturating_sub(1);
            let Ok(last) = self.record(head, None) else { continue };
            if last.is_unmount() {
                return Ok(XfsLogState::Clean(last.position()));
            }
            let span = XfsLogSpan { first: last.tail, last: last.place };
            if span.first.block >= self.blocks || self.age(&span).is_none() {
                return Err(wrong("the place of its oldest record is impossible"));
            }
            searches = searches.saturating_add(1);
            match self.for_each_record(&span, |_| Ok(())) {
                Ok(None) => return Ok(XfsLogState::Records(span)),
                Ok(Some(torn)) => {
                    let distance = self.distance(torn, head);
                    if distance > left {
                        return Err(wrong(&format!("the record at its block {torn} is damaged")));
                    }
                    left = left.saturating_sub(distance);
                    head = torn;
                }
                Err(error) => return Err(error),
            }
        }
        if self.cycle_at(0)? == 0 {
            // It was never written.
            return Ok(XfsLogState::Clean(0));
        }
        Err(wrong("it has no record at its end"))
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        to.checked_sub(from).unwrap_or_else(|| to.saturating_add(self.blocks).saturating_sub(from))
    }

    /// Returns the number of blocks from the first to the last record of a span; `None` if the
    /// first one is not older.
    fn age(&self, span: &XfsLogSpan) -> Option<u32> {
        let XfsLogSpan { first, last } = span;
        match last.cycle.checked_sub(first.cycle)? {
            0 => last.block.checked_sub(first.block),
            1 => (last.block <= first.block).then(|| self.distance(first.block, last.block)),
            _ => None,
        }
    }

    /// Passes the records of a span. Returns the block of the first one that is not whole; `None`
    /// if all are.
    pub(super) fn for_each_record(
        &self,
        span: &XfsLogSpan,
        mut visit: impl FnMut(&XfsLogRecord) -> Result<(), FileSystemError>,
    ) -> Result<Option<u32>, FileSystemError> {
        let mut left = self.age(span).unwrap_or(0);
        let mut place = span.first;
        loop {
            let record = match self.record(place.block, Some(place.cycle)) {
                Ok(record) => record,
                Err(FileSystemError::Read { what, source }) => {
                    return Err(FileSystemError::Read { what, source });
                }
                Err(_) => return Ok(Some(place.block)),
            };
            visit(&record)?;
            if place == span.last {
                return Ok(None);
            }
            let next = self.after(place.block, record.blocks);
            let cycle = if next < place.block { place.cycle.saturating_add(1) } else { place.cycle };
            let rest = left.checked_sub(record.blocks);
            let Some(rest) = rest else { return Ok(Some(place.block)) };
            left = rest;
            place = XfsLogPlace { cycle, block: next };
        }
    }

    /// Reads the record at a block, of a cycle if that is known, and checks that it is whole.
    fn record(&self, block: u32, cycle: Option<u32>) -> Result<XfsLogRecord, FileSystemError> {
        let header = self.read(block, 1)?;
        let place = XfsLogPlace::parse(&header, 16);
        let found = be32_at(&header, 4);
        let is_here =
            place == XfsLogPlace { cycle: found, block } && cycle.is_none_or(|cycle| cycle == found);
        if be32_at(&header, 0) != RECORD_MAGIC || !is_here {
            return Err(wrong("a record is missing"));
        }
        let (version, length) = (be32_at(&header, 8), be32_at(&header, 12));
        if length > DATA_BYTES_MAX || !(1..=3).contains(&version) || be32_at(&header, 300) != LITTLE_ENDIAN {
            return Err(wrong("a record is of an unknown form"));
        }
        let header_count = match be32_at(&header, 320) {
            size if version & 2 != 0 && size <= DATA_BYTES_MAX => size.div_ceil(32 << 10).max(1),
            _ => 1,
        };
        let data_blocks = length.div_ceil(512);
        let blocks = header_count.saturating_add(data_blocks);
        if blocks >= self.blocks {
            return Err(wrong("a record is longer than the log"));
        }
        let mut bytes = self.read(block, blocks)?;
        for (number, part) in bytes.chunks_exact(LOG_BLOCK_BYTES).enumerate() {
            let is_wrapped =
                u32::try_from(number).is_ok_and(|number| self.blocks.saturating_sub(block) <= number);
            if cycle_of(part) != found.saturating_add(is_wrapped.into()) {
                return Err(wrong("a record has blocks of another cycle"));
            }
        }
        let headers_bytes = to_usize(header_count).saturating_mul(LOG_BLOCK_BYTES);
        let (headers, data) = bytes.split_at_mut_checked(headers_bytes).unwrap_or((&mut [], &mut []));
        let length = to_usize(length);
        let present = data.get(..length).unwrap_or_default();
        let recorded = u32_at(headers, CHECKSUM_AT);
        // `mkfs.xfs` and old systems write none.
        let is_checked = recorded != 0;
        if is_checked && !HEADER_BYTES.iter().any(|bytes| checksum(headers, *bytes, present) == recorded) {
            return Err(wrong("a record does not match its checksum"));
        }
        for (number, part) in data.chunks_exact_mut(LOG_BLOCK_BYTES).enumerate() {
            let (header, inside) =
                (number.checked_div(FIRST_BYTES_COUNT), number.checked_rem(FIRST_BYTES_COUNT));
            let (header, inside) = (header.unwrap_or(0), inside.unwrap_or(0).saturating_mul(4));
            let first_bytes_at = if header == 0 { FIRST_BYTES_AT } else { 4 };
            let at =
                header.saturating_mul(LOG_BLOCK_BYTES).saturating_add(first_bytes_at).saturating_add(inside);
            put(part, 0, headers.get(at..at.saturating_add(4)).unwrap_or_default());
        }
        Ok(XfsLogRecord {
            place,
            tail: XfsLogPlace::parse(headers, 24),
            blocks,
            operation_count: be32_at(headers, 40),
            data: data.get(..length).unwrap_or_default().to_vec(),
        })
    }
}

/// Returns the cycle in which a block was written.
fn cycle_of(block: &[u8]) -> u32 {
    match be32_at(block, 0) {
        RECORD_MAGIC => be32_at(block, 4),
        cycle => cycle,
    }
}

/// Computes the checksum of a record whose first header counts with `header_bytes` bytes.
fn checksum(headers: &[u8], header_bytes: usize, data: &[u8]) -> u32 {
    let (first, more) = headers.split_at_checked(LOG_BLOCK_BYTES).unwrap_or((headers, &[]));
    let (before, rest) = first.split_at_checked(CHECKSUM_AT).unwrap_or((first, &[]));
    let end = header_bytes.saturating_sub(CHECKSUM_AT);
    let mut code = crc32c_from(crc32c_from(!0, before), &[0; 4]);
    code = crc32c_from(code, rest.get(4..end).unwrap_or_default());
    // Only the headers that the data needs count.
    let needed = data.len().div_ceil(32 << 10).saturating_sub(1);
    for header in more.chunks_exact(LOG_BLOCK_BYTES).take(needed) {
        code = crc32c_from(code, header.get(..MORE_HEADER_BYTES).unwrap_or_default());
    }
    !crc32c_from(code, data)
}

//! The records of a trace. Each begins with a byte, its number. All numbers after it are varints
//! (`varint.rs`); a distance is a varint of a signed number, mapped to 0, −1, 1, −2, …
//!
//! | number | field     | values after the number                                                           |
//! |-------:|-----------|-----------------------------------------------------------------------------------|
//! |      1 | check     | 8 bytes: XXH3-64, little-endian, of all bytes before this record back to the end of the last check, or to the start |
//! |      2 | open      | none: the store was opened                                                        |
//! |      3 | close     | none: the store was closed                                                        |
//! |      4 | idle      | milliseconds in which nothing was requested                                       |
//! |      5 | snapshot  | distance of its time from that of the snapshot before, in seconds; series; source: 0 unknown, 1 image, 2 folder |
//! |      6 | put       | a run of blocks                                                                   |
//! |      7 | get       | a run of blocks                                                                   |
//! |      8 | sync      | none                                                                              |
//! |      9 | forget    | a snapshot: its number in this trace, from 0                                      |
//! |     10 | gc        | none: the store was collected                                                     |
//! |     11 | ids_full  | none: a block that is not known from here on gets a new id at each use            |
//! |     12 | end       | none: the trace is complete                                                       |
//!
//! The first time counts from 1970-01-01 00:00 UTC. A series is a number, in the order of first
//! use.
//!
//! A run of blocks begins with a byte of flags. Only the values with a flag follow, in this order.
//! The others are as the table says:
//!
//! | number | field       | value if the flag is set                       | value otherwise                    |
//! |-------:|-------------|------------------------------------------------|------------------------------------|
//! |      1 | place       | distance from the end of the run before: `place` = `end` + *d* | the end of the run before |
//! |      2 | first_id    | distance from the id after the last one of the run before: `first_id` = `last_id` + 1 + *d* | the next new id |
//! |      4 | block_count | number of blocks, at least 1                   | 1                                  |
//! |      8 | block_type  | one byte, as in a store                        | that of the run before             |
//! |     16 | block_bytes | size of each block                             | that of the run before             |
//! |     32 | size_class  | one byte: 0 unknown, n: at most n/8 of its size after compression | that of the run before |
//!
//! The ids of a run are consecutive, and so are its places. Either all of its blocks are new, and
//! get the next new ids, or all were used before. A place is a position in the source, in bytes. A
//! recorder that does not know it counts the bytes of the snapshot so far. Places begin at 0 in
//! each snapshot. Before the first run, the type is that of data, and the size and class are 0.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BLOCK_BYTES_MAX, BlockType, LittleEndian, to_usize};

use crate::varint::{self, Varint, unzigzag, zigzag};

/// The most blocks of one run.
pub const RUN_BLOCKS_MAX: u64 = 1 << 32;
/// The most ids of a trace.
pub const TRACE_IDS_MAX: u64 = 1 << 40;
/// No place is larger.
const PLACE_MAX: u64 = 1 << 62;
/// No time is farther from 1970, in seconds.
const TIME_MAX: u64 = 1 << 40;
/// The longest record: a number, flags, three distances, and the rest.
pub(crate) const RECORD_BYTES_MAX: usize = 64;

/// The size of a block after compression, in eighths of its size, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The size after compression is not known.
    pub const UNKNOWN: Self = Self(0);
    /// The block does not compress.
    pub const INCOMPRESSIBLE: Self = Self(8);

    /// The class of `eighths`; `None` if they are more than 8. Zero is [`Self::UNKNOWN`].
    #[must_use]
    pub const fn new(eighths: u8) -> Option<Self> {
        if eighths <= 8 { Some(Self(eighths)) } else { None }
    }

    /// The class of a block of `bytes` bytes that takes `packed` bytes after compression.
    #[must_use]
    pub fn of(packed: usize, bytes: usize) -> Self {
        if bytes == 0 {
            return Self::UNKNOWN;
        }
        let eighths = packed.min(bytes).saturating_mul(8).div_ceil(bytes);
        Self(u8::try_from(eighths.max(1)).unwrap_or(8))
    }

    /// The number of eighths: 0 if it is not known.
    #[must_use]
    pub fn eighths(self) -> u8 {
        self.0
    }
}

/// The kind of the source of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    Unknown,
    Image,
    Folder,
}

/// The beginning of a snapshot. It lasts until the next one, or until the store is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotBegin {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: i64,
    /// Snapshots of one source have one number. The numbers begin at 0.
    pub series: u64,
    pub source: SourceKind,
}

/// Consecutive blocks of one type, size and class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRun {
    /// The position in the source in bytes.
    pub place: u64,
    /// The id of the first block. Those of the others follow it.
    pub first_id: u64,
    /// At least 1 and at most [`RUN_BLOCKS_MAX`].
    pub block_count: u64,
    pub block_type: BlockType,
    /// The size of each block, at most [`BLOCK_BYTES_MAX`].
    pub block_bytes: u32,
    pub size_class: SizeClass,
}

impl TraceRun {
    /// The bytes of all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.block_count.saturating_mul(u64::from(self.block_bytes))
    }

    /// The id after the last block.
    #[must_use]
    pub fn end_id(&self) -> u64 {
        self.first_id.saturating_add(self.block_count)
    }

    /// The run of this and then `next`; `None` if they are not one run.
    #[must_use]
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let is_alike = (self.block_type, self.block_bytes, self.size_class)
            == (next.block_type, next.block_bytes, next.size_class);
        let follows = self.place.saturating_add(self.bytes()) == next.place && self.end_id() == next.first_id;
        let block_count = self.block_count.saturating_add(next.block_count);
        (is_alike && follows && block_count <= RUN_BLOCKS_MAX).then_some(Self { block_count, ..*self })
    }
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceRecord {
    Open,
    Close,
    /// Nothing was requested for a while.
    Idle {
        milliseconds: u64,
    },
    Snapshot(SnapshotBegin),
    Put(TraceRun),
    Get(TraceRun),
    Sync,
    /// A snapshot was forgotten: the number of its `Snapshot` in this trace, from 0.
    Forget {
        snapshot: u64,
    },
    /// The store was collected.
    Gc,
    /// Blocks that are not known yet get a new id at each use from here on.
    IdsFull,
}

/// The last run of blocks, which the next one may continue. It takes all records of a trace, from
/// the first one on.
#[derive(Debug, Clone, Default)]
pub struct WaitingRun {
    record: Option<TraceRecord>,
    /// True if the waiting run has new blocks.
    is_new: bool,
    next_new_id: u64,
}

impl WaitingRun {
    /// Takes the next record. Returns the run that waited, unless the record continues it. A record
    /// that is no run does not wait.
    pub fn add(&mut self, record: TraceRecord) -> [Option<TraceRecord>; 2] {
        use TraceRecord::{Get, Put};
        let (Put(run) | Get(run)) = record else { return [self.record.take(), Some(record)] };
        let was_new = self.is_new;
        self.is_new = run.first_id >= self.next_new_id;
        self.next_new_id = self.next_new_id.max(run.end_id());
        // The ids of a known block and of the next new one may be consecutive: B B C.
        let joined = match (&self.record, &record) {
            _ if was_new != self.is_new => None,
            (Some(Put(before)), Put(run)) => before.joined(run).map(Put),
            (Some(Get(before)), Get(run)) => before.joined(run).map(Get),
            _ => None,
        };
        if joined.is_some() {
            self.record = joined;
            return [None, None];
        }
        [self.record.replace(record), None]
    }

    /// Returns the run that waits.
    pub fn take(&mut self) -> Option<TraceRecord> {
        self.record.take()
    }
}

impl std::fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let run = |f: &mut std::fmt::Formatter<'_>, verb: &str, run: &TraceRun| {
            write!(
                f,
                "{verb} {} × {} bytes at {}: {} from id {}, class {}",
                run.block_count,
                run.block_bytes,
                run.place,
                run.block_type,
                run.first_id,
                run.size_class.eighths(),
            )
        };
        match self {
            Self::Open => f.write_str("open"),
            Self::Close => f.write_str("close"),
            Self::Idle { milliseconds } => write!(f, "idle {milliseconds} ms"),
            Self::Snapshot(begin) => {
                let source = match begin.source {
                    SourceKind::Unknown => "a source",
                    SourceKind::Image => "an image",
                    SourceKind::Folder => "a folder",
                };
                write!(f, "snapshot of {source}, series {}, time {}", begin.series, begin.time)
            }
            Self::Put(blocks) => run(f, "put", blocks),
            Self::Get(blocks) => run(f, "get", blocks),
            Self::Sync => f.write_str("sync"),
            Self::Forget { snapshot } => write!(f, "forget snapshot {snapshot}"),
            Self::Gc => f.write_str("gc"),
            Self::IdsFull => f.write_str("ids full"),
        }
    }
}

const CHECK: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;
const IDLE: u8 = 4;
const SNAPSHOT: u8 = 5;
const PUT: u8 = 6;
const GET: u8 = 7;
const SYNC: u8 = 8;
const FORGET: u8 = 9;
const GC: u8 = 10;
const IDS_FULL: u8 = 11;
const END: u8 = 12;

const HAS_PLACE: u8 = 1;
const HAS_ID: u8 = 2;
const HAS_COUNT: u8 = 4;
const HAS_TYPE: u8 = 8;
const HAS_BYTES: u8 = 16;
const HAS_CLASS: u8 = 32;
const FLAGS: u8 = 63;

/// The values of earlier records that later ones leave out.
#[derive(Debug, Clone)]
pub(crate) struct RecordContext {
    next_new_id: u64,
    snapshot_count: u64,
    time: i64,
    place: u64,
    id: u64,
    block_type: BlockType,
    block_bytes: u32,
    size_class: SizeClass,
}

/// Bytes that are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordFault {
    /// They end within the record.
    Cut,
    /// They cannot be a record.
    Damaged(&'static str),
}

/// A record as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredRecord {
    /// The hash of all bytes since the last check.
    Check(u64),
    Record(TraceRecord),
    End,
}

/// Appends a check.
pub(crate) fn encode_check(hash: u64, into: &mut Vec<u8>) {
    into.push(CHECK);
    into.extend_from_slice(&hash.to_le_bytes());
}

/// Appends the end.
pub(crate) fn encode_end(into: &mut Vec<u8>) {
    into.push(END);
}

fn number(bytes: &mut LittleEndian<'_>) -> Result<u64, RecordFault> {
    match varint::decode(bytes) {
        Varint::Number(number) => Ok(number),
        Varint::Cut => Err(RecordFault::Cut),
        Varint::Invalid => Err(RecordFault::Damaged("a number is invalid")),
    }
}

fn byte(bytes: &mut LittleEndian<'_>) -> Result<u8, RecordFault> {
    bytes.u8().ok_or(RecordFault::Cut)
}

/// The distance from one number to another. Neither is larger than [`PLACE_MAX`].
fn distance(from: u64, to: u64) -> u64 {
    zigzag(to.wrapping_sub(from).cast_signed())
}

/// The number at a distance from another.
fn moved(from: u64, bytes: &mut LittleEndian<'_>) -> Result<u64, RecordFault> {
    let distance = unzigzag(number(bytes)?);
    from.checked_add_signed(distance).ok_or(RecordFault::Damaged("a place or an id is out of range"))
}

impl RecordContext {
    /// The state before the first record.
    pub(crate) fn new() -> Self {
        Self {
            next_new_id: 0,
            snapshot_count: 0,
            time: 0,
            place: 0,
            id: 0,
            block_type: BlockType::DATA,
            block_bytes: 0,
            size_class: SizeClass::UNKNOWN,
        }
    }

    /// Appends a record, if it may follow the earlier ones.
    pub(crate) fn encode(&mut self, record: &TraceRecord, into: &mut Vec<u8>) -> Result<(), &'static str> {
        self.check(record)?;
        match record {
            TraceRecord::Open => into.push(OPEN),
            TraceRecord::Close => into.push(CLOSE),
            TraceRecord::Sync => into.push(SYNC),
            TraceRecord::Gc => into.push(GC),
            TraceRecord::IdsFull => into.push(IDS_FULL),
            TraceRecord::Idle { milliseconds } => {
                into.push(IDLE);
                varint::encode(*milliseconds, into);
            }
            TraceRecord::Forget { snapshot } => {
                into.push(FORGET);
                varint::encode(*snapshot, into);
            }
            TraceRecord::Snapshot(begin) => {
                into.push(SNAPSHOT);
                varint::encode(zigzag(begin.time.wrapping_sub(self.time)), into);
                varint::encode(begin.series, into);
                into.push(match begin.source {
                    SourceKind::Unknown => 0,
                    SourceKind::Image => 1,
                    SourceKind::Folder => 2,
                });
            }
            TraceRecord::Put(run) => self.encode_run(PUT, run, into),
            TraceRecord::Get(run) => self.encode_run(GET, run, into),
        }
        self.note(record);
        Ok(())
    }

    fn encode_run(&self, record_number: u8, run: &TraceRun, into: &mut Vec<u8>) {
        let flag = |is_given: bool, flag: u8| if is_given { flag } else { 0 };
        let flags = flag(run.place != self.place, HAS_PLACE)
            | flag(run.first_id != self.next_new_id, HAS_ID)
            | flag(run.block_count != 1, HAS_COUNT)
            | flag(run.block_type != self.block_type, HAS_TYPE)
            | flag(run.block_bytes != self.block_bytes, HAS_BYTES)
            | flag(run.size_class != self.size_class, HAS_CLASS);
        into.extend_from_slice(&[record_number, flags]);
        if flags & HAS_PLACE != 0 {
            varint::encode(distance(self.place, run.place), into);
        }
        if flags & HAS_ID != 0 {
            varint::encode(distance(self.id, run.first_id), into);
        }
        if flags & HAS_COUNT != 0 {
            varint::encode(run.block_count, into);
        }
        if flags & HAS_TYPE != 0 {
            into.push(run.block_type.to_byte());
        }
        if flags & HAS_BYTES != 0 {
            varint::encode(u64::from(run.block_bytes), into);
        }
        if flags & HAS_CLASS != 0 {
            into.push(run.size_class.eighths());
        }
    }

    /// Decodes the record at the front of `bytes`, and takes its bytes.
    pub(crate) fn decode(&mut self, bytes: &mut LittleEndian<'_>) -> Result<StoredRecord, RecordFault> {
        let record = match byte(bytes)? {
            CHECK => return bytes.u64().map(StoredRecord::Check).ok_or(RecordFault::Cut),
            END => return Ok(StoredRecord::End),
            OPEN => TraceRecord::Open,
            CLOSE => TraceRecord::Close,
            SYNC => TraceRecord::Sync,
            GC => TraceRecord::Gc,
            IDS_FULL => TraceRecord::IdsFull,
            IDLE => TraceRecord::Idle { milliseconds: number(bytes)? },
            FORGET => TraceRecord::Forget { snapshot: number(bytes)? },
            SNAPSHOT => {
                let distance = unzigzag(number(bytes)?);
                let series = number(bytes)?;
                let source = match byte(bytes)? {
                    0 => SourceKind::Unknown,
                    1 => SourceKind::Image,
                    2 => SourceKind::Folder,
                    _ => return Err(RecordFault::Damaged("there is no such kind of source")),
                };
                let time = self.time.checked_add(distance);
                let time = time.ok_or(RecordFault::Damaged("a time is out of range"))?;
                TraceRecord::Snapshot(SnapshotBegin { time, series, source })
            }
            PUT => TraceRecord::Put(self.decode_run(bytes)?),
            GET => TraceRecord::Get(self.decode_run(bytes)?),
            _ => return Err(RecordFault::Damaged("there is no such record")),
        };
        self.check(&record).map_err(RecordFault::Damaged)?;
        self.note(&record);
        Ok(StoredRecord::Record(record))
    }

    fn decode_run(&self, bytes: &mut LittleEndian<'_>) -> Result<TraceRun, RecordFault> {
        let flags = byte(bytes)?;
        if flags & !FLAGS != 0 {
            return Err(RecordFault::Damaged("a run has unknown flags"));
        }
        let has = |flag: u8| flags & flag != 0;
        let place = if has(HAS_PLACE) { moved(self.place, bytes)? } else { self.place };
        let first_id = if has(HAS_ID) { moved(self.id, bytes)? } else { self.next_new_id };
        let block_count = if has(HAS_COUNT) { number(bytes)? } else { 1 };
        let block_type = if has(HAS_TYPE) {
            BlockType::from_byte(byte(bytes)?).ok_or(RecordFault::Damaged("there is no such block type"))?
        } else {
            self.block_type
        };
        let block_bytes = if has(HAS_BYTES) {
            u32::try_from(number(bytes)?).map_err(|_| RecordFault::Damaged("a block is too large"))?
        } else {
            self.block_bytes
        };
        let size_class = if has(HAS_CLASS) {
            SizeClass::new(byte(bytes)?).ok_or(RecordFault::Damaged("there is no such class of sizes"))?
        } else {
            self.size_class
        };
        Ok(TraceRun { place, first_id, block_count, block_type, block_bytes, size_class })
    }

    /// Checks that a record may follow the earlier ones.
    fn check(&self, record: &TraceRecord) -> Result<(), &'static str> {
        match record {
            TraceRecord::Put(run) | TraceRecord::Get(run) => self.check_run(run),
            TraceRecord::Forget { snapshot } if *snapshot >= self.snapshot_count => {
                Err("a snapshot is forgotten before it is taken")
            }
            TraceRecord::Snapshot(begin) if begin.time.unsigned_abs() > TIME_MAX => {
                Err("a time is out of range")
            }
            _ => Ok(()),
        }
    }

    fn check_run(&self, run: &TraceRun) -> Result<(), &'static str> {
        if run.block_count == 0 || run.block_count > RUN_BLOCKS_MAX {
            return Err("a run has no blocks, or too many");
        }
        if to_usize(run.block_bytes) > BLOCK_BYTES_MAX {
            return Err("a block is too large");
        }
        if run.place > PLACE_MAX || run.place.saturating_add(run.bytes()) > PLACE_MAX {
            return Err("a place is out of range");
        }
        if run.first_id > TRACE_IDS_MAX || run.end_id() > TRACE_IDS_MAX {
            return Err("an id is out of range");
        }
        if run.first_id != self.next_new_id && run.end_id() > self.next_new_id {
            return Err("a run has both new and known blocks, or leaves out an id");
        }
        Ok(())
    }

    /// Takes over the values that later records leave out.
    fn note(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Snapshot(begin) => {
                self.time = begin.time;
                self.place = 0;
                self.snapshot_count = self.snapshot_count.saturating_add(1);
            }
            TraceRecord::Put(run) | TraceRecord::Get(run) => {
                self.next_new_id = self.next_new_id.max(run.end_id());
                self.id = run.end_id();
                self.place = run.place.saturating_add(run.bytes());
                self.block_type = run.block_type;
                self.block_bytes = run.block_bytes;
                self.size_class = run.size_class;
            }
            _ => {}
        }
    }
}

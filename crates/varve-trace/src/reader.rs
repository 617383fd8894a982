//! Reads a trace, which may come from anybody.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read};

use varve_block::{LittleEndian, has_kind};
use xxhash_rust::xxh3::Xxh3;

use crate::header::{HEADER_BYTES_MAX, HeaderFault, TraceHeader};
use crate::record::{RECORD_BYTES_MAX, RecordContext, RecordFault, StoredRecord, TraceRecord, encode_check};

/// Bytes that are read at a time. A header and a record are shorter.
const BUFFER_BYTES: usize = 1 << 16;
const _: () = assert!(RECORD_BYTES_MAX < BUFFER_BYTES && HEADER_BYTES_MAX < BUFFER_BYTES);

/// The reason why a trace cannot be read on. Records before the offset are as they were written, up
/// to the last check.
#[derive(Debug, thiserror::Error)]
pub enum ReadTraceError {
    /// The file has no header of a trace.
    #[error("the file is not a trace: it does not begin with `varvetrc`")]
    NotATrace,
    /// A newer program has made the trace.
    #[error("the trace has version {version}, which is newer than this program: use a newer one")]
    NewerVersion { version: u16 },
    /// The bytes at an offset are not those that a writer has written.
    #[error("the trace is damaged at offset {offset}: {reason}")]
    Damaged { offset: u64, reason: &'static str },
    /// The file could not be read.
    #[error("the trace cannot be read at offset {offset}")]
    Read { offset: u64, source: io::Error },
}

has_kind!(ReadTraceError: Self::NewerVersion { .. } => NewerVersion);

/// The end of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEnding {
    /// The maker has finished the trace.
    Complete,
    /// The trace has no end: a crash has cut it, or it is still being written. All whole records
    /// were returned.
    Cut {
        /// The offset after the last whole record.
        offset: u64,
    },
}

/// Returns the records of a trace. After an error it returns nothing more.
pub struct TraceReader<R: Read> {
    input: R,
    header: TraceHeader,
    context: RecordContext,
    buffer: Buffer,
    /// The hash of all bytes since the last check.
    hasher: Xxh3,
    ending: Option<TraceEnding>,
    has_failed: bool,
}

/// Bytes that were read and not yet taken.
struct Buffer {
    bytes: Vec<u8>,
    /// The first bytes were taken already.
    taken: usize,
    /// The offset of the first byte that is not taken.
    offset: u64,
    is_at_end: bool,
}

impl Buffer {
    fn left(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Reads until at least `needed` bytes are left, or until the end.
    fn fill(&mut self, input: &mut impl Read, needed: usize) -> Result<(), ReadTraceError> {
        while self.left().len() < needed && !self.is_at_end {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            let before = self.bytes.len();
            self.bytes.resize(BUFFER_BYTES, 0);
            let read = match self.bytes.get_mut(before..).map(|into| input.read(into)) {
                Some(Ok(read)) => read,
                Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
                    self.bytes.truncate(before);
                    continue;
                }
                Some(Err(source)) => {
                    self.bytes.truncate(before);
                    return Err(ReadTraceError::Read { offset: self.offset, source });
                }
                None => 0,
            };
            self.bytes.truncate(before.saturating_add(read));
            self.is_at_end = read == 0;
        }
        Ok(())
    }

    fn take(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count);
        self.offset = self.offset.saturating_add(count as u64);
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`ReadTraceError`].
    pub fn new(mut input: R) -> Result<Self, ReadTraceError> {
        let mut buffer = Buffer { bytes: Vec::new(), taken: 0, offset: 0, is_at_end: false };
        buffer.fill(&mut input, HEADER_BYTES_MAX)?;
        let mut bytes = LittleEndian::new(buffer.left());
        let header = TraceHeader::decode(&mut bytes).map_err(|fault| match fault {
            HeaderFault::NotATrace => ReadTraceError::NotATrace,
            HeaderFault::NewerVersion(version) => ReadTraceError::NewerVersion { version },
            HeaderFault::Damaged(reason) => ReadTraceError::Damaged { offset: 0, reason },
        })?;
        let header_bytes = buffer.left().len().saturating_sub(bytes.left().len());
        let mut hasher = Xxh3::new();
        hasher.update(buffer.left().get(..header_bytes).unwrap_or_default());
        buffer.take(header_bytes);
        let context = RecordContext::new();
        Ok(Self { input, header, context, buffer, hasher, ending: None, has_failed: false })
    }

    /// The properties of the whole trace.
    #[must_use]
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The end of the trace; `None` until all records have been returned.
    #[must_use]
    pub fn ending(&self) -> Option<TraceEnding> {
        self.ending
    }

    fn damaged(&self, reason: &'static str) -> ReadTraceError {
        ReadTraceError::Damaged { offset: self.buffer.offset, reason }
    }

    /// The next record; `None` at the end.
    fn read_record(&mut self) -> Result<Option<TraceRecord>, ReadTraceError> {
        loop {
            self.buffer.fill(&mut self.input, RECORD_BYTES_MAX)?;
            let left = self.buffer.left();
            let mut bytes = LittleEndian::new(left);
            if matches!(left.first(), None | Some(0)) {
                return self.end_without_mark();
            }
            let decoded = self.context.decode(&mut bytes);
            let record_bytes = left.len().saturating_sub(bytes.left().len());
            match decoded {
                Ok(StoredRecord::Check(expected)) => {
                    if self.hasher.digest() != expected {
                        return Err(self.damaged("the bytes before this check are not as they were written"));
                    }
                    self.hasher.reset();
                    self.buffer.take(record_bytes);
                }
                Ok(stored) => {
                    self.hasher.update(left.get(..record_bytes).unwrap_or_default());
                    self.buffer.take(record_bytes);
                    match stored {
                        StoredRecord::Record(record) => return Ok(Some(record)),
                        _ => return self.read_last_check(),
                    }
                }
                Err(RecordFault::Cut) => {
                    self.ending = Some(TraceEnding::Cut { offset: self.buffer.offset });
                    return Ok(None);
                }
                Err(RecordFault::Damaged(reason)) => return Err(self.damaged(reason)),
            }
        }
    }

    /// Reads the check that follows the end, and makes sure that only zeros follow it.
    fn read_last_check(&mut self) -> Result<Option<TraceRecord>, ReadTraceError> {
        const REASON: &str = "the end is not followed by its check alone";
        let mut expected = Vec::new();
        encode_check(self.hasher.digest(), &mut expected);
        self.buffer.fill(&mut self.input, RECORD_BYTES_MAX)?;
        let (offset, left) = (self.buffer.offset, self.buffer.left());
        // The part of the check that is there: the rest was cut, and may be zeros.
        let there = expected.iter().zip(left).take_while(|(byte, found)| byte == found).count();
        self.buffer.take(there);
        self.skip_zeros(REASON)?;
        let is_whole = there == expected.len();
        self.ending = Some(if is_whole { TraceEnding::Complete } else { TraceEnding::Cut { offset } });
        Ok(None)
    }

    /// Handles the end of the file, or zeros up to it.
    fn end_without_mark(&mut self) -> Result<Option<TraceRecord>, ReadTraceError> {
        let offset = self.buffer.offset;
        self.skip_zeros("there is no such record")?;
        self.ending = Some(TraceEnding::Cut { offset });
        Ok(None)
    }

    /// Reads to the end of the file, where a crash may have left zeros. Anything else there is an
    /// error for this reason.
    fn skip_zeros(&mut self, reason: &'static str) -> Result<(), ReadTraceError> {
        loop {
            self.buffer.fill(&mut self.input, 1)?;
            let left = self.buffer.left();
            if left.is_empty() {
                return Ok(());
            }
            if left.iter().any(|byte| *byte != 0) {
                return Err(self.damaged(reason));
            }
            let count = left.len();
            self.buffer.take(count);
        }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<TraceRecord, ReadTraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.ending.is_some() {
            return None;
        }
        let record = self.read_record();
        self.has_failed = record.is_err();
        record.transpose()
    }
}

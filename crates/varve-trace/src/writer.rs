//! Writes a trace.

use std::io::{self, Write};

use xxhash_rust::xxh3::xxh3_64;

use crate::header::TraceHeader;
use crate::record::{RecordContext, TraceRecord, encode_check, encode_end};

/// Bytes that are collected before they are written with a check.
const BUFFER_BYTES: usize = 1 << 16;

/// The reason why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteTraceError {
    /// The header cannot be encoded.
    #[error(
        "the header of a trace is invalid: its name must be short and in ASCII, and its block size at most 1 MiB"
    )]
    Header,
    /// The record contradicts the earlier ones.
    #[error("a record of a trace is invalid: {reason}")]
    Record { reason: &'static str },
    /// The file could not be written.
    #[error("the trace could not be written")]
    Write { source: io::Error },
}

/// Writes a trace, with a check at least every 64 KiB.
pub struct TraceWriter<W: Write> {
    output: W,
    context: RecordContext,
    /// Bytes since the last check.
    buffer: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// [`WriteTraceError::Header`]. Nothing is written yet.
    pub fn new(output: W, header: &TraceHeader) -> Result<Self, WriteTraceError> {
        let buffer = header.encode().ok_or(WriteTraceError::Header)?;
        Ok(Self { output, context: RecordContext::new(), buffer })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// See [`WriteTraceError`]. After [`WriteTraceError::Record`] the trace is as before.
    pub fn write(&mut self, record: &TraceRecord) -> Result<(), WriteTraceError> {
        self.context.encode(record, &mut self.buffer).map_err(|reason| WriteTraceError::Record { reason })?;
        if self.buffer.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    /// Passes everything on with a check, so that a process that is killed later does not lose it.
    ///
    /// # Errors
    /// [`WriteTraceError::Write`].
    pub fn flush(&mut self) -> Result<(), WriteTraceError> {
        if !self.buffer.is_empty() {
            self.write_out()?;
        }
        self.output.flush().map_err(|source| WriteTraceError::Write { source })
    }

    /// Marks the trace as complete, and returns its file.
    ///
    /// # Errors
    /// [`WriteTraceError::Write`].
    pub fn finish(mut self) -> Result<W, WriteTraceError> {
        encode_end(&mut self.buffer);
        self.flush()?;
        Ok(self.output)
    }

    fn write_out(&mut self) -> Result<(), WriteTraceError> {
        encode_check(xxh3_64(&self.buffer), &mut self.buffer);
        let written = self.output.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|source| WriteTraceError::Write { source })
    }
}

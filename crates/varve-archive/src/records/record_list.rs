//! Lists of records, as folders and the catalog keep them: the content of a tree, read one record at a time.
//!
//! Invariant: at most one record, and one batch of leaves, is in memory.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::BlockStore;
use varve_tree::{Entry, Extent, Extents, ReadTreeError, TreeReader};

use crate::records::fields::{split_record, split_varint};

/// The largest record, in bytes: an extended attribute has up to 64 KiB, and a file may have some.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// How many leaves are asked for at a time. Most folders have fewer.
const BATCH_LEAF_COUNT: usize = 32;
/// How many bytes the leaves of a batch stand for, but for the last.
const BATCH_BYTES: u64 = 1 << 20;

/// Why a list of records could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadRecordsError {
    /// The list's tree could not be read. What follows is out of reach: a record may begin anywhere.
    #[error(transparent)]
    Tree(#[from] ReadTreeError),
    /// The list ends within a record.
    #[error("the list ends within a record, of which it has {bytes_left} bytes")]
    Truncated {
        /// How many bytes follow the last whole record.
        bytes_left: usize,
    },
    /// No writer writes such a record.
    #[error("a record that claims more than {RECORD_BYTES_MAX} bytes")]
    TooLarge,
}

/// The records of a list, in order. Ends after the first error.
pub struct Records<'a> {
    reader: TreeReader<'a>,
    extents: Option<Extents<'a>>,
    buffer: Vec<u8>,
    /// Where in `buffer` the next record begins.
    start: usize,
    /// Where in the list `buffer` begins.
    buffer_offset: u64,
}

impl<'a> Records<'a> {
    /// The list that `entry` leads to. Reads nothing yet.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        Self::starting_at(store, entry, 0)
    }

    /// The part of the list from `offset` on, where a record begins: an [`offset`](Self::offset) of an earlier reading. Reads
    /// nothing yet.
    #[must_use]
    pub fn starting_at(store: &'a dyn BlockStore, entry: &Entry, offset: u64) -> Self {
        let reader = TreeReader::new(store, entry);
        let extents = Some(reader.extents(offset.min(entry.size())..entry.size()));
        Self { reader, extents, buffer: Vec::new(), start: 0, buffer_offset: offset }
    }

    /// Where in the list the next record begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.buffer_offset.saturating_add(self.start as u64)
    }

    /// The fields of the next record; `None` at the end.
    ///
    /// # Errors
    /// [`ReadRecordsError`]; no record comes after it.
    #[expect(clippy::should_implement_trait, reason = "what it returns borrows from the reader")]
    pub fn next(&mut self) -> Option<Result<&[u8], ReadRecordsError>> {
        let filled = self.fill();
        if !matches!(filled, Ok(true)) {
            self.extents = None;
            self.start = self.buffer.len();
            return filled.err().map(Err);
        }
        let (fields, rest_bytes) =
            split_record(self.buffer.get(self.start..)?).map(|(fields, rest)| (fields, rest.len()))?;
        self.start = self.buffer.len().saturating_sub(rest_bytes);
        Some(Ok(fields))
    }

    /// Reads until a whole record is there. Returns false at the end of the list.
    fn fill(&mut self) -> Result<bool, ReadRecordsError> {
        loop {
            let bytes = self.buffer.get(self.start..).unwrap_or_default();
            if split_varint(bytes).is_some_and(|(length, _)| length > RECORD_BYTES_MAX as u64) {
                return Err(ReadRecordsError::TooLarge);
            }
            if split_record(bytes).is_some() {
                return Ok(true);
            }
            let bytes_left = bytes.len();
            self.buffer_offset = self.offset();
            self.buffer.drain(..self.start);
            self.start = 0;
            if !self.read_batch()? {
                return if bytes_left == 0 {
                    Ok(false)
                } else {
                    Err(ReadRecordsError::Truncated { bytes_left })
                };
            }
        }
    }

    /// Appends some leaves to the buffer. Returns false where there are no more.
    fn read_batch(&mut self) -> Result<bool, ReadRecordsError> {
        let Some(extents) = &mut self.extents else { return Ok(false) };
        let mut batch: Vec<Extent> = Vec::new();
        let mut batch_bytes = 0u64;
        while batch.len() < BATCH_LEAF_COUNT && batch_bytes < BATCH_BYTES {
            let Some(extent) = extents.next() else { break };
            let extent = extent.map_err(ReadTreeError::from)?;
            batch_bytes = batch_bytes.saturating_add(extent.length);
            batch.push(extent);
        }
        let wanted_from = self.buffer_offset.saturating_add(self.buffer.len() as u64);
        for (extent, bytes) in batch.iter().zip(self.reader.read_extents(&batch)) {
            // Only the first leaf of a part may begin before it.
            let passed = usize::try_from(wanted_from.saturating_sub(extent.offset)).unwrap_or(usize::MAX);
            let buffered = self.buffer.len();
            // Zeros within an attribute may be a hole, but no longer one than a record.
            let length = usize::try_from(extent.length).ok().filter(|length| *length <= RECORD_BYTES_MAX);
            let end = self.buffer.len().saturating_add(length.ok_or(ReadRecordsError::TooLarge)?);
            self.buffer.extend_from_slice(&bytes?);
            self.buffer.resize(end, 0);
            let passed_end = buffered.saturating_add(passed).min(end);
            self.buffer.drain(buffered..passed_end);
        }
        Ok(!batch.is_empty())
    }
}

//! Lists of records, as folders and the catalog store them: the content of a tree, read one record
//! at a time.
//!
//! Invariant: memory holds at most one record and one batch of leaves.

use varve_block::{BlockStore, has_kind, to_usize};
use varve_tree::{Entry, Extent, Extents, ReadTreeError, TreeReader};

use crate::records::fields::{split_record, split_varint};

/// The largest record, in bytes. An extended attribute has up to 64 KiB, and a file may have
/// several.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Leaves that are requested at a time. Most folders have fewer.
const BATCH_LEAF_COUNT: usize = 32;
/// A batch ends once its leaves cover this many bytes.
const BATCH_BYTES: u64 = 1 << 20;

/// Why a list of records was not readable to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadRecordsError {
    /// The list's tree is unreadable. Later records are out of reach, because a record may begin at
    /// any byte.
    #[error("{0}")]
    Tree(#[from] ReadTreeError),
    /// The list ends within a record.
    #[error("the list is cut short: its last {bytes_left} bytes are an incomplete record")]
    Truncated {
        /// Bytes after the last whole record.
        bytes_left: usize,
    },
    /// The record is larger than any that a writer writes.
    #[error("a record is too large: it exceeds {RECORD_BYTES_MAX} bytes")]
    TooLarge,
}

has_kind!(ReadRecordsError: Self::Truncated { .. } => Damage);

/// The records of a list, in order. Ends after the first error. All records before the first lost
/// leaf are returned before the error: `docs/internals/format.md`, section 3.
pub struct Records<'a> {
    reader: TreeReader<'a>,
    extents: Option<Extents<'a>>,
    /// The error after the leaves in `buffer`.
    failure: Option<ReadRecordsError>,
    buffer: Vec<u8>,
    /// The position in `buffer` at which the next record begins.
    start: usize,
    /// The position in the list at which `buffer` begins.
    buffer_offset: u64,
}

impl<'a> Records<'a> {
    /// Reads the list that `entry` leads to. Reads nothing yet.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        Self::starting_at(store, entry, 0)
    }

    /// Reads the list from `offset` on, which must be the start of a record: an
    /// [`offset`](Self::offset) of an earlier reading. Reads nothing yet.
    pub(crate) fn starting_at(store: &'a dyn BlockStore, entry: &Entry, offset: u64) -> Self {
        let reader = TreeReader::new(store, entry);
        let extents = Some(reader.extents(offset.min(entry.size())..entry.size()));
        Self { reader, extents, failure: None, buffer: Vec::new(), start: 0, buffer_offset: offset }
    }

    /// The position in the list of the next record, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.buffer_offset.saturating_add(self.start as u64)
    }

    /// Drops the part of the list that was read ahead. It is read again for the next record.
    pub(crate) fn drop_buffer(&mut self) {
        let offset = self.offset();
        if let Some(extents) = &mut self.extents {
            *extents = self.reader.extents(offset..self.reader.size());
            (self.buffer, self.start, self.buffer_offset) = (Vec::new(), 0, offset);
        }
    }

    /// The fields of the next record; `None` at the end.
    ///
    /// # Errors
    /// [`ReadRecordsError`]; no record follows it.
    #[expect(clippy::should_implement_trait, reason = "the returned value borrows from the reader")]
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

    /// Reads until the buffer holds a whole record. Returns false at the end of the list.
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

    /// Appends a batch of leaves to the buffer, up to the first lost one. Returns false at the end
    /// of the list.
    fn read_batch(&mut self) -> Result<bool, ReadRecordsError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let Some(extents) = &mut self.extents else { return Ok(false) };
        let mut batch: Vec<Extent> = Vec::new();
        let mut batch_bytes = 0u64;
        while batch.len() < BATCH_LEAF_COUNT && batch_bytes < BATCH_BYTES {
            match extents.next() {
                None => break,
                Some(Ok(extent)) => {
                    batch_bytes = batch_bytes.saturating_add(extent.length);
                    batch.push(extent);
                }
                Some(Err(error)) => {
                    self.failure = Some(ReadTreeError::from(error).into());
                    break;
                }
            }
        }
        if batch.is_empty() {
            return self.failure.take().map_or(Ok(false), Err);
        }
        if let Err(error) = self.append(&batch) {
            self.failure = Some(error);
        }
        Ok(true)
    }

    /// Appends leaves to the buffer, up to the first lost one.
    fn append(&mut self, batch: &[Extent]) -> Result<(), ReadRecordsError> {
        let wanted_from = self.buffer_offset.saturating_add(self.buffer.len() as u64);
        for (extent, bytes) in batch.iter().zip(self.reader.read_extents(batch)) {
            // Only the first leaf of a batch may begin before the requested position.
            let passed = to_usize(wanted_from.saturating_sub(extent.offset));
            let buffered = self.buffer.len();
            // Zeros within an attribute may be a hole, but a hole is at most as long as a record.
            let length = Some(to_usize(extent.length)).filter(|length| *length <= RECORD_BYTES_MAX);
            let end = self.buffer.len().saturating_add(length.ok_or(ReadRecordsError::TooLarge)?);
            let bytes = bytes?;
            self.buffer.extend_from_slice(&bytes);
            self.buffer.resize(end, 0);
            let passed_end = buffered.saturating_add(passed).min(end);
            self.buffer.drain(buffered..passed_end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockKind, BlockName, BlockType, MemoryBlockStore};
    use varve_tree::{ContentWriter, Cutting};

    use super::*;
    use crate::records::fields::frame;

    /// A record of this number, long enough that many leaves hold a part of several.
    fn record(number: u32) -> Vec<u8> {
        let mut state = u64::from(number) | 1 << 40;
        let mut bytes = number.to_le_bytes().to_vec();
        while bytes.len() < 700 {
            state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes
    }

    /// The rule of the format's page: a list ends at the first record that touches a lost range.
    #[test]
    fn all_records_before_a_lost_leaf_are_read() {
        let store = MemoryBlockStore::new();
        let mut list = Vec::new();
        let ends: Vec<u64> = (0..900)
            .map(|number| {
                frame(&record(number), &mut list);
                list.len() as u64
            })
            .collect();
        let mut writer = ContentWriter::new(&store, BlockKind::Directory, Cutting::DIRECTORY);
        writer.write(&list).unwrap();
        let entry = writer.finish().unwrap();
        let leaves: Vec<_> =
            TreeReader::new(&store, &entry).extents(0..entry.size()).map(Result::unwrap).collect();
        assert!(leaves.len() > 40, "{} leaves are more than one batch", leaves.len());
        for lost in leaves {
            let store = MemoryBlockStore::new();
            let mut writer = ContentWriter::new(&store, BlockKind::Directory, Cutting::DIRECTORY);
            writer.write(&list).unwrap();
            writer.finish().unwrap();
            let score = lost.leaf.unwrap();
            assert!(store.lose(&BlockName { score, block_type: BlockType::DIRECTORY }));
            let mut records = Records::new(&store, &entry);
            let mut count = 0;
            let failure = loop {
                match records.next().expect("the list does not end without the error") {
                    Ok(fields) => assert_eq!(fields, record(count)),
                    Err(error) => break error,
                }
                count += 1;
            };
            assert!(matches!(failure, ReadRecordsError::Tree(_)), "{failure}");
            let whole = ends.partition_point(|end| *end <= lost.offset);
            assert_eq!(count as usize, whole, "the leaf at {} is lost", lost.offset);
            assert!(records.next().is_none(), "nothing follows the error");
        }
    }
}

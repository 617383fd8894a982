//! Reads files: at any offset, by extents, or as a stream.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, BlockType, GetError, Score, has_kind, to_usize};

use crate::cursor::{ReadPointerError, TreeCursor, name_of};
use crate::entry::{Entry, Layout};
use crate::extents::{Extent, Extents};

/// The bytes of leaves that are requested at a time.
const BATCH_BYTES: u64 = 1 << 20;

/// The reason why bytes of a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadTreeError {
    /// The range exceeds the file.
    #[error("a read of {length} bytes at {offset} exceeds a file of {size} bytes")]
    BeyondEnd {
        /// The start of the read.
        offset: u64,
        /// The length of the read.
        length: u64,
        /// The size of the file.
        size: u64,
    },
    /// A pointer block above the leaves cannot be read.
    #[error("{0}")]
    Pointer(#[from] ReadPointerError),
    /// The store does not return a leaf.
    #[error("bytes {}..{} cannot be read", range.start, range.end)]
    Leaf {
        /// The bytes of the file in the leaf.
        range: Range<u64>,
        /// The store's error, with the name of the leaf.
        source: GetError,
    },
    /// The store returns a leaf, but it is not valid at this place of the tree.
    #[error("bytes {}..{}: their leaf, {name}, has {actual} bytes", range.start, range.end)]
    LeafLength {
        /// The bytes of the file in the leaf.
        range: Range<u64>,
        name: BlockName,
        /// The size of the leaf.
        actual: usize,
    },
}

has_kind!(ReadTreeError: Self::LeafLength { .. } => Damage);

impl ReadTreeError {
    /// Returns the bytes of the file that cannot be read.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::BeyondEnd { offset, length, .. } => *offset..offset.saturating_add(*length),
            Self::Pointer(pointer) => pointer.range(),
            Self::Leaf { range, .. } | Self::LeafLength { range, .. } => range.clone(),
        }
    }

    /// Returns the faulty block; `None` if there is none.
    #[must_use]
    pub fn name(&self) -> Option<BlockName> {
        match self {
            Self::BeyondEnd { .. } => None,
            Self::Pointer(pointer) => Some(pointer.name()),
            Self::Leaf { source, .. } => Some(name_of(source)),
            Self::LeafLength { name, .. } => Some(*name),
        }
    }
}

/// The reason why a stream ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The tree could not be read further. All bytes before were written.
    #[error("{0}")]
    Read(#[from] ReadTreeError),
    /// The receiver of the stream failed.
    #[error("the output could not be written")]
    Write {
        /// The error of the receiver.
        source: io::Error,
    },
}

/// A part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPiece<'a> {
    /// Bytes of a leaf; at least one.
    Bytes(&'a [u8]),
    /// A number of zeros, at least one: a hole, or the end of a leaf. Adjacent zeros are merged
    /// into one piece.
    Zeros(u64),
}

/// A reader of one file. Holds no blocks; may be shared between threads.
#[derive(Clone, Copy)]
pub struct TreeReader<'a> {
    pub(crate) store: &'a dyn BlockStore,
    pub(crate) entry: Entry,
}

impl<'a> TreeReader<'a> {
    /// Makes a reader of the file of `entry`. Reads nothing.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        Self { store, entry: *entry }
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.entry.size()
    }

    /// Returns the leaves and holes that overlap `range`, in order and without gaps. Leaves are
    /// whole: the first may begin before the range, and the last may end after it. Holes are cut to
    /// the range, and adjacent ones are merged.
    ///
    /// Reads the pointer blocks on the way and no leaves; holds one pointer block a level.
    #[must_use]
    pub fn extents(&self, range: Range<u64>) -> Extents<'a> {
        Extents::new(TreeCursor::new(self.store, &self.entry), range)
    }

    /// Reads the leaves of many extents of this file in one batch. There is one answer for each
    /// extent, in the same order, so that a damaged leaf does not hide its neighbours.
    ///
    /// The bytes are those of the block: if there are fewer than the extent's length, the rest is
    /// zeros. A hole has none. A leaf is damaged if it is longer than its extent, or if its extent
    /// is longer than a leaf of this tree may be.
    #[must_use]
    pub fn read_extents(&self, extents: &[Extent]) -> Vec<Result<Bytes, ReadTreeError>> {
        let names: Vec<BlockName> =
            extents.iter().filter_map(|extent| extent.leaf).map(|score| self.leaf_name(score)).collect();
        let mut blocks = if names.is_empty() { Vec::new() } else { self.store.get_batch(&names) }.into_iter();
        let mut answer = |extent: &Extent| {
            let Some(score) = extent.leaf else { return Ok(Bytes::new()) };
            let range = extent.range();
            let bytes = match blocks.next().expect("a batch answers each of its names") {
                Ok(bytes) => bytes,
                Err(source) => return Err(ReadTreeError::Leaf { range, source }),
            };
            if self.entry.layout() == Layout::Venti {
                let length = to_usize(extent.length);
                return Ok(bytes.slice(..bytes.len().min(length)));
            }
            if extent.length > u64::from(self.entry.leaf_bytes()) || bytes.len() as u64 > extent.length {
                return Err(ReadTreeError::LeafLength {
                    range,
                    name: self.leaf_name(score),
                    actual: bytes.len(),
                });
            }
            Ok(bytes)
        };
        extents.iter().map(&mut answer).collect()
    }

    /// Fills `into` with the bytes from `offset` on. Reads only the blocks that lead to them, in
    /// batches of leaves of about 1 MiB.
    ///
    /// # Errors
    /// [`ReadTreeError`] for the first bytes that cannot be read. The contents of `into` are then
    /// unspecified.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadTreeError> {
        let (length, size) = (into.len() as u64, self.size());
        let Some(end) = offset.checked_add(length).filter(|end| *end <= size) else {
            return Err(ReadTreeError::BeyondEnd { offset, length, size });
        };
        let mut extents = self.extents(offset..end);
        loop {
            let (batch, damage) = extents.batch(BATCH_BYTES);
            damage?;
            if batch.is_empty() {
                return Ok(());
            }
            for (extent, bytes) in batch.iter().zip(self.read_extents(&batch)) {
                fill(into, offset, extent, &bytes?);
            }
        }
    }

    /// Passes the whole file to `write` in order, in pieces. Holds one batch of leaves of about 1
    /// MiB.
    ///
    /// # Errors
    /// [`StreamError::Read`] at the first damage, after all bytes before it were written;
    /// [`StreamError::Write`] when `write` fails.
    pub fn stream(
        &self,
        write: &mut dyn FnMut(StreamPiece<'_>) -> io::Result<()>,
    ) -> Result<(), StreamError> {
        let mut pieces = MergedPieces { write, zeros: 0 };
        let streamed = self.stream_extents(&mut pieces);
        pieces.end_zeros()?;
        streamed
    }

    fn stream_extents(&self, pieces: &mut MergedPieces<'_>) -> Result<(), StreamError> {
        let mut extents = self.extents(0..self.size());
        loop {
            let (batch, damage) = extents.batch(BATCH_BYTES);
            for (extent, bytes) in batch.iter().zip(self.read_extents(&batch)) {
                let bytes = bytes?;
                pieces.push(&bytes, extent.length - bytes.len() as u64)?;
            }
            damage.map_err(ReadTreeError::from)?;
            if batch.is_empty() {
                return Ok(());
            }
        }
    }

    fn leaf_name(&self, score: Score) -> BlockName {
        BlockName { score, block_type: BlockType::leaf(self.entry.leaf_kind()) }
    }
}

/// Delays zeros until their number is known.
struct MergedPieces<'w> {
    write: &'w mut dyn FnMut(StreamPiece<'_>) -> io::Result<()>,
    zeros: u64,
}

impl MergedPieces<'_> {
    fn push(&mut self, bytes: &[u8], zeros: u64) -> Result<(), StreamError> {
        if !bytes.is_empty() {
            self.end_zeros()?;
            (self.write)(StreamPiece::Bytes(bytes)).map_err(|source| StreamError::Write { source })?;
        }
        self.zeros += zeros;
        Ok(())
    }

    fn end_zeros(&mut self) -> Result<(), StreamError> {
        match std::mem::take(&mut self.zeros) {
            0 => Ok(()),
            zeros => (self.write)(StreamPiece::Zeros(zeros)).map_err(|source| StreamError::Write { source }),
        }
    }
}

/// Copies the overlap of an extent with the range of the file that begins at `offset` into `into`.
/// `bytes` are the stored bytes of the extent; zeros follow.
fn fill(into: &mut [u8], offset: u64, extent: &Extent, bytes: &[u8]) {
    let range = extent.range();
    let from = range.start.max(offset);
    let to = range.end.min(offset + into.len() as u64);
    let target = &mut into[to_usize(from - offset)..to_usize(to - offset)];
    let source = bytes.get(to_usize(from - range.start)..).unwrap_or_default();
    let stored = source.len().min(target.len());
    target[..stored].copy_from_slice(&source[..stored]);
    target[stored..].fill(0);
}

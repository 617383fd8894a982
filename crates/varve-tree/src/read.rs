//! Reading a file back: at any place, by extents, or as a stream.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, BlockType, GetError, Score};

use crate::cursor::{Cursor, ReadPointerError, name_of};
use crate::entry::{Entry, Layout};
use crate::extents::{Extent, Extents};

/// How many bytes of leaves are asked for at a time.
const BATCH_BYTES: u64 = 1 << 20;

/// Why bytes of a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadTreeError {
    /// There are no such bytes.
    #[error("bytes {offset} and {length} more of a file of {size} bytes")]
    BeyondEnd {
        /// Where the read begins.
        offset: u64,
        /// How many bytes it asks for.
        length: u64,
        /// The size of the file.
        size: u64,
    },
    /// A block on the way to the leaves is out of reach.
    #[error(transparent)]
    Pointer(#[from] ReadPointerError),
    /// The store does not give a leaf.
    #[error("bytes {}..{} cannot be read", range.start, range.end)]
    Leaf {
        /// The bytes of the file that the leaf stands for.
        range: Range<u64>,
        /// What the store says, and of which leaf.
        source: GetError,
    },
    /// The store gives a leaf, but no writer made it for this place.
    #[error("bytes {}..{}: {name} stands for them, and has {actual} bytes", range.start, range.end)]
    LeafLength {
        /// The bytes of the file that the leaf stands for.
        range: Range<u64>,
        /// The leaf.
        name: BlockName,
        /// Its size.
        actual: usize,
    },
}

impl ReadTreeError {
    /// The bytes of the file that cannot be had.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::BeyondEnd { offset, length, .. } => *offset..offset.saturating_add(*length),
            Self::Pointer(pointer) => pointer.range(),
            Self::Leaf { range, .. } | Self::LeafLength { range, .. } => range.clone(),
        }
    }

    /// The block at fault; `None` where none is.
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

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The tree could not be read further. All before was written.
    #[error(transparent)]
    Read(#[from] ReadTreeError),
    /// The taker of the stream failed.
    #[error("what was read could not be written")]
    Write {
        /// What the taker says.
        source: io::Error,
    },
}

/// A part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of a leaf; at least one.
    Bytes(&'a [u8]),
    /// So many zeros, at least one: a hole, or the end of a leaf. Neighbouring ones come as one piece.
    Zeros(u64),
}

/// A file, to be read. Holds no blocks; may be shared by many threads.
#[derive(Clone, Copy)]
pub struct TreeReader<'a> {
    pub(crate) store: &'a dyn BlockStore,
    pub(crate) entry: Entry,
}

impl<'a> TreeReader<'a> {
    /// The file that `entry` leads to. Reads nothing.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        Self { store, entry: *entry }
    }

    /// The size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.entry.size()
    }

    /// The leaves and holes that overlap `range`, in order, with nothing between them. Leaves are whole: the first may
    /// begin before the range and the last end after it. Holes are cut to the range, and neighbouring ones are one.
    ///
    /// Reads the pointer blocks on the way and no leaves; holds one pointer block a level.
    #[must_use]
    pub fn extents(&self, range: Range<u64>) -> Extents<'a> {
        Extents::new(Cursor::new(self.store, &self.entry), range)
    }

    /// Reads the leaves of many extents of this file in one batch. The answers come in the extents' order, one each, so
    /// that a damaged leaf does not hide its neighbours.
    ///
    /// The bytes are those of the block: where they are fewer than the extent's length, the rest is zeros. Those of a
    /// hole are none. A leaf that is longer than its extent, or stands for more bytes than a leaf of this tree may, is
    /// damage.
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
                let length = usize::try_from(extent.length).unwrap_or(usize::MAX);
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

    /// Fills `into` with the bytes from `offset` on. Reads only the blocks that lead to them, in batches of leaves of
    /// about 1 MiB.
    ///
    /// # Errors
    /// [`ReadTreeError`] for the first bytes that cannot be had; what `into` holds then means nothing.
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

    /// Hands over the whole file in order, in pieces. Holds one batch of leaves of about 1 MiB.
    ///
    /// # Errors
    /// [`StreamError::Read`] at the first damage, once all before it is written; [`StreamError::Write`] when `write`
    /// fails.
    pub fn stream(&self, write: &mut dyn FnMut(Piece<'_>) -> io::Result<()>) -> Result<(), StreamError> {
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

/// Holds zeros back until it is known how many there are.
struct MergedPieces<'w> {
    write: &'w mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    zeros: u64,
}

impl MergedPieces<'_> {
    fn push(&mut self, bytes: &[u8], zeros: u64) -> Result<(), StreamError> {
        if !bytes.is_empty() {
            self.end_zeros()?;
            (self.write)(Piece::Bytes(bytes)).map_err(|source| StreamError::Write { source })?;
        }
        self.zeros += zeros;
        Ok(())
    }

    fn end_zeros(&mut self) -> Result<(), StreamError> {
        match std::mem::take(&mut self.zeros) {
            0 => Ok(()),
            zeros => (self.write)(Piece::Zeros(zeros)).map_err(|source| StreamError::Write { source }),
        }
    }
}

/// Copies to `into`, which begins at `offset` of the file, what it shares with an extent of these bytes and zeros.
fn fill(into: &mut [u8], offset: u64, extent: &Extent, bytes: &[u8]) {
    let range = extent.range();
    let from = range.start.max(offset);
    let to = range.end.min(offset + into.len() as u64);
    let (Ok(begin), Ok(end), Ok(skipped)) =
        (usize::try_from(from - offset), usize::try_from(to - offset), usize::try_from(from - range.start))
    else {
        unreachable!("the shared range lies in a slice, and its leaf in a block");
    };
    let target = &mut into[begin..end];
    let source = bytes.get(skipped..).unwrap_or_default();
    let stored = source.len().min(target.len());
    target[..stored].copy_from_slice(&source[..stored]);
    target[stored..].fill(0);
}

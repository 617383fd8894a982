//! Reads a disk file in segments, on all workers, and stores it in blocks of one size, as an image.

use std::os::fd::OwnedFd;

use varve_block::{BlockStore, ExpectedReads, PutError, PutHints, Score, to_usize};
use varve_tree::{Entry, FixedBuilder, ReplacedLeaves, Shape, put_leaves_with};
use varve_world::Workers;

use super::source_file::{ReadError, read_full};
use super::source_parts::{PartsTree, PutSegment, SourceParts, SourceSegment};
use crate::folder::source::status::Status;
use crate::progress::Progress;

/// The settings for reading a disk file.
#[derive(Clone, Copy)]
pub(super) struct DiskFileReader<'a> {
    pub(super) blocks: &'a dyn BlockStore,
    pub(super) workers: &'a dyn Workers,
    /// Its leaves divide a segment.
    pub(super) shape: Shape,
    pub(super) reads: ExpectedReads,
    /// The earlier version of the file, for a store that makes deltas.
    pub(super) replaced: Option<ReplacedLeaves<'a>>,
    pub(super) progress: &'a Progress,
}

/// The tree of a disk file.
struct DiskTree<'a> {
    blocks: FixedBuilder<'a>,
    leaf_bytes: u64,
    size: u64,
}

impl PartsTree<Score> for DiskTree<'_> {
    fn push_hole(&mut self, bytes: u64) -> Result<(), PutError> {
        self.size += bytes;
        self.blocks.push_zeros(bytes.div_ceil(self.leaf_bytes))
    }

    fn push_segment(&mut self, segment: &PutSegment<Score>) -> Result<(), PutError> {
        self.size += segment.read_bytes;
        self.blocks.push(&segment.leaves)
    }

    fn bytes_written(&self) -> u64 {
        self.size
    }

    fn finish(self) -> Result<Entry, PutError> {
        self.blocks.finish(self.size)
    }
}

impl DiskFileReader<'_> {
    /// Reads up to the size that the file had when it was opened. `reported_bytes` counts the bytes
    /// that are reported as done. Returns also the number of bytes read.
    pub(super) fn read(
        &self,
        file: &OwnedFd,
        opened: &Status,
        reported_bytes: &mut u64,
    ) -> Result<(Option<Entry>, u64), ReadError> {
        let blocks = FixedBuilder::new(self.blocks, self.shape);
        let tree = DiskTree { blocks, leaf_bytes: u64::from(self.shape.leaf_bytes), size: 0 };
        let parts = SourceParts::new(file, opened, self.shape.leaf_bytes);
        let put = |segment: &SourceSegment, buffer: &mut Vec<u8>| self.put_segment(file, segment, buffer);
        parts.read(self.workers, self.progress, tree, reported_bytes, put)
    }

    fn put_segment(
        &self,
        file: &OwnedFd,
        segment: &SourceSegment,
        buffer: &mut Vec<u8>,
    ) -> Result<PutSegment<Score>, ReadError> {
        let range = &segment.range;
        let wanted = to_usize(range.end - range.start);
        buffer.resize(wanted, 0);
        let filled = read_full(file, buffer, range.start)?;
        let replaced = self.replaced.map(|earlier| earlier.leaves_at(segment.range.clone()));
        let hints = PutHints { reads: self.reads, replaced: replaced.as_deref().unwrap_or_default() };
        let leaves = put_leaves_with(self.blocks, &self.shape, &buffer[..filled], hints)?;
        // The file may have become shorter. The comparison at the end reports that it changed.
        Ok(PutSegment { leaves, read_bytes: filled as u64, is_last: filled < wanted })
    }
}

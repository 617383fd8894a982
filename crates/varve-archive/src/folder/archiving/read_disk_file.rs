//! Reads a disk file in segments, on all workers, and stores it in blocks of one size, as an image.

use std::os::fd::OwnedFd;

use rustix::fs::Advice;
use varve_block::{BlockStore, Score};
use varve_tree::{Entry, ExpectedReads, FixedBuilder, Shape, put_leaves_for};
use varve_world::{Workers, work_in_order};

use super::source_file::{ReadError, read_full};
use super::source_parts::{SourcePart, SourceParts, SourceSegment, WAITING_MAX};
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
    pub(super) progress: &'a Progress,
}

/// A part that was read and put.
enum PutPart {
    Hole { bytes: u64 },
    Leaves { scores: Vec<Score>, read_bytes: u64, is_last: bool },
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
        // The workers read neighbouring segments. An error is no concern: this is only a hint.
        let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
        let leaf_bytes = u64::from(self.shape.leaf_bytes);
        let mut parts = SourceParts::new(file, opened, self.shape.leaf_bytes);
        let mut tree = FixedBuilder::new(self.blocks, self.shape);
        let (mut size, mut read_bytes, mut has_ended) = (0, 0, false);
        work_in_order(
            self.workers,
            WAITING_MAX,
            std::iter::from_fn(|| self.next_part(&mut parts).transpose()),
            |claims| {
                let mut buffer = Vec::new();
                claims.work_on_each(|part| match part {
                    SourcePart::Hole { bytes } => Ok(PutPart::Hole { bytes }),
                    SourcePart::Segment(segment) => self.put_segment(file, &segment, &mut buffer),
                });
            },
            |part| {
                if has_ended {
                    return Ok(());
                }
                match part {
                    PutPart::Hole { bytes } => {
                        tree.push_zeros(bytes.div_ceil(leaf_bytes))?;
                        size += bytes;
                    }
                    PutPart::Leaves { scores, read_bytes: bytes, is_last } => {
                        tree.push(&scores)?;
                        size += bytes;
                        read_bytes += bytes;
                        has_ended = is_last;
                    }
                }
                self.progress.add_bytes_done(size - *reported_bytes);
                *reported_bytes = size;
                Ok(())
            },
        )?;
        let entry = if size == 0 { None } else { Some(tree.finish(size)?) };
        Ok((entry, read_bytes))
    }

    fn next_part(&self, parts: &mut SourceParts<'_>) -> Result<Option<SourcePart>, ReadError> {
        if self.progress.is_cancelled() {
            return Err(ReadError::Cancelled);
        }
        Ok(parts.next()?)
    }

    fn put_segment(
        &self,
        file: &OwnedFd,
        segment: &SourceSegment,
        buffer: &mut Vec<u8>,
    ) -> Result<PutPart, ReadError> {
        let range = &segment.range;
        let wanted = usize::try_from(range.end - range.start).expect("segments are small");
        buffer.resize(wanted, 0);
        let filled = read_full(file, buffer, range.start)?;
        let scores = put_leaves_for(self.blocks, &self.shape, self.reads, &buffer[..filled])?;
        // The file may have become shorter. The comparison at the end reports that it changed.
        Ok(PutPart::Leaves { scores, read_bytes: filled as u64, is_last: filled < wanted })
    }
}

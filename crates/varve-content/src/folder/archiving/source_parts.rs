//! Divides a large file into its holes and segments, and reads them on all workers. The results
//! come in order.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::Advice;
use varve_block::PutError;
use varve_tree::Entry;
use varve_world::{Workers, work_in_order};

use super::source_file::{ReadError, next_data};
use crate::folder::source::status::Status;
use crate::progress::Progress;

/// Bytes of a segment, without those of the next one that its last leaf may need.
pub(super) const SEGMENT_BYTES: u64 = 4 << 20;
/// The smallest file that is read in segments.
pub(super) const SEGMENTED_FILE_BYTES_MIN: u64 = 2 * SEGMENT_BYTES;
/// Upper bound on the results that wait for the tree: scores, a few kilobytes each.
const WAITING_MAX: usize = 64;

/// A part of a file.
enum SourcePart {
    Hole { bytes: u64 },
    Segment(SourceSegment),
}

/// At most [`SEGMENT_BYTES`] of data.
pub(super) struct SourceSegment {
    /// Its number among all segments.
    pub(super) number: u64,
    pub(super) range: Range<u64>,
    /// The end of the data of which it is a part: a hole follows, or the end of the file.
    pub(super) data_end: u64,
}

/// The leaves of a segment that was read and put.
pub(super) struct PutSegment<L> {
    pub(super) leaves: Vec<L>,
    /// The bytes of the file that they are, as far as they were read.
    pub(super) read_bytes: u64,
    /// True if the file has become shorter: it ends here.
    pub(super) is_last: bool,
}

enum PutPart<L> {
    Hole { bytes: u64 },
    Segment(PutSegment<L>),
}

/// The tree of a file, which gets its leaves and holes in order.
pub(super) trait PartsTree<L> {
    fn push_hole(&mut self, bytes: u64) -> Result<(), PutError>;
    fn push_segment(&mut self, segment: &PutSegment<L>) -> Result<(), PutError>;
    /// The bytes of the file so far, including holes.
    fn bytes_written(&self) -> u64;
    /// Ends the tree of a file that is not empty.
    fn finish(self) -> Result<Entry, PutError>;
}

/// The parts of a file in order, up to the size that it had when it was opened.
pub(super) struct SourceParts<'a> {
    file: &'a OwnedFd,
    size: u64,
    may_have_holes: bool,
    /// Holes begin and end at multiples of this, a divisor of [`SEGMENT_BYTES`].
    block_bytes: u64,
    position: u64,
    /// The end of the data at the position; not after it if the data is not known yet.
    data_end: u64,
    segment_count: u64,
}

impl<'a> SourceParts<'a> {
    /// Parts whose borders are multiples of `block_bytes`, except the end of the file.
    pub(super) fn new(file: &'a OwnedFd, opened: &Status, block_bytes: u32) -> Self {
        Self {
            file,
            size: opened.size,
            may_have_holes: opened.allocated_bytes < opened.size,
            block_bytes: u64::from(block_bytes),
            position: 0,
            data_end: 0,
            segment_count: 0,
        }
    }

    /// Reads all parts, and adds them to `tree`. `put` reads and puts a segment, on any worker,
    /// with a buffer of that worker. `reported_bytes` counts the bytes that are reported as done.
    /// Returns the entry of the tree, and the number of bytes read. An empty file has no entry.
    pub(super) fn read<L: Send>(
        mut self,
        workers: &dyn Workers,
        progress: &Progress,
        mut tree: impl PartsTree<L> + Send,
        reported_bytes: &mut u64,
        put: impl Fn(&SourceSegment, &mut Vec<u8>) -> Result<PutSegment<L>, ReadError> + Sync,
    ) -> Result<(Option<Entry>, u64), ReadError> {
        // The workers read neighbouring segments. An error is no concern: this is only a hint.
        let _ = rustix::fs::fadvise(self.file, 0, None, Advice::Sequential);
        let (mut read_bytes, mut has_ended) = (0, false);
        let mut next_part = move || {
            if progress.is_cancelled() {
                return Err(ReadError::Cancelled);
            }
            Ok(self.next()?)
        };
        work_in_order(
            workers,
            WAITING_MAX,
            std::iter::from_fn(|| next_part().transpose()),
            |claims| {
                let mut buffer = Vec::new();
                claims.work_on_each(|part| match part {
                    SourcePart::Hole { bytes } => Ok(PutPart::Hole { bytes }),
                    SourcePart::Segment(segment) => put(&segment, &mut buffer).map(PutPart::Segment),
                });
            },
            |part| {
                if has_ended {
                    return Ok(());
                }
                match part {
                    PutPart::Hole { bytes } => tree.push_hole(bytes)?,
                    PutPart::Segment(segment) => {
                        tree.push_segment(&segment)?;
                        read_bytes += segment.read_bytes;
                        has_ended = segment.is_last;
                    }
                }
                let done = tree.bytes_written();
                progress.add_bytes_done(done - *reported_bytes);
                *reported_bytes = done;
                Ok(())
            },
        )?;
        let entry = if tree.bytes_written() == 0 { None } else { Some(tree.finish()?) };
        Ok((entry, read_bytes))
    }

    fn next(&mut self) -> std::io::Result<Option<SourcePart>> {
        if self.position >= self.size {
            return Ok(None);
        }
        if self.position >= self.data_end {
            let position = self.position;
            let data = if self.may_have_holes { self.next_data()? } else { position..self.size };
            if data.start > position {
                self.position = data.start;
                return Ok(Some(SourcePart::Hole { bytes: data.start - position }));
            }
            self.data_end = data.end;
        }
        let range = self.position..self.data_end.min(self.position + SEGMENT_BYTES);
        self.position = range.end;
        let number = self.segment_count;
        self.segment_count += 1;
        Ok(Some(SourcePart::Segment(SourceSegment { number, range, data_end: self.data_end })))
    }

    /// The next data, extended to whole blocks.
    fn next_data(&self) -> std::io::Result<Range<u64>> {
        let data = next_data(self.file, self.position, self.size)?;
        if data.is_empty() {
            return Ok(data);
        }
        let start = data.start - data.start % self.block_bytes;
        let end = data.end.checked_next_multiple_of(self.block_bytes).unwrap_or(self.size);
        Ok(start..end.min(self.size))
    }
}

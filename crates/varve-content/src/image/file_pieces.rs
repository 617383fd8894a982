//! The pieces of an image that is cut where its files begin.

use std::ops::Range;

use varve_image::FilePlaces;

use super::archive::ArchiveImageError;
use super::earlier_leaves::EarlierLeaves;
use super::served_image::{ContentRun, RunContent};
use super::source::ImageSource;
use super::source_runs::SourceRuns;

/// Bytes of one piece of a large file.
pub(super) const SEGMENT_BYTES: u64 = 8 << 20;
/// A scan that begins this far before a border finds the cuts of a scan that began earlier.
pub(super) const RESYNC_BYTES: u64 = 1 << 20;
/// Bytes of one piece of what belongs to no file.
const REST_BYTES: u64 = 1 << 20;
/// A shorter hole within a file is read as the zeros that it is, so that the file is cut as
/// everywhere.
const HOLE_BYTES_MIN: u64 = 1 << 20;

/// A piece of an image. Together they are the whole image, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilePiece {
    /// A part of a contiguous run of a file, which is cut by its content.
    Content(ContentPiece),
    /// Bytes that belong to no file. They are cut at multiples of the block size.
    Rest(Range<u64>),
    /// Zeros that need not be read.
    Zeros { bytes: u64 },
    /// Bytes that are the same as in the earlier image, whose leaves are taken.
    Unchanged(Range<u64>),
}

/// A part of a contiguous run of the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContentPiece {
    /// The run, up to the end of the content.
    pub(super) run: Range<u64>,
    /// The nominal part, which begins at the start of the run or a multiple of [`SEGMENT_BYTES`]
    /// after it. Its first leaf begins at the first cut at or after that place, and its last one
    /// ends where the next part begins.
    pub(super) part: Range<u64>,
    /// The bytes after the content up to the end of its block, if this is the last part.
    pub(super) slack: u64,
    /// The place of the bytes of the file before the run, as far as they are read to find where its
    /// first whole leaf begins; empty if this is not the first part.
    pub(super) before: Range<u64>,
}

impl ContentPiece {
    pub(super) fn is_first(&self) -> bool {
        self.part.start == self.run.start
    }

    pub(super) fn is_last(&self) -> bool {
        self.part.end == self.run.end
    }
}

/// Iterates over the pieces of an image.
pub(super) struct FilePieces<'a> {
    source: &'a ImageSource,
    runs: SourceRuns<'a>,
    places: &'a FilePlaces,
    earlier: Option<&'a EarlierLeaves<'a>>,
    size: u64,
    block_bytes: u64,
    offset: u64,
    /// The next bytes whose leaves are taken from the earlier image, once they were looked for.
    unchanged: Option<Range<u64>>,
    /// There is nothing unchanged from the offset up to here but for these.
    searched_until: u64,
    /// The run of a file that has begun, up to the end of its content, and the end of its last
    /// block.
    open: Option<(Range<u64>, u64)>,
}

impl<'a> FilePieces<'a> {
    pub(super) fn new(
        source: &'a ImageSource,
        places: &'a FilePlaces,
        earlier: Option<&'a EarlierLeaves<'a>>,
        size: u64,
        block_bytes: u32,
    ) -> Self {
        Self {
            source,
            runs: SourceRuns::new(source, size),
            places,
            earlier,
            size,
            block_bytes: block_bytes.into(),
            offset: 0,
            unchanged: None,
            searched_until: 0,
            open: None,
        }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`ArchiveImageError::Read`] or [`ArchiveImageError::Earlier`].
    pub(super) fn next(&mut self) -> Result<Option<FilePiece>, ArchiveImageError> {
        if self.offset >= self.size {
            return Ok(None);
        }
        if let Some((run, end)) = self.open.take() {
            return Ok(Some(self.next_part(run, end, 0..0)));
        }
        let (from, size) = (self.offset, self.size);
        self.runs.forget_before(from);
        let left_out = self.source.left_out().next_after(from);
        if let Some(range) = left_out.clone().filter(|range| range.start <= from) {
            return Ok(Some(self.zeros(range.end.min(size))));
        }
        // A piece ends before anything that is left out.
        let known_end = left_out.map_or(size, |range| range.start.min(size));
        let known_end = match self.unchanged_before(known_end)? {
            Some(unchanged) if unchanged.start <= from => {
                self.offset = unchanged.end.min(known_end);
                return Ok(Some(FilePiece::Unchanged(from..self.offset)));
            }
            Some(unchanged) => unchanged.start,
            None => known_end,
        };
        let file = self.places.next_after(from).filter(|run| run.start < known_end);
        let run = self.run_at(from)?;
        let limit = match file {
            Some(file) if file.start > from => file.start,
            Some(file) => file.end.min(known_end),
            None => known_end,
        };
        let is_content = file.is_some_and(|file| file.start <= from && from < file.content_end);
        if run.content == RunContent::Zeros
            && (!is_content || run.end - from >= HOLE_BYTES_MIN || run.end >= limit)
        {
            return Ok(Some(self.zeros(run.end.min(limit))));
        }
        if let Some(file) = file.filter(|_| is_content) {
            let content_end = file.content_end.min(known_end);
            let end = self.content_until(from, content_end)?;
            let block_end = if end == content_end { limit } else { end };
            let before = if from == file.start { file.before_start..file.before_end } else { 0..0 };
            let before = before.start.max(before.end.saturating_sub(RESYNC_BYTES))..before.end;
            return Ok(Some(self.next_part(from..end, block_end, before)));
        }
        // A hole within a block is read, so that the blocks stay at their places.
        let grid = (from / REST_BYTES + 1) * REST_BYTES;
        let end = run.end.next_multiple_of(self.block_bytes).min(grid).min(limit);
        self.offset = end;
        Ok(Some(FilePiece::Rest(from..end)))
    }

    fn run_at(&mut self, place: u64) -> Result<ContentRun, ArchiveImageError> {
        self.runs.at(place).map_err(|error| ArchiveImageError::of_read(self.source, place, error))
    }

    /// The next bytes, at or after the offset and beginning before `limit`, that are unchanged and
    /// are whole leaves of the earlier image.
    fn unchanged_before(&mut self, limit: u64) -> Result<Option<Range<u64>>, ArchiveImageError> {
        let Some(earlier) = self.earlier else { return Ok(None) };
        let mut place = self.offset.max(self.searched_until);
        if self.unchanged.as_ref().is_some_and(|unchanged| unchanged.end <= self.offset) {
            self.unchanged = None;
        }
        while self.unchanged.is_none() && place < limit {
            let run = self.run_at(place)?;
            if run.content == RunContent::Unchanged {
                self.unchanged = earlier.whole_leaves(place..run.end)?;
            }
            place = run.end;
        }
        self.searched_until = place;
        Ok(self.unchanged.clone().filter(|unchanged| unchanged.start < limit))
    }

    /// The end of the content from an offset up to a large hole.
    fn content_until(&mut self, from: u64, content_end: u64) -> Result<u64, ArchiveImageError> {
        let mut place = from;
        while place < content_end {
            let run = self.run_at(place)?;
            if run.content == RunContent::Zeros && run.end - place >= HOLE_BYTES_MIN && place > from {
                return Ok(place);
            }
            place = run.end;
        }
        Ok(content_end)
    }

    fn next_part(&mut self, run: Range<u64>, end: u64, before: Range<u64>) -> FilePiece {
        let start = self.offset;
        let part = start..run.end.min(start + SEGMENT_BYTES);
        let is_last = part.end == run.end;
        let slack = if is_last { end - run.end } else { 0 };
        self.offset = part.end + slack;
        if !is_last {
            self.open = Some((run.clone(), end));
        }
        FilePiece::Content(ContentPiece { run, part, slack, before })
    }

    fn zeros(&mut self, end: u64) -> FilePiece {
        let bytes = end - self.offset;
        self.offset = end;
        FilePiece::Zeros { bytes }
    }
}

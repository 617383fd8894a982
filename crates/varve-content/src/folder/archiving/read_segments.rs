//! Reads a very large file in segments, on all workers: each reads, cuts and puts one segment while
//! others do the same with the next ones.
//!
//! ```text
//! parts of the file ── claimed in order ──> read ─ scan ─ (turn: join) ─ put ── in order ──> tree
//! ```
//!
//! The leaves are those of one worker that reads from the beginning to the end. A worker knows them
//! once the segment before its own has been joined, and that worker never waits for a later one.

use std::os::fd::OwnedFd;

use parking_lot::{Condvar, Mutex};
use varve_block::{BlockKind, BlockStore, PutError, to_usize};
use varve_tree::{ContentBuilder, CutLeaf, CutSegment, Cutting, Entry, SegmentLeaves, put_cut_leaves};
use varve_world::Workers;

use super::source_file::{ReadError, read_full};
use super::source_parts::{PartsTree, PutSegment, SourceParts, SourceSegment};
use crate::folder::source::status::Status;
use crate::progress::Progress;

/// The settings for reading a file in segments.
#[derive(Clone, Copy)]
pub(super) struct SegmentReader<'a> {
    pub(super) blocks: &'a dyn BlockStore,
    pub(super) workers: &'a dyn Workers,
    pub(super) cutting: Cutting,
    pub(super) progress: &'a Progress,
}

impl PartsTree<CutLeaf> for ContentBuilder<'_> {
    fn push_hole(&mut self, bytes: u64) -> Result<(), PutError> {
        self.push_zeros(bytes)
    }

    fn push_segment(&mut self, segment: &PutSegment<CutLeaf>) -> Result<(), PutError> {
        self.push(&segment.leaves)
    }

    fn bytes_written(&self) -> u64 {
        ContentBuilder::bytes_written(self)
    }

    fn finish(self) -> Result<Entry, PutError> {
        ContentBuilder::finish(self)
    }
}

impl SegmentReader<'_> {
    /// Reads up to the size that the file had when it was opened. `reported_bytes` counts the bytes
    /// that are reported as done. Returns also the number of bytes read.
    pub(super) fn read(
        &self,
        file: &OwnedFd,
        opened: &Status,
        reported_bytes: &mut u64,
    ) -> Result<(Option<Entry>, u64), ReadError> {
        let joint = Joint::default();
        let content = ContentBuilder::new(self.blocks, BlockKind::Data, self.cutting);
        let parts = SourceParts::new(file, opened, 1);
        let put =
            |segment: &SourceSegment, buffer: &mut Vec<u8>| self.put_segment(file, segment, &joint, buffer);
        parts.read(self.workers, self.progress, content, reported_bytes, put)
    }

    fn put_segment(
        &self,
        file: &OwnedFd,
        segment: &SourceSegment,
        joint: &Joint,
        buffer: &mut Vec<u8>,
    ) -> Result<PutSegment<CutLeaf>, ReadError> {
        let SourceSegment { number, range, data_end } = segment;
        let turn = JointTurn { joint, number: *number, next: None };
        let window_end = (*data_end).min(range.end + u64::from(self.cutting.max()));
        let wanted = to_usize(window_end - range.start);
        let own = to_usize(range.end - range.start);
        buffer.resize(wanted, 0);
        let filled = read_full(file, buffer, range.start)?;
        // The file has become shorter. The comparison at the end reports that it changed.
        let is_short = filled < wanted;
        let (bytes, own) = (&buffer[..filled], if is_short { filled } else { own });
        let scanned = CutSegment::scan(&self.cutting, bytes, own);
        let Some(start) = turn.wait() else {
            return Ok(PutSegment { leaves: Vec::new(), read_bytes: 0, is_last: true });
        };
        let SegmentLeaves { leaves, next_start } = scanned.leaves_from(start.min(own));
        turn.end((!is_short).then_some(next_start));
        let leaves = put_cut_leaves(self.blocks, BlockKind::Data, &leaves)?;
        Ok(PutSegment { leaves, read_bytes: own as u64, is_last: is_short })
    }
}

/// The place at which the leaves of one segment are joined to those of the segment before it.
struct Joint {
    state: Mutex<JointState>,
    moved: Condvar,
}

struct JointState {
    /// The segment whose first leaf is known.
    number: u64,
    /// The start of its first leaf; `None` once the file has ended, or a segment has failed.
    start: Option<usize>,
}

impl Default for Joint {
    fn default() -> Self {
        Self { state: Mutex::new(JointState { number: 0, start: Some(0) }), moved: Condvar::new() }
    }
}

/// A segment's turn at the joint. When it is dropped, the turn goes to the next segment, and tells
/// it of the end unless [`end`](Self::end) was called: else that segment would wait for ever.
struct JointTurn<'a> {
    joint: &'a Joint,
    number: u64,
    next: Option<usize>,
}

impl JointTurn<'_> {
    /// Waits for the segment before. Returns the start of the first leaf; `None` if the file has
    /// ended before.
    fn wait(&self) -> Option<usize> {
        let mut state = self.joint.state.lock();
        while state.start.is_some() && state.number != self.number {
            self.joint.moved.wait(&mut state);
        }
        state.start
    }

    fn end(mut self, next: Option<usize>) {
        self.next = next;
    }
}

impl Drop for JointTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.joint.state.lock();
        // A segment that fails early ends all others.
        state.start = self.next.filter(|_| state.start.is_some());
        state.number = self.number + 1;
        drop(state);
        self.joint.moved.notify_all();
    }
}

//! Writes the pointer blocks of content-cut trees.
//!
//! The pointer blocks are cut by content too: after a row whose score meets a condition. So an
//! insertion changes, on each level, the block that contains it and perhaps the next one; the
//! others are duplicates of stored ones.

use varve_block::{Block, BlockKind, BlockStore, BlockType, PutError, Score};

use crate::entry::ROW_LENGTH_BYTES;

/// The number of rows before which there is no cut, except at the end.
const ROW_COUNT_MIN: usize = 16;
/// The number of rows after which there is always a cut.
const ROW_COUNT_MAX: usize = 256;
/// A row ends its block when this many bits of its mixed score are zero: one in 64 does.
const CUT_BITS: u32 = 6;

/// Builds a tree from rows. Holds one pointer block a level.
pub(crate) struct RowWriter<'a> {
    store: &'a dyn BlockStore,
    kind: BlockKind,
    empty: Score,
    levels: Vec<OpenRows>,
    /// The bytes of a hole after all rows that may still grow.
    hole: u64,
}

#[derive(Default)]
struct OpenRows {
    bytes: Vec<u8>,
    row_count: usize,
    /// The bytes of the file below.
    length: u64,
    /// The score of the last row.
    last: Option<Score>,
}

impl<'a> RowWriter<'a> {
    pub(crate) fn new(store: &'a dyn BlockStore, kind: BlockKind) -> Self {
        Self { store, kind, empty: store.empty_score(), levels: Vec::new(), hole: 0 }
    }

    /// Returns the size of the largest pointer block.
    pub(crate) fn pointer_bytes(score_bytes: usize) -> u32 {
        u32::try_from(ROW_COUNT_MAX * (ROW_LENGTH_BYTES + score_bytes)).expect("some kilobytes")
    }

    /// Appends a leaf that stands for `length` bytes. Adjacent leaves of zeros become one row.
    pub(crate) fn push(&mut self, length: u64, score: &Score) -> Result<(), PutError> {
        if *score == self.empty {
            self.hole += length;
            return Ok(());
        }
        self.end_hole()?;
        self.push_row(0, length, score)
    }

    /// Writes the open blocks. Returns the depth and the root of the tree.
    pub(crate) fn finish(mut self) -> Result<(u8, Score), PutError> {
        self.end_hole()?;
        let mut level = 0;
        while let Some(open) = self.levels.get(level) {
            let is_top = level + 1 == self.levels.len();
            if let (true, 1, Some(root)) = (is_top, open.row_count, open.last) {
                return Ok((u8::try_from(level).expect("a level has a depth"), root));
            }
            if open.row_count > 0 {
                self.close(level)?;
            }
            level += 1;
        }
        Ok((0, self.empty))
    }

    fn end_hole(&mut self) -> Result<(), PutError> {
        match std::mem::take(&mut self.hole) {
            0 => Ok(()),
            length => {
                let empty = self.empty;
                self.push_row(0, length, &empty)
            }
        }
    }

    /// Appends a row to the open block `level + 1` levels above the leaves.
    fn push_row(&mut self, level: usize, length: u64, score: &Score) -> Result<(), PutError> {
        if self.levels.len() == level {
            self.levels.push(OpenRows::default());
        }
        let open = &mut self.levels[level];
        open.bytes.extend_from_slice(&length.to_le_bytes());
        open.bytes.extend_from_slice(score.as_bytes());
        open.row_count += 1;
        open.length += length;
        open.last = Some(*score);
        if open.row_count == ROW_COUNT_MAX || (open.row_count >= ROW_COUNT_MIN && ends_a_block(score)) {
            self.close(level)
        } else {
            Ok(())
        }
    }

    /// Puts the open block, unless all bytes below it are zeros, and points to it from the level
    /// above.
    fn close(&mut self, level: usize) -> Result<(), PutError> {
        let open = std::mem::take(&mut self.levels[level]);
        let is_hole = open.row_count == 1 && open.last == Some(self.empty);
        let score = if is_hole {
            self.empty
        } else {
            let block_type = u8::try_from(level + 1)
                .ok()
                .and_then(|depth| BlockType::at_depth(self.kind, depth))
                .expect("16 rows a block reach any size within the depth of a tree");
            self.store.put(Block { block_type, bytes: &open.bytes })?
        };
        self.push_row(level + 1, open.length, &score)
    }
}

/// The score is mixed first, so that scores that are addresses serve as well as hashes.
fn ends_a_block(score: &Score) -> bool {
    let leading = score.as_bytes().iter().take(8).fold(0u64, |mixed, byte| mixed << 8 | u64::from(*byte));
    leading.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CUT_BITS) == 0
}

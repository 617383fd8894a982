//! Fixed trees: leaves of one size, and pointer blocks that consist of scores.

use varve_block::{Block, BlockStore, BlockType, PutError, PutHints, Score};

use crate::entry::{Entry, fixed_depth, fixed_fanout, is_block_size};
use crate::leaves::put_truncated_with;
use crate::shape::Shape;

/// Puts the leaves of a part of a file in one batch, and returns their scores in order. A leaf of
/// zeros has the score of the empty block and is not put.
///
/// `bytes` must begin at a multiple of the leaf size; only the last leaf of a file may be shorter.
/// No state is kept between calls, so several threads may each put a part.
///
/// # Errors
/// As [`BlockStore::put_batch`].
///
/// # Panics
/// When the shape's `leaf_bytes` is 0.
pub fn put_leaves(store: &dyn BlockStore, shape: &Shape, bytes: &[u8]) -> Result<Vec<Score>, PutError> {
    put_leaves_with(store, shape, bytes, PutHints::default())
}

/// Like [`put_leaves`], with what is known of the leaves, of which some may be zeros.
///
/// # Errors
/// As [`put_leaves`].
///
/// # Panics
/// As [`put_leaves`].
pub fn put_leaves_with(
    store: &dyn BlockStore,
    shape: &Shape,
    bytes: &[u8],
    hints: PutHints<'_>,
) -> Result<Vec<Score>, PutError> {
    put_truncated_with(store, shape.leaf_kind, bytes.chunks(shape.leaf_bytes as usize), hints)
}

/// Builds a fixed tree from the scores of its leaves, in order. Holds one open pointer block per
/// level in memory.
pub struct FixedBuilder<'a> {
    store: &'a dyn BlockStore,
    shape: Shape,
    empty: Score,
    fanout: u64,
    leaf_count: u64,
    levels: Vec<OpenPointer>,
}

/// A pointer block that is being filled. It has `count` pointers; those after the last in `scores`
/// are zeros.
#[derive(Default)]
struct OpenPointer {
    scores: Vec<u8>,
    count: u64,
}

impl<'a> FixedBuilder<'a> {
    /// Makes a builder of a tree without leaves.
    ///
    /// # Panics
    /// When a size of the shape is out of the bounds that [`Shape`] names.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, shape: Shape) -> Self {
        assert!(
            is_block_size(shape.leaf_bytes, 1) && is_block_size(shape.pointer_bytes, 2 * store.score_bytes()),
            "no tree has this shape: {shape:?}"
        );
        let fanout = fixed_fanout(shape.pointer_bytes, store.score_bytes());
        Self { store, shape, empty: store.empty_score(), fanout, leaf_count: 0, levels: Vec::new() }
    }

    /// Returns whether a tree of this shape can hold a file of `size` bytes. With small blocks, the
    /// largest depth may not suffice for a huge file.
    #[must_use]
    pub fn can_hold(store: &dyn BlockStore, shape: &Shape, size: u64) -> bool {
        fixed_depth(shape.leaf_bytes, fixed_fanout(shape.pointer_bytes, store.score_bytes()), size).is_some()
    }

    /// Returns the number of leaves so far.
    #[must_use]
    pub fn leaf_count(&self) -> u64 {
        self.leaf_count
    }

    /// Appends leaves, as returned by [`put_leaves`].
    ///
    /// # Errors
    /// As [`BlockStore::put`]: a full pointer block was not stored. The builder must not be used
    /// afterwards.
    pub fn push(&mut self, scores: &[Score]) -> Result<(), PutError> {
        self.leaf_count = self.leaf_count.saturating_add(scores.len() as u64);
        scores.iter().try_for_each(|score| self.push_pointer(0, score))
    }

    /// Appends leaves of zeros. Takes a few steps per level, independent of `leaf_count`.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_zeros(&mut self, leaf_count: u64) -> Result<(), PutError> {
        self.leaf_count = self.leaf_count.saturating_add(leaf_count);
        // On each level, the zeros first fill the open block. The rest makes whole blocks of zeros,
        // which are zeros of the level above, and a remainder that begins a new block.
        let (mut level, mut zeros) = (0, leaf_count);
        while zeros > 0 {
            let fanout = self.fanout;
            let open = self.open(level);
            if open.count > 0 {
                let fitting = zeros.min(fanout - open.count);
                open.count += fitting;
                zeros -= fitting;
                if open.count == fanout {
                    self.close(level)?;
                }
            }
            if zeros > 0 {
                self.open(level).count = zeros % fanout;
                zeros /= fanout;
                level += 1;
            }
        }
        Ok(())
    }

    /// Writes the open blocks, and returns the entry of a file of `size` bytes. Missing leaves up
    /// to there are zeros.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Panics
    /// When `size` ends before the last leaf begins, or needs a tree deeper than
    /// [`BlockType::DEPTH_MAX`].
    pub fn finish(mut self, size: u64) -> Result<Entry, PutError> {
        assert!(
            self.leaf_count <= size.div_ceil(u64::from(self.shape.leaf_bytes)),
            "{} leaves for a file of {size} bytes",
            self.leaf_count
        );
        let entry = Entry::fixed(&self.shape, self.store.score_bytes(), size, self.empty)
            .expect("the shape's pointer blocks are too small for a file of this size");
        for level in 0..usize::from(entry.depth()) {
            if self.open(level).count > 0 {
                self.close(level)?;
            }
        }
        let top = self.open(usize::from(entry.depth()));
        let root = if top.scores.is_empty() { self.empty } else { score_of(&top.scores) };
        Ok(entry.with_root(root))
    }

    /// Returns the sizes that it builds with.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Appends a full subtree of `leaf_count` leaves, whose root is `level` levels above them. The
    /// number of leaves before it must be a multiple of `leaf_count`.
    pub(crate) fn push_full_subtree(
        &mut self,
        level: u8,
        root: &Score,
        leaf_count: u64,
    ) -> Result<(), PutError> {
        self.leaf_count = self.leaf_count.saturating_add(leaf_count);
        self.push_pointer(usize::from(level), root)
    }

    fn open(&mut self, level: usize) -> &mut OpenPointer {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, OpenPointer::default);
        }
        &mut self.levels[level]
    }

    /// Appends a pointer to the open block `level + 1` levels above the leaves.
    fn push_pointer(&mut self, level: usize, score: &Score) -> Result<(), PutError> {
        let (empty, fanout) = (self.empty, self.fanout);
        let open = self.open(level);
        if *score != empty {
            while open.scores.len() as u64 != open.count * empty.as_bytes().len() as u64 {
                open.scores.extend_from_slice(empty.as_bytes());
            }
            open.scores.extend_from_slice(score.as_bytes());
        }
        open.count += 1;
        if open.count == fanout { self.close(level) } else { Ok(()) }
    }

    /// Puts the open block, unless it is all zeros, and points to it from the level above.
    fn close(&mut self, level: usize) -> Result<(), PutError> {
        let bytes = std::mem::take(self.open(level)).scores;
        let score = if bytes.is_empty() {
            self.empty
        } else {
            let block_type = u8::try_from(level + 1)
                .ok()
                .and_then(|depth| BlockType::at_depth(self.shape.leaf_kind, depth))
                .expect("the shape's pointer blocks are too small for this many leaves");
            self.store.put(Block { block_type, bytes: &bytes })?
        };
        self.push_pointer(level + 1, &score)
    }
}

fn score_of(bytes: &[u8]) -> Score {
    Score::try_from(bytes).expect("a level above all others holds one score")
}

//! Builds a fixed tree from an earlier one and the changes since: unchanged subtrees are shared as
//! a whole.

use varve_block::{BlockStore, PutError};

use crate::cursor::{ReadPointerError, TreeCursor};
use crate::entry::{Entry, Layout, fixed_fanout, fixed_span};
use crate::fixed::FixedBuilder;
use crate::pointers::{Subtree, SubtreeKind};
use crate::shape::Shape;

/// The earlier tree, whose leaves are taken in order. Holds one pointer block a level.
pub struct EarlierTree<'a> {
    cursor: TreeCursor<'a>,
    shape: Shape,
    fanout: u64,
}

/// The reason why unchanged leaves were not taken. The builder must not be used afterwards.
#[derive(Debug, thiserror::Error)]
pub enum PushUnchangedError {
    /// The earlier tree cannot be read.
    #[error("{0}")]
    Read(#[from] ReadPointerError),
    /// A full pointer block was not stored.
    #[error("{0}")]
    Put(#[from] PutError),
}

impl<'a> EarlierTree<'a> {
    /// Opens the tree of `entry`. Returns `None` unless it is a fixed tree of the same shape: no
    /// other tree can share subtrees.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, entry: &Entry, shape: &Shape) -> Option<Self> {
        let own = Shape {
            leaf_kind: entry.leaf_kind(),
            leaf_bytes: entry.leaf_bytes(),
            pointer_bytes: entry.pointer_bytes(),
        };
        let fanout = fixed_fanout(shape.pointer_bytes, store.score_bytes());
        (entry.layout() == Layout::Fixed && own == *shape).then(|| Self {
            cursor: TreeCursor::new(store, entry),
            shape: *shape,
            fanout,
        })
    }

    /// Returns the largest subtree that begins at `offset`, or else the leaf or zeros that contain
    /// it. Returns `None` beyond the end.
    fn subtree_at(&mut self, offset: u64) -> Result<Option<Subtree>, ReadPointerError> {
        loop {
            match self.cursor.current() {
                None => return Ok(None),
                Some(subtree) if subtree.end() <= offset => self.cursor.skip(),
                Some(subtree) if subtree.offset < offset && subtree.root == SubtreeKind::Pointer => {
                    self.cursor.descend()?;
                }
                subtree => return Ok(subtree),
            }
        }
    }
}

impl FixedBuilder<'_> {
    /// Appends the next `leaf_count` leaves from the same positions of an earlier tree. The bytes
    /// beyond its end are zeros. Blocks below a pointer block that is shared whole are neither read
    /// nor put: the cost is in proportion to the depth, not to the number of leaves.
    ///
    /// # Errors
    /// [`PushUnchangedError`].
    ///
    /// # Panics
    /// When the earlier tree was opened for another shape.
    pub fn push_unchanged(
        &mut self,
        earlier: &mut EarlierTree<'_>,
        leaf_count: u64,
    ) -> Result<(), PushUnchangedError> {
        assert_eq!(earlier.shape, *self.shape(), "the trees have one shape");
        let leaf_bytes = u64::from(earlier.shape.leaf_bytes);
        let end = self.leaf_count().saturating_add(leaf_count);
        while self.leaf_count() < end {
            let left = end - self.leaf_count();
            let Some(subtree) = earlier.subtree_at(self.leaf_count().saturating_mul(leaf_bytes))? else {
                self.push_zeros(left)?;
                break;
            };
            let span = fixed_span(earlier.shape.leaf_bytes, earlier.fanout, subtree.level);
            match subtree.root {
                SubtreeKind::Zeros => {
                    let zeros = subtree.end().div_ceil(leaf_bytes) - self.leaf_count();
                    self.push_zeros(zeros.min(left))?;
                }
                // A leaf that the end of the file truncates may still be the same leaf, since
                // trailing zeros are not stored.
                SubtreeKind::Leaf => self.push(&[subtree.score])?,
                // A subtree that the end of the file truncates has other children in a longer file.
                SubtreeKind::Pointer if subtree.length == span && span / leaf_bytes <= left => {
                    self.push_full_subtree(subtree.level, &subtree.score, span / leaf_bytes)?;
                }
                SubtreeKind::Pointer => earlier.cursor.descend()?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;
    use varve_block::{BlockKind, MemoryBlockStore};

    use super::*;
    use crate::fixed::put_leaves;

    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 16, pointer_bytes: 32 * 3 };

    fn whole(store: &dyn BlockStore, bytes: &[u8]) -> Entry {
        let mut builder = FixedBuilder::new(store, SHAPE);
        builder.push(&put_leaves(store, &SHAPE, bytes).unwrap()).unwrap();
        builder.finish(bytes.len() as u64).unwrap()
    }

    /// Builds the tree of `after`. Of its leaves, only those in `changed` are read.
    fn spliced(store: &dyn BlockStore, before: &Entry, after: &[u8], changed: &[Range<usize>]) -> Entry {
        let mut earlier = EarlierTree::new(store, before, &SHAPE).unwrap();
        let mut builder = FixedBuilder::new(store, SHAPE);
        let leaf = SHAPE.leaf_bytes as usize;
        for range in changed {
            builder.push_unchanged(&mut earlier, range.start as u64 - builder.leaf_count()).unwrap();
            let bytes = &after[range.start * leaf..(range.end * leaf).min(after.len())];
            builder.push(&put_leaves(store, &SHAPE, bytes).unwrap()).unwrap();
        }
        let left = (after.len() as u64).div_ceil(leaf as u64) - builder.leaf_count();
        builder.push_unchanged(&mut earlier, left).unwrap();
        builder.finish(after.len() as u64).unwrap()
    }

    /// Returns the leaves that differ, as ranges.
    fn changed_leaves(before: &[u8], after: &[u8]) -> Vec<Range<usize>> {
        let leaf = SHAPE.leaf_bytes as usize;
        let at = |bytes: &[u8], number: usize| {
            let mut padded: Vec<u8> = bytes.iter().skip(number * leaf).take(leaf).copied().collect();
            padded.resize(leaf, 0);
            padded
        };
        let count = after.len().div_ceil(leaf);
        (0..count)
            .filter(|number| at(before, *number) != at(after, *number))
            .map(|number| number..number + 1)
            .collect()
    }

    proptest! {
        #[test]
        fn a_tree_of_changes_is_the_tree_of_the_whole(
            mut before in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..1500),
            zeros in 0..1500usize,
            writes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6),
            length in 1..1600usize,
        ) {
            let zeros = zeros.min(before.len());
            before[..zeros].fill(0);
            let mut after = before.clone();
            after.resize(length, 0);
            for (place, byte) in writes {
                after[place % length] = byte;
            }
            let store = MemoryBlockStore::new();
            let entry = whole(&store, &before);
            let changed = changed_leaves(&before, &after);
            prop_assert_eq!(spliced(&store, &entry, &after, &changed), whole(&store, &after));
        }
    }

    #[test]
    fn the_cost_is_that_of_the_change() {
        let store = MemoryBlockStore::new();
        let before: Vec<u8> = (0..1_000_000_u32).map(|number| (number >> 4).to_le_bytes()[0] | 1).collect();
        let entry = whole(&store, &before);
        let mut after = before.clone();
        after[500_000] ^= 0xff;
        let changed = changed_leaves(&before, &after);
        let (block_count, get_count) = (store.block_count(), store.get_count());
        let made = spliced(&store, &entry, &after, &changed);
        // 62,500 leaves below 11 levels: the reads are the paths to the change and to the file's
        // end; the path to the change is written anew.
        let depth = u64::from(entry.depth());
        assert!(store.get_count() - get_count <= 3 * depth, "{} reads", store.get_count() - get_count);
        assert!(store.block_count() - block_count <= 1 + usize::from(entry.depth()));
        assert_eq!(made, whole(&store, &after));
    }

    #[test]
    fn only_trees_of_one_shape_are_shared() {
        let store = MemoryBlockStore::new();
        let entry = whole(&store, &[1; 100]);
        assert!(EarlierTree::new(&store, &entry, &Shape { leaf_bytes: 32, ..SHAPE }).is_none());
        assert!(EarlierTree::new(&store, &entry, &Shape { pointer_bytes: 64, ..SHAPE }).is_none());
    }
}

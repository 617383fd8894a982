//! The leaves of an earlier version of a file, for a store that keeps only what is different.

use std::ops::Range;

use varve_block::{BlockStore, Score, to_usize};

use crate::entry::{Entry, Layout};
use crate::read::TreeReader;
use crate::shape::Shape;

/// The leaves of an earlier version of a file, whose leaves have the same size. May be shared
/// between threads.
#[derive(Clone, Copy)]
pub struct ReplacedLeaves<'a> {
    earlier: TreeReader<'a>,
}

impl<'a> ReplacedLeaves<'a> {
    /// Returns the leaves of `earlier`; `None` if it has not this shape. Reads nothing.
    #[must_use]
    pub fn of(store: &'a dyn BlockStore, earlier: &Entry, shape: &Shape) -> Option<Self> {
        let is_same = earlier.layout() == Layout::Fixed
            && (earlier.leaf_kind(), earlier.leaf_bytes()) == (shape.leaf_kind, shape.leaf_bytes);
        is_same.then(|| Self { earlier: TreeReader::new(store, earlier) })
    }

    /// Returns the leaf at each place of a range, which must begin at a multiple of the leaf size.
    /// `None` stands for zeros, for a place behind the end, and for a part that cannot be read:
    /// that costs space only.
    ///
    /// Reads the pointer blocks on the way and no leaves.
    #[must_use]
    pub fn leaves_at(&self, range: Range<u64>) -> Vec<Option<Score>> {
        let leaf_bytes = u64::from(self.earlier.entry.leaf_bytes());
        let start = range.start;
        let count = range.end.saturating_sub(start).div_ceil(leaf_bytes);
        let mut leaves = vec![None; to_usize(count)];
        for extent in self.earlier.extents(range).filter_map(Result::ok) {
            let number = extent.offset.checked_sub(start).map(|bytes| bytes / leaf_bytes);
            let place = number.and_then(|number| leaves.get_mut(to_usize(number)));
            if let Some(place) = place {
                *place = extent.leaf;
            }
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockKind, MemoryBlockStore};

    use super::*;
    use crate::{FixedBuilder, put_leaves};

    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 128 };

    #[test]
    fn each_place_has_the_leaf_of_the_earlier_version() {
        let store = MemoryBlockStore::new();
        // Twenty leaves, of which four are zeros, and a short one at the end.
        let bytes: Vec<u8> =
            (0..20_u8).flat_map(|leaf| if leaf % 5 == 4 { [0; 512] } else { [leaf + 1; 512] }).collect();
        let bytes = [&bytes[..], b"the end"].concat();
        let scores = put_leaves(&store, &SHAPE, &bytes).unwrap();
        let mut tree = FixedBuilder::new(&store, SHAPE);
        tree.push(&scores).unwrap();
        let entry = tree.finish(bytes.len() as u64).unwrap();
        let replaced = ReplacedLeaves::of(&store, &entry, &SHAPE).unwrap();
        let expected: Vec<_> =
            scores.iter().map(|score| Some(*score).filter(|score| *score != store.empty_score())).collect();
        for start in 0..23 {
            for end in start..25 {
                let found = replaced.leaves_at(start as u64 * 512..end as u64 * 512);
                let wanted: Vec<_> =
                    (start..end).map(|leaf: usize| expected.get(leaf).copied().flatten()).collect();
                assert_eq!(found, wanted, "{start}..{end}");
            }
        }
        assert_eq!(replaced.leaves_at(512 * 19..512 * 20 + 7), expected[19..]);
        assert!(ReplacedLeaves::of(&store, &entry, &Shape { leaf_bytes: 1024, ..SHAPE }).is_none());
    }
}

//! Reads all pointer blocks of a file at once, in preparation for random reads through a store with
//! a cache.
//!
//! Read one by one, each pointer block costs a disk read for which the read of its leaf has to
//! wait. Read together, they are read in the order of the log, in which most of them are adjacent.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::BlockName;

use crate::cursor::TreeCursor;
use crate::pointers::{Children, Subtree, SubtreeKind};
use crate::read::TreeReader;

/// The pointer blocks that are requested at a time.
const BATCH_COUNT: usize = 64;

impl TreeReader<'_> {
    /// Reads the pointer blocks of the file, level by level from the root. A level that would
    /// exceed `pointer_count_max` in total is not begun.
    ///
    /// Returns the names of at most `leaf_count_max` leaves, in order and spread about evenly over
    /// the file. Returns none if the lowest level of pointer blocks was not read. Unreadable blocks
    /// are skipped: a later read of the bytes below them reports the error.
    #[must_use]
    pub fn read_interior(&self, pointer_count_max: usize, leaf_count_max: usize) -> Vec<BlockName> {
        let cursor = TreeCursor::new(self.store, &self.entry);
        let mut level: Vec<Subtree> = cursor.current().into_iter().collect();
        level.retain(|root| root.root == SubtreeKind::Pointer);
        let mut left = pointer_count_max;
        while let Some(first) = level.first() {
            let Some(rest) = left.checked_sub(level.len()) else { return Vec::new() };
            left = rest;
            if first.level == 1 {
                return self.read_lowest(&cursor, &level, leaf_count_max);
            }
            let mut below = Vec::new();
            for batch in level.chunks(BATCH_COUNT) {
                let pointers = self.children(&cursor, batch).into_iter().flatten();
                below.extend(pointers.filter(|child| child.root == SubtreeKind::Pointer));
                if below.len() > left {
                    return Vec::new();
                }
            }
            level = below;
        }
        Vec::new()
    }

    /// Reads the pointer blocks directly above the leaves, and selects leaves.
    fn read_lowest(
        &self,
        cursor: &TreeCursor<'_>,
        level: &[Subtree],
        leaf_count_max: usize,
    ) -> Vec<BlockName> {
        let of_each = leaf_count_max.checked_div(level.len()).unwrap_or(0);
        let mut picked = Vec::new();
        for batch in level.chunks(BATCH_COUNT) {
            for children in self.children(cursor, batch) {
                let leaves: Vec<_> = children.filter(|child| child.root == SubtreeKind::Leaf).collect();
                let step = leaves.len().div_ceil(of_each.max(1)).max(1);
                picked.extend(leaves.iter().step_by(step).take(of_each).map(|leaf| cursor.name(leaf)));
            }
        }
        picked
    }

    /// Returns the children of those of these pointer blocks that could be read.
    fn children(&self, cursor: &TreeCursor<'_>, parents: &[Subtree]) -> Vec<Children> {
        let names: Vec<_> = parents.iter().map(|parent| cursor.name(parent)).collect();
        let read = self.store.get_batch(&names);
        let known = parents.iter().zip(read).filter_map(|(parent, bytes)| Some((parent, bytes.ok()?)));
        known.filter_map(|(parent, bytes)| Children::decode(cursor.geometry(), parent, bytes).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockKind, BlockStore, MemoryBlockStore};

    use super::*;
    use crate::{Entry, FixedBuilder, Shape, put_leaves};

    /// 16 scores to a pointer block, so that 2000 leaves have three levels above them: 125, 8 and
    /// 1.
    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 512 };

    fn archived(store: &MemoryBlockStore) -> (Entry, Vec<BlockName>) {
        let mut builder = FixedBuilder::new(store, SHAPE);
        let bytes: Vec<u8> = (1..=2000_u64).flat_map(|number| [number.to_le_bytes(); 64].concat()).collect();
        let scores = put_leaves(store, &SHAPE, &bytes).unwrap();
        builder.push(&scores).unwrap();
        let block_type = varve_block::BlockType::leaf(BlockKind::Data);
        let names = scores.into_iter().map(|score| BlockName { score, block_type }).collect();
        (builder.finish(bytes.len() as u64).unwrap(), names)
    }

    #[test]
    fn all_that_leads_to_leaves_is_read_once_and_leaves_are_picked_evenly() {
        let store = MemoryBlockStore::new();
        let (entry, leaves) = archived(&store);
        let before = store.get_count();
        let picked = TreeReader::new(&store, &entry).read_interior(134, 300);
        assert_eq!(store.get_count() - before, 134);
        assert!((125..=300).contains(&picked.len()), "{}", picked.len());
        let places: Vec<_> =
            picked.iter().map(|name| leaves.iter().position(|leaf| leaf == name).unwrap()).collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] <= 16), "{places:?}");
    }

    #[test]
    fn what_is_too_much_is_not_begun() {
        let store = MemoryBlockStore::new();
        let (entry, _) = archived(&store);
        for (most, read) in [(0, 0), (1, 1), (8, 1), (9, 9), (133, 9)] {
            let before = store.get_count();
            assert_eq!(TreeReader::new(&store, &entry).read_interior(most, 300), []);
            assert_eq!(store.get_count() - before, read, "{most}");
        }
    }

    #[test]
    fn what_is_lost_is_passed_over() {
        let store = MemoryBlockStore::new();
        let (entry, leaves) = archived(&store);
        let whole = TreeReader::new(&store, &entry).read_interior(200, 2000);
        assert_eq!(whole, leaves);
        let first = TreeReader::new(&store, &entry).extents(0..1).next().unwrap().unwrap();
        assert_eq!(first.leaf, Some(leaves[0].score));
        // The pointer block above the first 16 leaves.
        let scores: Vec<u8> = leaves[..16].iter().flat_map(|leaf| leaf.score.as_bytes().to_vec()).collect();
        let block_type = varve_block::BlockType::at_depth(BlockKind::Data, 1).unwrap();
        let score = store.put(varve_block::Block { block_type, bytes: &scores }).unwrap();
        assert!(store.lose(&BlockName { score, block_type }));
        assert_eq!(TreeReader::new(&store, &entry).read_interior(200, 2000), leaves[16..]);
    }
}

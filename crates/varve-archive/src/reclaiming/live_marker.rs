//! The visitor of a mark: adds each block that is reached to the set of live blocks.
//!
//! A block counts as walked once everything below it is in the set, and not before. So a walk that
//! fails or is cancelled leaves a set from which another walk can go on.

use varve_block::BlockKind;
use varve_tree::{Layout, TreeBlock};
use varve_upkeep::{LiveBlocks, WalkedAs};

use super::block_walk::{TreePart, WalkVisitor};

impl WalkVisitor for LiveBlocks {
    type Known = ();

    fn reach(&mut self, (): (), part: TreePart<'_>) -> bool {
        match part {
            TreePart::Block(block) if block.is_leaf() => {
                self.insert(&block.name);
                false
            }
            _ => !self.is_done(part),
        }
    }

    fn is_done(&self, part: TreePart<'_>) -> bool {
        match part {
            TreePart::Block(block) => self.is_walked(&block.name, walked_as(block)),
            TreePart::Folder(entry) => self.is_folder_walked(entry),
        }
    }

    fn enter(&mut self, _: TreePart<'_>) {}

    fn leave(&mut self, part: TreePart<'_>) {
        match part {
            TreePart::Block(block) => self.note_walked(&block.name, walked_as(block)),
            TreePart::Folder(entry) => self.note_folder_walked(entry),
        }
    }

    fn exceeded_memory(&self) -> Option<u64> {
        self.is_over_memory().then(|| self.structure_bytes_max())
    }
}

/// Returns the way in which the blocks below a block are walked. The same pointer block may be part
/// of trees of several kinds, and leads to other blocks in each.
pub(crate) fn walked_as(block: &TreeBlock) -> WalkedAs {
    match block.layout {
        Layout::Fixed => WalkedAs::Fixed,
        Layout::ContentCut => WalkedAs::ContentCut,
        // Venti's trees of data and fixed trees have the same pointer blocks.
        Layout::Venti if block.leaf_kind == BlockKind::Data => WalkedAs::Fixed,
        Layout::Venti => WalkedAs::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use varve_block::{Block, BlockName, BlockStore, BlockType, GetError, MemoryBlockStore};
    use varve_tree::{ContentWriter, Cutting, Entry, FixedWriter, Shape, Visit};
    use varve_upkeep::FILTER_BYTES_DEFAULT;
    use varve_world::{Random, SeededRandom};

    use super::super::block_walk::{BlockWalk, WalkBlocksError, WalkCounts};
    use super::super::mark::mark_trees;
    use super::super::mark_error::MarkError;
    use super::super::roots::LiveRoots;
    use super::*;
    use varve_content::Progress;

    fn set() -> LiveBlocks {
        LiveBlocks::new(&SeededRandom::new(3), 100_000, FILTER_BYTES_DEFAULT).unwrap()
    }

    /// Returns bytes of which some stretches are zeros, and some occur twice.
    fn bytes(seed: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        let (third, half) = (count / 3, count / 2);
        bytes[third..half].fill(0);
        bytes.copy_within(..third / 2, half);
        bytes
    }

    fn fixed(store: &MemoryBlockStore, bytes: &[u8]) -> Entry {
        let shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 64, pointer_bytes: 128 };
        let mut writer = FixedWriter::new(store, shape);
        writer.write(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn cut_by_content(store: &MemoryBlockStore, bytes: &[u8]) -> Entry {
        let cutting = Cutting::new(128, 256, 512).unwrap();
        let mut writer = ContentWriter::new(store, BlockKind::Data, cutting);
        writer.write(bytes).unwrap();
        writer.finish().unwrap()
    }

    /// Returns the blocks of a tree, as the walk of another module finds them.
    fn blocks_of(store: &MemoryBlockStore, entry: &Entry) -> BTreeSet<BlockName> {
        let mut names = BTreeSet::new();
        varve_tree::walk(store, entry, &mut |block| {
            assert!(block.damage.is_none());
            names.insert(block.name);
            Visit::Descend
        });
        names
    }

    fn walk(
        store: &MemoryBlockStore,
        entry: &Entry,
        live: &mut LiveBlocks,
    ) -> Result<WalkCounts, WalkBlocksError> {
        let progress = Progress::new();
        let mut walk = BlockWalk::new(store, live, &progress);
        if let Some(top) = TreeBlock::of_tree(entry, store.empty_score()) {
            walk.walk((), top)?;
        }
        Ok(walk.counts())
    }

    proptest! {
        #[test]
        fn all_blocks_of_a_tree_are_live(seed in any::<u64>(), count in 0_usize..30_000, is_fixed in any::<bool>()) {
            let store = MemoryBlockStore::new();
            let make = if is_fixed { fixed } else { cut_by_content };
            let entry = make(&store, &bytes(seed, count));
            let mut live = set();
            let counts = walk(&store, &entry, &mut live).unwrap();
            let expected = blocks_of(&store, &entry);
            for name in &expected {
                prop_assert!(live.contains(name));
            }
            let pointers: Vec<_> = expected.iter().filter(|name| name.block_type.depth() > 0).collect();
            prop_assert_eq!(live.structure_count(), pointers.len() as u64);
            prop_assert_eq!(live.leaf_count(), (expected.len() - pointers.len()) as u64);
            // Equal blocks may have been read together.
            prop_assert!(counts.read_count >= pointers.len() as u64);
            prop_assert_eq!(walk(&store, &entry, &mut live).unwrap(), WalkCounts { leaf_count: u64::from(entry.depth() == 0 && count > 0 && !expected.is_empty()), ..WalkCounts::default() });
        }
    }

    #[test]
    fn a_walk_that_failed_can_be_continued() {
        let store = MemoryBlockStore::new();
        let entries = [fixed(&store, &bytes(1, 9000)), cut_by_content(&store, &bytes(2, 9000))];
        for entry in entries {
            let expected = blocks_of(&store, &entry);
            for lost in expected.iter().filter(|name| name.block_type.depth() > 0) {
                let bytes = store.get(lost).unwrap();
                assert!(store.lose(lost));
                let mut live = set();
                let failed = walk(&store, &entry, &mut live).unwrap_err();
                assert!(
                    matches!(&failed, WalkBlocksError::Get(GetError::NotFound { name }) if name == lost),
                    "{failed}"
                );
                store.put(Block { block_type: lost.block_type, bytes: &bytes }).unwrap();
                walk(&store, &entry, &mut live).unwrap();
                assert!(expected.iter().all(|name| live.contains(name)), "after {lost} was lost");
            }
        }
    }

    #[test]
    fn a_walk_that_was_cancelled_can_be_continued() {
        let store = MemoryBlockStore::new();
        let entry = fixed(&store, &bytes(1, 9000));
        let (mut live, progress) = (set(), Progress::new());
        progress.cancel();
        let top = TreeBlock::of_tree(&entry, store.empty_score()).unwrap();
        let cancelled = BlockWalk::new(&store, &mut live, &progress).walk((), top);
        assert!(matches!(cancelled, Err(WalkBlocksError::Cancelled)));
        walk(&store, &entry, &mut live).unwrap();
        assert!(blocks_of(&store, &entry).iter().all(|name| live.contains(name)));
    }

    #[test]
    fn a_mark_ends_when_its_memory_is_full() {
        let (store, progress) = (MemoryBlockStore::new(), Progress::new());
        let list = fixed(&store, &bytes(1, 9000));
        let roots = LiveRoots { lists: vec![list], ..LiveRoots::default() };
        let mut live = LiveBlocks::new(&SeededRandom::new(3), 100, 0).unwrap();
        mark_trees(&store, &roots, &mut live, &progress).unwrap();
        let mut number = 0_u64;
        while !live.is_over_memory() {
            live.note_folder_walked(&number.to_le_bytes());
            number += 1;
        }
        assert!(live.memory_bytes() < 2 * live.structure_bytes_max());
        let other = LiveRoots { lists: vec![fixed(&store, &bytes(2, 9000))], ..LiveRoots::default() };
        let marked = mark_trees(&store, &other, &mut live, &progress);
        assert!(matches!(marked, Err(MarkError::Memory { bytes: 0x400_0000 })), "{marked:?}");
    }

    /// Anybody who may add a snapshot can make an entry that leads to any pointer block, with
    /// another size or layout. A walk from there must not spare a later walk its work.
    #[test]
    fn an_entry_that_lies_hides_nothing() {
        let store = MemoryBlockStore::new();
        let entry = fixed(&store, &bytes(1, 9000));
        let lies = |place: usize, new: &[u8]| {
            let mut lie = entry.encode();
            lie[place..place + new.len()].copy_from_slice(new);
            Entry::decode(&lie, store.score_bytes())
        };
        let with_size = lies(12, &8500_u64.to_le_bytes()).unwrap();
        let with_layout = lies(1, &[1]).unwrap();
        for lie in [with_size, with_layout] {
            assert_eq!((lie.root(), lie.depth()), (entry.root(), entry.depth()));
            let mut live = set();
            drop(walk(&store, &lie, &mut live));
            walk(&store, &entry, &mut live).unwrap();
            assert!(blocks_of(&store, &entry).iter().all(|name| live.contains(name)));
        }
    }

    #[test]
    fn a_pointer_block_is_walked_for_each_kind_of_leaves() {
        let store = MemoryBlockStore::new();
        let put = |block_type, bytes: &[u8]| {
            let score = store.put(Block { block_type, bytes }).unwrap();
            BlockName { score, block_type }
        };
        // The same bytes are a block of data, and a block of entries without entries.
        let leaves = [BlockType::DATA, BlockType::DIRECTORY].map(|block_type| put(block_type, &[0; 80]));
        let pointer_type = BlockType::at_depth(BlockKind::Data, 1).unwrap();
        let top = |leaf: &BlockName| {
            let name = put(pointer_type, leaf.score.as_bytes());
            TreeBlock { name, layout: Layout::Venti, leaf_kind: leaf.block_type.kind() }
        };
        let (mut live, progress) = (set(), Progress::new());
        for leaf in &leaves {
            let mut walk = BlockWalk::new(&store, &mut live, &progress);
            walk.walk((), top(leaf)).unwrap();
            assert!(live.contains(leaf));
        }
    }
}

//! Walks everything below a block, and adds it to a set of live blocks. Leaves are not read.
//!
//! A block counts as walked once everything below it is in the set, and not before. So a walk that
//! fails or is cancelled leaves a set from which another walk can go on.

use bytes::Bytes;
use varve_block::{BlockKind, BlockStore, GetError, has_kind};
use varve_tree::{DecodeTreeBlockError, Layout, TreeBlock};
use varve_upkeep::{LiveBlocks, WalkedAs};

use crate::progress::Progress;

/// The blocks that are read together.
const BATCH_COUNT: usize = 64;
/// The levels at which several blocks are read together. Below them, each is read alone, to bound
/// the memory.
const BATCH_DEPTH: usize = 40;
/// The largest number of blocks that lead to each other: far deeper than the folders of any system.
const DEPTH_MAX: usize = 8192;
/// The largest number of blocks that wait to be read.
const WAITING_MAX: usize = 4 << 20;

/// The reason why a walk did not reach everything.
#[derive(Debug, thiserror::Error)]
pub enum WalkBlocksError {
    #[error("{0}")]
    Get(#[from] GetError),
    #[error("{0}")]
    Malformed(#[from] DecodeTreeBlockError),
    #[error(
        "the blocks are nested deeper than {DEPTH_MAX} levels, or more than {WAITING_MAX} wait to be read"
    )]
    TooDeep,
    #[error("interrupted")]
    Cancelled,
}

has_kind!(WalkBlocksError: Self::TooDeep => Damage);

/// The work of a walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// The pointer blocks, and the entries and roots of other programs, that were read.
    pub read_count: u64,
    pub read_bytes: u64,
    /// The leaves to which these blocks lead. A leaf counts each time that a block leads to it.
    pub leaf_count: u64,
}

impl WalkCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.read_count += other.read_count;
        self.read_bytes += other.read_bytes;
        self.leaf_count += other.leaf_count;
    }
}

/// Walks trees of blocks.
pub(crate) struct BlockWalk<'a> {
    blocks: &'a dyn BlockStore,
    live: &'a mut LiveBlocks,
    progress: &'a Progress,
    counts: WalkCounts,
    /// The blocks that wait in all open blocks.
    waiting_count: usize,
}

/// A block with blocks below it that are not walked yet.
struct OpenBlock {
    /// `None` for the beginning of a walk.
    block: Option<TreeBlock>,
    /// The blocks below it that lead to others and were not read yet, with the next one last.
    waiting: Vec<TreeBlock>,
    /// Some of them that were read, with the next one last.
    read: Vec<(TreeBlock, Bytes)>,
}

impl<'a> BlockWalk<'a> {
    pub(crate) fn new(blocks: &'a dyn BlockStore, live: &'a mut LiveBlocks, progress: &'a Progress) -> Self {
        Self { blocks, live, progress, counts: WalkCounts::default(), waiting_count: 0 }
    }

    pub(crate) fn blocks(&self) -> &'a dyn BlockStore {
        self.blocks
    }

    pub(crate) fn live(&mut self) -> &mut LiveBlocks {
        self.live
    }

    pub(crate) fn counts(&self) -> WalkCounts {
        self.counts
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), WalkBlocksError> {
        if self.progress.is_cancelled() { Err(WalkBlocksError::Cancelled) } else { Ok(()) }
    }

    /// Adds a block and everything below it.
    ///
    /// # Errors
    /// [`WalkBlocksError`]. The set is then incomplete, and a later walk may continue it.
    pub(crate) fn walk(&mut self, top: TreeBlock) -> Result<(), WalkBlocksError> {
        if top.is_leaf() {
            self.add_leaf(&top);
            return Ok(());
        }
        let mut open = vec![OpenBlock { block: None, waiting: vec![top], read: Vec::new() }];
        self.waiting_count = 1;
        while let Some(mut last) = open.pop() {
            let batch_count = if open.len() < BATCH_DEPTH { BATCH_COUNT } else { 1 };
            if let Some((block, bytes)) = self.next_below(&mut last, batch_count)? {
                open.push(last);
                open.extend(self.enter(block, &bytes)?);
            } else if let Some(block) = last.block {
                // Everything below it is walked.
                self.note_walked(&block);
            }
            if open.len() > DEPTH_MAX || self.waiting_count > WAITING_MAX {
                return Err(WalkBlocksError::TooDeep);
            }
        }
        Ok(())
    }

    /// Returns the next block below an open one that was not walked yet, and its bytes.
    fn next_below(
        &mut self,
        open: &mut OpenBlock,
        batch_count: usize,
    ) -> Result<Option<(TreeBlock, Bytes)>, WalkBlocksError> {
        loop {
            while let Some((block, bytes)) = open.read.pop() {
                // A block that was read together with it may have led to it.
                if !self.is_walked(&block) {
                    return Ok(Some((block, bytes)));
                }
            }
            let mut batch: Vec<TreeBlock> = Vec::new();
            while batch.len() < batch_count {
                let Some(block) = open.waiting.pop() else { break };
                self.waiting_count -= 1;
                if !batch.contains(&block) && !self.is_walked(&block) {
                    batch.push(block);
                }
            }
            if batch.is_empty() {
                return Ok(None);
            }
            open.read = self.read(batch)?;
        }
    }

    fn read(&mut self, batch: Vec<TreeBlock>) -> Result<Vec<(TreeBlock, Bytes)>, WalkBlocksError> {
        self.check_cancelled()?;
        let names: Vec<_> = batch.iter().map(|block| block.name).collect();
        let mut read = Vec::with_capacity(batch.len());
        for (block, bytes) in batch.into_iter().zip(self.blocks.get_batch(&names)) {
            let bytes = bytes?;
            self.counts.read_count += 1;
            self.counts.read_bytes += bytes.len() as u64;
            self.progress.add_bytes_done(bytes.len() as u64);
            read.push((block, bytes));
        }
        read.reverse();
        Ok(read)
    }

    /// Adds the leaves below a block. Returns the block if others than leaves are left below it.
    fn enter(&mut self, block: TreeBlock, bytes: &[u8]) -> Result<Option<OpenBlock>, WalkBlocksError> {
        let mut waiting = Vec::new();
        for below in block.below(bytes, self.blocks.empty_score())? {
            if below.is_leaf() {
                self.add_leaf(&below);
            } else if !self.is_walked(&below) {
                waiting.push(below);
            }
        }
        if waiting.is_empty() {
            self.note_walked(&block);
            return Ok(None);
        }
        waiting.reverse();
        self.waiting_count += waiting.len();
        Ok(Some(OpenBlock { block: Some(block), waiting, read: Vec::new() }))
    }

    fn add_leaf(&mut self, leaf: &TreeBlock) {
        self.counts.leaf_count += 1;
        self.live.insert(&leaf.name);
    }

    pub(crate) fn is_walked(&self, block: &TreeBlock) -> bool {
        self.live.is_walked(&block.name, walked_as(block))
    }

    fn note_walked(&mut self, block: &TreeBlock) {
        self.live.note_walked(&block.name, walked_as(block));
    }
}

/// Returns the way in which a block is recorded as walked.
fn walked_as(block: &TreeBlock) -> WalkedAs {
    match block.layout {
        Layout::Fixed => WalkedAs::Fixed,
        Layout::ContentCut => WalkedAs::ContentCut,
        // Such a pointer block leads to the same blocks as one of a fixed tree.
        Layout::Venti if block.leaf_kind == BlockKind::Data => WalkedAs::Fixed,
        Layout::Venti => WalkedAs::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use varve_block::{Block, BlockName, BlockType, MemoryBlockStore};
    use varve_tree::{ContentWriter, Cutting, Entry, FixedWriter, Shape, Visit};
    use varve_upkeep::FILTER_BYTES_DEFAULT;
    use varve_world::{Random, SeededRandom};

    use super::*;

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
            walk.walk(top)?;
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
        let cancelled = BlockWalk::new(&store, &mut live, &progress).walk(top);
        assert!(matches!(cancelled, Err(WalkBlocksError::Cancelled)));
        walk(&store, &entry, &mut live).unwrap();
        assert!(blocks_of(&store, &entry).iter().all(|name| live.contains(name)));
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
            walk.walk(top(leaf)).unwrap();
            assert!(live.contains(leaf));
        }
    }
}

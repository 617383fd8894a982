//! Walks everything below a block, and shows it to a [`WalkVisitor`]. Leaves are not read.
//!
//! A mark and the search for who needs what are such visitors. A visitor decides which blocks are
//! read, so it must know again what it has seen: a block is shown each time that another one leads
//! to it.

use bytes::Bytes;
use varve_block::{BlockStore, GetError, has_kind};
use varve_content::Progress;
use varve_tree::{DecodeTreeBlockError, TreeBlock};

/// The blocks that are read together.
const BATCH_COUNT: usize = 64;
/// The levels at which several blocks are read together. Below them, each is read alone, to bound
/// the memory.
const BATCH_DEPTH: usize = 40;
/// The largest number of blocks that lead to each other: far deeper than any folders that vac
/// archives.
const DEPTH_MAX: usize = 1 << 20;
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
    /// The visitor has no memory left.
    #[error("the blocks that lead to others do not fit in {bytes} bytes of memory")]
    Memory { bytes: u64 },
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

/// A part of a snapshot that a walk reaches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TreePart<'a> {
    Block(&'a TreeBlock),
    /// A folder, by its encoded entry: the entry's size and layout decide how its list is read.
    Folder(&'a [u8]),
}

/// The use that is made of a walk.
pub(crate) trait WalkVisitor {
    /// The knowledge of a part that is shown with each part below it.
    type Known: Copy;

    /// Called each time that a part leads to this one. `above` belongs to the part that leads here.
    /// Returns true if the parts below this one are to be reached, too. The answer is ignored for
    /// leaves.
    fn reach(&mut self, above: Self::Known, part: TreePart<'_>) -> bool;

    /// Returns true if a part that was to be entered need not be entered any more.
    fn is_done(&self, _part: TreePart<'_>) -> bool {
        false
    }

    /// Called before the parts below this one are reached.
    fn enter(&mut self, part: TreePart<'_>) -> Self::Known;

    /// Called once everything below this part was reached, and left.
    fn leave(&mut self, _part: TreePart<'_>) {}

    /// Returns the bound on the visitor's memory in bytes, if the visitor takes more: the walk ends
    /// then.
    fn exceeded_memory(&self) -> Option<u64> {
        None
    }
}

/// Walks trees of blocks.
pub(crate) struct BlockWalk<'a, V> {
    blocks: &'a dyn BlockStore,
    visitor: &'a mut V,
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

impl<'a, V: WalkVisitor> BlockWalk<'a, V> {
    pub(crate) fn new(blocks: &'a dyn BlockStore, visitor: &'a mut V, progress: &'a Progress) -> Self {
        Self { blocks, visitor, progress, counts: WalkCounts::default(), waiting_count: 0 }
    }

    pub(crate) fn blocks(&self) -> &'a dyn BlockStore {
        self.blocks
    }

    pub(crate) fn visitor(&mut self) -> &mut V {
        self.visitor
    }

    pub(crate) fn counts(&self) -> WalkCounts {
        self.counts
    }

    pub(crate) fn check(&self) -> Result<(), WalkBlocksError> {
        if self.progress.is_cancelled() {
            return Err(WalkBlocksError::Cancelled);
        }
        self.visitor.exceeded_memory().map_or(Ok(()), |bytes| Err(WalkBlocksError::Memory { bytes }))
    }

    /// Walks a block and everything below it. `above` belongs to the part that leads to the block.
    ///
    /// # Errors
    /// [`WalkBlocksError`]: not everything was reached.
    pub(crate) fn walk(&mut self, above: V::Known, top: TreeBlock) -> Result<(), WalkBlocksError> {
        if !self.reach(above, &top) {
            return Ok(());
        }
        let mut open = vec![OpenBlock { block: None, waiting: vec![top], read: Vec::new() }];
        self.waiting_count = 1;
        while let Some(mut last) = open.pop() {
            let batch_count = if open.len() < BATCH_DEPTH { BATCH_COUNT } else { 1 };
            if let Some((block, bytes)) = self.next_below(&mut last, batch_count)? {
                open.push(last);
                open.extend(self.enter(block, &bytes)?);
            } else if let Some(block) = &last.block {
                self.visitor.leave(TreePart::Block(block));
            }
            if open.len() > DEPTH_MAX || self.waiting_count > WAITING_MAX {
                return Err(WalkBlocksError::TooDeep);
            }
        }
        Ok(())
    }

    /// Returns the next block below an open one that is not done, and its bytes.
    fn next_below(
        &mut self,
        open: &mut OpenBlock,
        batch_count: usize,
    ) -> Result<Option<(TreeBlock, Bytes)>, WalkBlocksError> {
        loop {
            while let Some((block, bytes)) = open.read.pop() {
                // A block that was read together with it may have led to it.
                if !self.visitor.is_done(TreePart::Block(&block)) {
                    return Ok(Some((block, bytes)));
                }
            }
            let mut batch: Vec<TreeBlock> = Vec::new();
            while batch.len() < batch_count {
                let Some(block) = open.waiting.pop() else { break };
                self.waiting_count -= 1;
                if !batch.contains(&block) && !self.visitor.is_done(TreePart::Block(&block)) {
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
        self.check()?;
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

    /// Reaches the blocks below a block. Returns the block if some of them have to be read.
    fn enter(&mut self, block: TreeBlock, bytes: &[u8]) -> Result<Option<OpenBlock>, WalkBlocksError> {
        let known = self.visitor.enter(TreePart::Block(&block));
        let mut waiting = block.below(bytes, self.blocks.empty_score())?;
        waiting.retain(|below| self.reach(known, below));
        if waiting.is_empty() {
            self.visitor.leave(TreePart::Block(&block));
            return Ok(None);
        }
        waiting.reverse();
        self.waiting_count += waiting.len();
        Ok(Some(OpenBlock { block: Some(block), waiting, read: Vec::new() }))
    }

    /// Returns true if the block has to be read.
    fn reach(&mut self, above: V::Known, block: &TreeBlock) -> bool {
        let is_wanted = self.visitor.reach(above, TreePart::Block(block));
        self.counts.leaf_count += u64::from(block.is_leaf());
        is_wanted && !block.is_leaf()
    }
}

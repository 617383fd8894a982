//! Copies an archive between stores with the same scores: all blocks below its root, and the
//! earlier roots.
//!
//! A block is put only after all blocks below it. So an interrupted copy resumes where it stopped.
//! A pointer block at the destination implies that all blocks below it are there too, unless some
//! were removed or damaged: [`CopyMode::Fast`] relies on this.
//!
//! The destination is queried only to save work. If it does not confirm that it has a block, the
//! block is written.

use std::collections::BTreeSet;

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};

use crate::tree_block::{DecodeTreeBlockError, TreeBlock, previous_archive};
use crate::vac::VENTI_SCORE_BYTES;

/// The largest depth of blocks that lead to each other. The deepest folder that is archived has
/// about two blocks a level.
const DEPTH_MAX: usize = 1 << 15;
/// The leaves that are looked up at a time.
const BATCH_LEAF_COUNT: usize = 256;
/// The largest number of blocks that are remembered as copied together with all blocks below: some
/// 80 bytes each.
const REMEMBERED_MAX: usize = 1 << 20;

/// The degree to which the destination is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// Looks up all blocks below a block, even if the block is present.
    Whole,
    /// Assumes that all blocks below a present block are present.
    Fast,
}

/// The progress of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Blocks that were copied.
    pub block_count: u64,
    /// The bytes of the copied blocks.
    pub bytes: u64,
    /// Blocks that were present. A block that stands for all below it counts as one.
    pub present_count: u64,
}

/// The reason why a copy ended early. The blocks copied until then need not be copied again.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A store's scores are not those of Venti.
    #[error("both stores must have SHA-1 scores, as Venti has: other scores name the same block differently")]
    OtherScores,
    /// The source does not return a block.
    #[error("the source cannot be read")]
    Source(#[source] GetError),
    /// The destination does not accept a block.
    #[error("the destination cannot be written")]
    Destination(#[source] PutError),
    /// The destination may lose copied blocks.
    #[error("the destination cannot be made durable")]
    Sync(#[source] SyncError),
    /// A block that leads to others is malformed.
    #[error("{0}")]
    Malformed(#[from] DecodeTreeBlockError),
    /// The two stores name the same block differently.
    #[error(
        "{name} is called {other} in the other store: one of the two stores does not name its blocks as Venti does"
    )]
    OtherName {
        /// Its name in the source.
        name: BlockName,
        /// Its score in the destination.
        other: Score,
    },
    /// Blocks are nested deeper than any folder.
    #[error("the archive is deeper than {DEPTH_MAX} blocks")]
    TooDeep,
    /// The caller cancelled the copy.
    #[error("interrupted")]
    Cancelled,
}

/// A block that is put when all blocks below it are present.
struct PendingCopy {
    child: TreeBlock,
    bytes: Bytes,
    is_there: bool,
    /// Blocks below it that lead to others, with the next one last.
    inner: Vec<TreeBlock>,
}

/// Copies the archive with the root `score`. It is durable when this returns. `watch` is called
/// from time to time with the progress, and returns false to cancel.
///
/// Holds the blocks on the path from the root to the current position, and a batch of leaves.
///
/// # Errors
/// [`CopyError`].
pub fn copy_archive(
    from: &dyn BlockStore,
    to: &dyn BlockStore,
    score: Score,
    mode: CopyMode,
    watch: &mut dyn FnMut(&CopyProgress) -> bool,
) -> Result<CopyProgress, CopyError> {
    let lengths = [from.score_bytes(), to.score_bytes(), score.as_bytes().len()];
    if lengths != [VENTI_SCORE_BYTES; 3] || from.empty_score() != to.empty_score() {
        return Err(CopyError::OtherScores);
    }
    let mut copier =
        BlockCopier { from, to, mode, copied: CopyProgress::default(), done: BTreeSet::new(), watch };
    // An earlier archive is copied before its successor, so that no present block leads to a
    // missing one.
    let mut roots = vec![TreeBlock::of_archive(score)];
    let mut next = Some(score);
    while let Some(root) = next.filter(|_| roots.len() < REMEMBERED_MAX) {
        if copier.believes(&TreeBlock::of_archive(root).name) {
            break;
        }
        let block = from.get(&TreeBlock::of_archive(root).name).map_err(CopyError::Source)?;
        let previous = previous_archive(&TreeBlock::of_archive(root), &block)?;
        next = previous.filter(|previous| *previous != from.empty_score());
        roots.extend(next.map(TreeBlock::of_archive));
    }
    while let Some(root) = roots.pop() {
        copier.copy(root)?;
    }
    to.sync().map_err(CopyError::Sync)?;
    Ok(copier.copied)
}

struct BlockCopier<'a> {
    from: &'a dyn BlockStore,
    to: &'a dyn BlockStore,
    mode: CopyMode,
    copied: CopyProgress,
    /// Blocks that lead to others and were copied, with all blocks below, in this run.
    done: BTreeSet<TreeBlock>,
    watch: &'a mut dyn FnMut(&CopyProgress) -> bool,
}

impl BlockCopier<'_> {
    /// Returns true if the presence of a block stands for all blocks below it.
    fn believes(&self, name: &BlockName) -> bool {
        self.mode == CopyMode::Fast && self.is_there(name)
    }

    fn is_there(&self, name: &BlockName) -> bool {
        self.are_there(std::slice::from_ref(name)).first() == Some(&true)
    }

    /// Asks the destination which of these blocks it has. An error counts as "no": the following
    /// write shows if the destination works.
    fn are_there(&self, names: &[BlockName]) -> Vec<bool> {
        match self.to.has_batch(names) {
            Ok(there) => there,
            // The destination could not be reached. Another request would wait as long.
            Err(GetError::Failed { .. }) => vec![false; names.len()],
            Err(_) if names.len() == 1 => vec![false],
            // One of the answers was not definite, so each block is queried alone.
            Err(_) => names.iter().map(|name| self.is_there(name)).collect(),
        }
    }

    fn copy(&mut self, top: TreeBlock) -> Result<(), CopyError> {
        let mut open: Vec<PendingCopy> = self.enter(top)?.into_iter().collect();
        while let Some(frame) = open.last_mut() {
            if let Some(child) = frame.inner.pop() {
                if open.len() >= DEPTH_MAX {
                    return Err(CopyError::TooDeep);
                }
                open.extend(self.enter(child)?);
                continue;
            }
            if let Some(PendingCopy { child, bytes, is_there, .. }) = open.pop() {
                if is_there {
                    self.copied.present_count += 1;
                } else {
                    self.put(&[child.name], &[bytes])?;
                }
                if self.done.len() < REMEMBERED_MAX {
                    self.done.insert(child);
                }
            }
        }
        Ok(())
    }

    /// Reads a block that leads to others, and copies the leaves among them.
    fn enter(&mut self, child: TreeBlock) -> Result<Option<PendingCopy>, CopyError> {
        if self.done.contains(&child) {
            return Ok(None);
        }
        if self.believes(&child.name) {
            self.copied.present_count += 1;
            return Ok(None);
        }
        let is_there = self.is_there(&child.name);
        let bytes = self.from.get(&child.name).map_err(CopyError::Source)?;
        let below = child.below(&bytes, self.from.empty_score())?;
        let (leaves, mut inner): (Vec<TreeBlock>, Vec<TreeBlock>) =
            below.into_iter().partition(TreeBlock::is_leaf);
        for leaves in leaves.chunks(BATCH_LEAF_COUNT) {
            self.copy_leaves(leaves)?;
        }
        inner.reverse();
        Ok(Some(PendingCopy { child, bytes, is_there, inner }))
    }

    fn copy_leaves(&mut self, leaves: &[TreeBlock]) -> Result<(), CopyError> {
        let names: BTreeSet<BlockName> = leaves.iter().map(|leaf| leaf.name).collect();
        let names: Vec<BlockName> = names.into_iter().collect();
        let there = self.are_there(&names);
        let missing: Vec<BlockName> =
            names.iter().zip(&there).filter(|(_, there)| !**there).map(|(name, _)| *name).collect();
        self.copied.present_count += (names.len() - missing.len()) as u64;
        if !missing.is_empty() {
            let read: Result<Vec<_>, _> = self.from.get_batch(&missing).into_iter().collect();
            let blocks = read.map_err(CopyError::Source)?;
            self.put(&missing, &blocks)?;
        }
        if (self.watch)(&self.copied) { Ok(()) } else { Err(CopyError::Cancelled) }
    }

    fn put(&mut self, names: &[BlockName], blocks: &[Bytes]) -> Result<(), CopyError> {
        let pairs = names.iter().zip(blocks);
        let blocks: Vec<Block<'_>> =
            pairs.map(|(name, bytes)| Block { block_type: name.block_type, bytes }).collect();
        let scores = self.to.put_batch(&blocks).map_err(CopyError::Destination)?;
        if let Some((name, other)) = names.iter().zip(&scores).find(|(name, score)| name.score != **score) {
            return Err(CopyError::OtherName { name: *name, other: *other });
        }
        self.copied.block_count += blocks.len() as u64;
        self.copied.bytes += blocks.iter().map(|block| block.bytes.len() as u64).sum::<u64>();
        Ok(())
    }
}

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
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError};

use super::VENTI_SCORE_BYTES;
use super::entry::{DecodeVentiEntryError, VENTI_ENTRY_BYTES, VentiEntry};
use super::root::{DecodeVentiRootError, VentiRoot};

/// The largest depth of blocks that lead to each other: far deeper than the folders of any system.
const DEPTH_MAX: usize = 8192;
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
    /// The root is invalid.
    #[error("{score} is not the root of a vac archive")]
    Root { score: Score, source: DecodeVentiRootError },
    /// A block of entries has an invalid entry.
    #[error("{name} has a malformed entry")]
    Entry { name: BlockName, source: DecodeVentiEntryError },
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

/// A block that leads to others, and the kind of the leaves below it.
#[derive(Debug, Clone, Copy)]
struct InnerBlock {
    name: BlockName,
    leaf_kind: BlockKind,
}

/// A block that is put when all blocks below it are present.
struct PendingCopy {
    child: InnerBlock,
    bytes: Bytes,
    is_there: bool,
    /// Blocks below it that lead to others, with the next one last.
    inner: Vec<InnerBlock>,
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
    let mut roots = vec![root_child(score)];
    let mut next = Some(score);
    while let Some(root) = next.filter(|_| roots.len() < REMEMBERED_MAX) {
        if copier.believes(&root_child(root).name) {
            break;
        }
        let block = from.get(&root_child(root).name).map_err(CopyError::Source)?;
        next = decoded(root, &block)?.previous.filter(|previous| *previous != from.empty_score());
        roots.extend(next.map(root_child));
    }
    while let Some(root) = roots.pop() {
        copier.copy(root)?;
    }
    to.sync().map_err(CopyError::Sync)?;
    Ok(copier.copied)
}

fn root_child(score: Score) -> InnerBlock {
    InnerBlock { name: BlockName { score, block_type: BlockType::ROOT }, leaf_kind: BlockKind::Root }
}

fn decoded(score: Score, block: &[u8]) -> Result<VentiRoot, CopyError> {
    VentiRoot::decode(block).map_err(|source| CopyError::Root { score, source })
}

struct BlockCopier<'a> {
    from: &'a dyn BlockStore,
    to: &'a dyn BlockStore,
    mode: CopyMode,
    copied: CopyProgress,
    /// Blocks that lead to others and were copied, with all blocks below, in this run.
    done: BTreeSet<BlockName>,
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

    fn copy(&mut self, top: InnerBlock) -> Result<(), CopyError> {
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
                    self.done.insert(child.name);
                }
            }
        }
        Ok(())
    }

    /// Reads a block that leads to others, and copies the leaves among them.
    fn enter(&mut self, child: InnerBlock) -> Result<Option<PendingCopy>, CopyError> {
        if self.done.contains(&child.name) {
            return Ok(None);
        }
        if self.believes(&child.name) {
            self.copied.present_count += 1;
            return Ok(None);
        }
        let is_there = self.is_there(&child.name);
        let bytes = self.from.get(&child.name).map_err(CopyError::Source)?;
        let below = self.below(&child, &bytes)?;
        let (leaves, mut inner): (Vec<InnerBlock>, Vec<InnerBlock>) =
            below.into_iter().partition(|child| child.name.block_type == BlockType::DATA);
        for leaves in leaves.chunks(BATCH_LEAF_COUNT) {
            self.copy_leaves(leaves)?;
        }
        inner.reverse();
        Ok(Some(PendingCopy { child, bytes, is_there, inner }))
    }

    /// Returns the children of a block.
    fn below(&self, child: &InnerBlock, bytes: &Bytes) -> Result<Vec<InnerBlock>, CopyError> {
        let empty = self.from.empty_score();
        let block_type = child.name.block_type;
        let below = match (block_type.kind(), block_type.depth()) {
            (BlockKind::Root, _) => {
                let score = decoded(child.name.score, bytes)?.score;
                let name = BlockName { score, block_type: BlockType::DIRECTORY };
                vec![InnerBlock { name, leaf_kind: BlockKind::Directory }]
            }
            (_, 0) => entries_below(child.name, bytes)?,
            (_, depth) => {
                let block_type = type_at(child.leaf_kind, depth - 1);
                let scores =
                    bytes.chunks_exact(VENTI_SCORE_BYTES).filter_map(|score| Score::try_from(score).ok());
                let leaf_kind = child.leaf_kind;
                scores.map(|score| InnerBlock { name: BlockName { score, block_type }, leaf_kind }).collect()
            }
        };
        Ok(below.into_iter().filter(|child| child.name.score != empty).collect())
    }

    fn copy_leaves(&mut self, leaves: &[InnerBlock]) -> Result<(), CopyError> {
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

/// Returns the root blocks of the trees in a block of entries.
fn entries_below(name: BlockName, bytes: &[u8]) -> Result<Vec<InnerBlock>, CopyError> {
    let mut below = Vec::new();
    for entry in bytes.chunks(VENTI_ENTRY_BYTES) {
        // The truncated bytes of the last entry are zeros. A rest at the end of a full block is too
        // short for an entry, and is zeros too.
        let mut whole = [0; VENTI_ENTRY_BYTES];
        whole[..entry.len()].copy_from_slice(entry);
        let decoded = VentiEntry::decode(&whole).map_err(|source| CopyError::Entry { name, source })?;
        if let Some(VentiEntry { tree, .. }) = decoded.filter(|entry| entry.tree.size() > 0) {
            let leaf_kind = tree.leaf_kind();
            let name = BlockName { score: tree.root(), block_type: type_at(leaf_kind, tree.depth()) };
            below.push(InnerBlock { name, leaf_kind });
        }
    }
    Ok(below)
}

/// Returns the type of a block at a depth above leaves of this kind. Pointer blocks of both kinds
/// have one type.
fn type_at(leaf_kind: BlockKind, depth: u8) -> BlockType {
    let kind = if depth == 0 { leaf_kind } else { BlockKind::Data };
    BlockType::at_depth(kind, depth).unwrap_or(BlockType::leaf(leaf_kind))
}

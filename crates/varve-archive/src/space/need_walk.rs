//! Walks snapshots, and records which of them need each block. Leaves are not read.
//!
//! A block is entered again only if that changes what is known of it: about twice, and once more if
//! another name needs it. It is recorded before what is below it, so a walk that failed leaves a
//! table of no use.
//!
//! The same pointer block may be part of trees of several kinds, and leads to other blocks in each.
//! So it is recorded with the kind of its tree. A folder is recorded by its whole entry.

use varve_block::{BlockKind, BlockName, BlockStore, BlockType, Score};
use varve_store::is_structure;
use varve_tree::{Entry, Layout, TreeBlock};

use super::need_rules::{NeedRules, NeededBy};
use super::need_table::{NeedKey, NeedTable};
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::progress::Progress;
use crate::reclaiming::block_walk::WalkBlocksError;
use crate::reclaiming::mark::{MarkError, MarkTreeError, VAC_TAG};
use crate::records::node::{Node, NodeKind};
use crate::records::node_list::NodeList;

/// The blocks that are read together.
const BATCH_COUNT: usize = 64;
/// The largest number of blocks that wait to be read.
const WAITING_MAX: usize = 4 << 20;
/// Upper bound on the nesting of folders.
const DEPTH_MAX: usize = 4096;

/// The kinds of entries of one block. The first byte of what is hashed for a key is their number.
const LEAF: u8 = 1;
const FIXED: u8 = 2;
const CONTENT_CUT: u8 = 3;
const FOREIGN: u8 = 4;
const FOLDER: u8 = 5;

/// The slice of all leaves that a walk records. Blocks that lead to others are recorded in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafSlice {
    pub number: u32,
    pub count: u32,
}

/// Walks snapshots. See the module's documentation.
pub(crate) struct NeedWalk<'a> {
    pub blocks: &'a dyn BlockStore,
    pub rules: &'a NeedRules,
    pub table: &'a mut NeedTable,
    pub slice: LeafSlice,
    /// A walk ends as if it was cancelled once the table takes more memory than this.
    pub memory_bytes: u64,
    pub progress: &'a Progress,
}

struct OpenList<'a> {
    list: NodeList<'a>,
    /// The length of the folder's path.
    path_bytes: usize,
}

impl<'a> NeedWalk<'a> {
    /// Records that a snapshot needs everything that it leads to.
    ///
    /// # Errors
    /// [`MarkError`]: the snapshot cannot be walked to its end.
    pub(crate) fn snapshot(&mut self, snapshot: &Snapshot, needed_by: NeededBy) -> Result<(), MarkError> {
        let mut path = Vec::new();
        let walked = match &snapshot.content {
            SnapshotContent::Image(entry) => self.tree(entry, needed_by),
            SnapshotContent::Folder(root) => self.folder(root, needed_by, &mut path),
        };
        walked.and_then(|()| self.archives_of(snapshot, needed_by)).map_err(|error| {
            let (id, name) = (snapshot.id, snapshot.name.clone());
            error.into_mark(|source| MarkError::Snapshot { id, name, path, source })
        })
    }

    /// Records that the catalog needs one of its lists.
    ///
    /// # Errors
    /// [`MarkError`]: the list cannot be walked to its end.
    pub(crate) fn list(&mut self, list: &Entry, needed_by: NeededBy) -> Result<(), MarkError> {
        self.tree(list, needed_by).map_err(|error| error.into_mark(MarkError::List))
    }

    /// Returns true if the table takes too much memory.
    pub(crate) fn is_beyond_memory(&self) -> bool {
        self.table.memory_bytes() > self.memory_bytes
    }

    fn check(&self) -> Result<(), WalkBlocksError> {
        let must_end = self.progress.is_cancelled() || self.is_beyond_memory();
        if must_end { Err(WalkBlocksError::Cancelled) } else { Ok(()) }
    }

    fn archives_of(&mut self, snapshot: &Snapshot, needed_by: NeededBy) -> Result<(), MarkTreeError> {
        let score_bytes = self.blocks.score_bytes();
        for score in snapshot.tags.iter().filter_map(|tag| tag.strip_prefix(VAC_TAG)) {
            // In a store with other scores there is no such archive.
            let score = Score::from_hex(score).ok().filter(|score| score.as_bytes().len() == score_bytes);
            if let Some(score) = score.filter(|_| score_bytes == varve_tree::VENTI_SCORE_BYTES) {
                self.walk(TreeBlock::of_archive(score), needed_by)?;
            }
        }
        Ok(())
    }

    fn tree(&mut self, entry: &Entry, needed_by: NeededBy) -> Result<(), MarkTreeError> {
        match TreeBlock::of_tree(entry, self.blocks.empty_score()) {
            Some(top) => Ok(self.walk(top, needed_by)?),
            None => Ok(()),
        }
    }

    /// After an error, `path` is the place of the error.
    fn folder(&mut self, root: &Node, needed_by: NeededBy, path: &mut Vec<u8>) -> Result<(), MarkTreeError> {
        let mut open: Vec<OpenList<'a>> = self.open_folder(root, needed_by, 0)?.into_iter().collect();
        while let Some(last) = open.last_mut() {
            path.truncate(last.path_bytes);
            let Some(node) = last.list.next() else {
                open.pop();
                continue;
            };
            let node = node?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&node.name);
            if node.kind == NodeKind::Folder {
                open.extend(self.open_folder(&node, needed_by, path.len())?);
            } else if let Some(content) = &node.content {
                self.tree(content, needed_by)?;
            }
            if open.len() > DEPTH_MAX {
                return Err(MarkTreeError::TooDeep);
            }
        }
        Ok(())
    }

    /// Records the list of a folder. Returns `None` if this changes nothing.
    fn open_folder(
        &mut self,
        folder: &Node,
        needed_by: NeededBy,
        path_bytes: usize,
    ) -> Result<Option<OpenList<'a>>, MarkTreeError> {
        let Some(content) = folder.content else { return Ok(None) };
        let key = self.table.key(&[&[FOLDER], content.encode().as_slice()].concat());
        if !self.record(key, needed_by) {
            return Ok(None);
        }
        self.check()?;
        self.tree(&content, needed_by)?;
        Ok(Some(OpenList { list: NodeList::new(self.blocks, folder), path_bytes }))
    }

    fn walk(&mut self, top: TreeBlock, needed_by: NeededBy) -> Result<(), WalkBlocksError> {
        let mut waiting = Vec::new();
        self.reach(top, needed_by, &mut waiting);
        while !waiting.is_empty() {
            self.check()?;
            let batch = waiting.split_off(waiting.len().saturating_sub(BATCH_COUNT));
            let names: Vec<_> = batch.iter().map(|block: &TreeBlock| block.name).collect();
            for (block, bytes) in batch.iter().zip(self.blocks.get_batch(&names)) {
                let bytes = bytes?;
                self.progress.add_bytes_done(bytes.len() as u64);
                for below in block.below(&bytes, self.blocks.empty_score())? {
                    self.reach(below, needed_by, &mut waiting);
                }
            }
            if waiting.len() > WAITING_MAX {
                return Err(WalkBlocksError::TooDeep);
            }
        }
        Ok(())
    }

    /// Records a block. If that changes what is known of it, and it leads to others, it has to be
    /// read.
    fn reach(&mut self, block: TreeBlock, needed_by: NeededBy, waiting: &mut Vec<TreeBlock>) {
        let key = key_of(self.table, kind_of(&block), &block.name);
        if !is_structure(&block.name) && key.slice(self.slice.count) != self.slice.number {
            return;
        }
        if self.record(key, needed_by) && !block.is_leaf() {
            waiting.push(block);
        }
    }

    /// Returns true if this changes what is known.
    fn record(&mut self, key: NeedKey, needed_by: NeededBy) -> bool {
        let known = self.table.get(key).map(NeedRules::from_number);
        let joined = known.map_or(needed_by, |known| self.rules.join(known, needed_by));
        if known != Some(joined) {
            self.table.set(key, NeedRules::number(joined));
        }
        known != Some(joined)
    }
}

/// Returns who needs a block; `None` if nobody does. If the block is a leaf of another slice,
/// nothing is known, and the result is an error.
pub(crate) fn who_needs(
    table: &NeedTable,
    rules: &NeedRules,
    slice: LeafSlice,
    name: &BlockName,
) -> Result<Option<NeededBy>, OtherSlice> {
    let leaf_key = key_of(table, LEAF, name);
    if !is_structure(name) {
        let is_here = leaf_key.slice(slice.count) == slice.number;
        return if is_here { Ok(table.get(leaf_key).map(NeedRules::from_number)) } else { Err(OtherSlice) };
    }
    if slice.number > 0 {
        return Err(OtherSlice);
    }
    let keys = [FIXED, CONTENT_CUT, FOREIGN].map(|kind| key_of(table, kind, name));
    let found = keys.into_iter().chain([leaf_key]).filter_map(|key| table.get(key));
    Ok(found.map(NeedRules::from_number).reduce(|one, other| rules.join(one, other)))
}

/// The block is told in the walk of another slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherSlice;

fn key_of(table: &NeedTable, kind: u8, name: &BlockName) -> NeedKey {
    table.key(&[&[kind, name.block_type.to_byte()], name.score.as_bytes()].concat())
}

/// Returns the kind of entry for a block of a tree.
fn kind_of(block: &TreeBlock) -> u8 {
    if block.is_leaf() {
        return LEAF;
    }
    match block.layout {
        Layout::Fixed => FIXED,
        Layout::ContentCut => CONTENT_CUT,
        // A pointer block of Venti above data leads to the same blocks as one of a fixed tree.
        Layout::Venti if block.leaf_kind == BlockKind::Data => FIXED,
        Layout::Venti => FOREIGN,
    }
}

/// Returns true if a block is the root of a catalog. No snapshot needs one, whatever it leads to.
pub(crate) fn is_catalog_root(name: &BlockName) -> bool {
    name.block_type == BlockType::CATALOG
}

//! Trees: search for one item, and walks through items in order. A walk goes down at most
//! [`LEVEL_MAX`] levels, and no node is reached twice: the level sinks with each step, and each
//! node begins with the key that its parent has for it.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::damaged;
use super::key::TreeKey;
use super::logical::LogicalBytes;
use super::node::{BtrfsNode, NodePointer};
use super::superblock::BtrfsSuperblock;
use super::tree_root::TreeRoot;
use crate::FileSystemError;

/// The highest level of a root.
const LEVEL_MAX: u8 = 7;
/// The capacity of the cache of nodes.
const CACHE_BYTES: u64 = 32 << 20;

/// An item in a leaf.
#[derive(Clone)]
pub(super) struct TreeItem {
    leaf: Arc<BtrfsNode>,
    slot: usize,
}

impl TreeItem {
    pub(super) fn key(&self) -> TreeKey {
        self.leaf.key(self.slot)
    }

    pub(super) fn data(&self) -> &[u8] {
        self.leaf.data(self.slot)
    }
}

/// Reads the nodes of all trees, and caches the newest.
pub(super) struct Trees {
    bytes: LogicalBytes,
    superblock: BtrfsSuperblock,
    nodes: Cache<u64, Arc<BtrfsNode>>,
}

impl Trees {
    pub(super) fn new(bytes: LogicalBytes, superblock: BtrfsSuperblock) -> Self {
        let count = CACHE_BYTES.checked_div(u64::from(superblock.node_bytes)).unwrap_or(1);
        let nodes = Cache::new(usize::try_from(count).unwrap_or(1));
        Self { bytes, superblock, nodes }
    }

    pub(super) fn bytes(&self) -> &LogicalBytes {
        &self.bytes
    }

    pub(super) fn superblock(&self) -> &BtrfsSuperblock {
        &self.superblock
    }

    fn node(&self, pointer: &NodePointer) -> Result<Arc<BtrfsNode>, FileSystemError> {
        let logical = pointer.logical;
        if let Some(node) = self.nodes.get(&logical)
            && node.check(pointer).is_ok()
        {
            return Ok(node);
        }
        let what = || format!("tree node at the address {logical}");
        let mut first_problem = None;
        for copy in 0..self.bytes.copy_count(logical) {
            let node_bytes = usize::try_from(self.superblock.node_bytes).unwrap_or(0);
            let mut bytes = vec![0; node_bytes];
            let parsed = self.bytes.read(logical, &mut bytes, copy, &what).and_then(|()| {
                let node = BtrfsNode::parse(bytes, logical, &self.superblock);
                let checked = node.and_then(|node| node.check(pointer).map(|()| node));
                checked.map_err(|problem| damaged(what(), problem))
            });
            match parsed {
                Ok(node) => {
                    let node = Arc::new(node);
                    self.nodes.insert(logical, Arc::clone(&node));
                    return Ok(node);
                }
                Err(problem) => drop(first_problem.get_or_insert(problem)),
            }
        }
        Err(first_problem.unwrap_or_else(|| damaged(what(), "it has no copy")))
    }

    fn root(&self, root: &TreeRoot) -> Result<Arc<BtrfsNode>, FileSystemError> {
        let TreeRoot { logical, level, generation } = *root;
        if level > LEVEL_MAX {
            let what = format!("root of the tree at the address {logical}");
            return Err(damaged(what, "its level is too high"));
        }
        self.node(&NodePointer { logical, level, generation, first_key: None })
    }

    /// Returns the last item whose key is not greater.
    ///
    /// # Errors
    /// [`FileSystemError`] if a node on the way cannot be read.
    pub(super) fn last_up_to(
        &self,
        root: &TreeRoot,
        key: &TreeKey,
    ) -> Result<Option<TreeItem>, FileSystemError> {
        let mut node = self.root(root)?;
        loop {
            let Some(slot) = node.count_up_to(key).checked_sub(1) else { return Ok(None) };
            if node.is_leaf() {
                return Ok(Some(TreeItem { leaf: node, slot }));
            }
            node = self.node(&node.below(slot))?;
        }
    }

    /// Returns the item with exactly this key.
    ///
    /// # Errors
    /// [`FileSystemError`] if a node on the way cannot be read.
    pub(super) fn find(&self, root: &TreeRoot, key: &TreeKey) -> Result<Option<TreeItem>, FileSystemError> {
        Ok(self.last_up_to(root, key)?.filter(|item| item.key() == *key))
    }

    /// Iterates over the items from `first` to `last`. After an error, the items behind the
    /// unreadable node follow.
    pub(super) fn range(&self, root: &TreeRoot, first: TreeKey, last: TreeKey) -> TreeRange<'_> {
        TreeRange { trees: self, start: Some(*root), path: Vec::new(), first, last }
    }
}

/// The items of a tree between two keys.
pub(super) struct TreeRange<'a> {
    trees: &'a Trees,
    /// The root, until the walk has begun.
    start: Option<TreeRoot>,
    /// Nodes from the root down, each with its next slot.
    path: Vec<(Arc<BtrfsNode>, usize)>,
    first: TreeKey,
    last: TreeKey,
}

impl TreeRange<'_> {
    fn enter(&mut self, node: Arc<BtrfsNode>) {
        let up_to = node.count_up_to(&self.first);
        let before = up_to.saturating_sub(1);
        // An inner node whose first key is smaller may have the first item below it.
        let is_passed = node.is_leaf() && up_to > 0 && node.key(before) < self.first;
        self.path.push((node, if is_passed { up_to } else { before }));
    }
}

impl Iterator for TreeRange<'_> {
    type Item = Result<TreeItem, FileSystemError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(root) = self.start.take() {
            match self.trees.root(&root) {
                Ok(node) => self.enter(node),
                Err(error) => return Some(Err(error)),
            }
        }
        loop {
            let (node, slot) = self.path.last_mut()?;
            let now = *slot;
            if now >= node.count() {
                self.path.pop();
                continue;
            }
            *slot = now.saturating_add(1);
            if node.key(now) > self.last {
                self.path.clear();
                return None;
            }
            if node.is_leaf() {
                return Some(Ok(TreeItem { leaf: Arc::clone(node), slot: now }));
            }
            let pointer = node.below(now);
            match self.trees.node(&pointer) {
                Ok(node) => self.enter(node),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

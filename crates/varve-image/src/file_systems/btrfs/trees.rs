//! Trees: search for one item, and walks through items in order. A walk goes down at most
//! [`LEVEL_MAX`] levels, and no node is reached twice: the level sinks with each step, and each
//! node begins with the key that its parent has for it.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use quick_cache::sync::Cache;
use varve_block::to_usize;

use super::damaged;
use super::key::TreeKey;
use super::logical::LogicalBytes;
use super::node::{BtrfsNode, NodePointer};
use super::superblock::BtrfsSuperblock;
use super::tree_patch::{PatchRange, TreePatch};
use super::tree_root::TreeRoot;
use crate::file_systems::file_system::FileSystemError;

/// The highest level of a root.
const LEVEL_MAX: u8 = 7;
/// The capacity of the cache of nodes.
const CACHE_BYTES: u64 = 32 << 20;

/// An item of a tree.
#[derive(Clone)]
pub(super) enum TreeItem {
    Stored { leaf: Arc<BtrfsNode>, slot: usize },
    Patched { key: TreeKey, data: Arc<[u8]> },
}

impl TreeItem {
    pub(super) fn key(&self) -> TreeKey {
        match self {
            Self::Stored { leaf, slot } => leaf.key(*slot),
            Self::Patched { key, .. } => *key,
        }
    }

    pub(super) fn data(&self) -> &[u8] {
        match self {
            Self::Stored { leaf, slot } => leaf.data(*slot),
            Self::Patched { data, .. } => data,
        }
    }
}

/// Reads the nodes of all trees, and caches the newest.
pub(super) struct Trees {
    bytes: LogicalBytes,
    superblock: BtrfsSuperblock,
    nodes: Cache<u64, Arc<BtrfsNode>>,
    /// By the addresses of the roots of the trees.
    patches: BTreeMap<u64, TreePatch>,
}

impl Trees {
    pub(super) fn new(bytes: LogicalBytes, superblock: BtrfsSuperblock) -> Self {
        let count = CACHE_BYTES.checked_div(u64::from(superblock.node_bytes)).unwrap_or(1);
        let nodes = Cache::new(to_usize(count));
        Self { bytes, superblock, nodes, patches: BTreeMap::new() }
    }

    /// Shows trees with these changes, by the addresses of their roots.
    pub(super) fn with_patches(self, patches: BTreeMap<u64, TreePatch>) -> Self {
        Self { patches, ..self }
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
            let node_bytes = to_usize(self.superblock.node_bytes);
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
        match self.patches.get(&root.logical) {
            Some(patch) => self.last_patched_up_to(root, patch, key),
            None => self.last_stored_up_to(root, key),
        }
    }

    /// Returns the last item whose key is not greater, in a tree with changes.
    ///
    /// # Errors
    /// [`FileSystemError`] if a node on the way cannot be read.
    pub(super) fn last_patched_up_to(
        &self,
        root: &TreeRoot,
        patch: &TreePatch,
        key: &TreeKey,
    ) -> Result<Option<TreeItem>, FileSystemError> {
        let added = patch.last_up_to(key).map(|(key, data)| TreeItem::Patched { key, data });
        let mut limit = *key;
        loop {
            let stored = self.last_stored_up_to(root, &limit)?;
            let is_later = |stored: &TreeItem| added.as_ref().is_none_or(|added| added.key() < stored.key());
            let Some(stored) = stored.filter(is_later) else { return Ok(added) };
            if patch.get(&stored.key()).is_none() {
                return Ok(Some(stored));
            }
            let Some(before) = stored.key().before() else { return Ok(added) };
            limit = before;
        }
    }

    fn last_stored_up_to(&self, root: &TreeRoot, key: &TreeKey) -> Result<Option<TreeItem>, FileSystemError> {
        let mut node = self.root(root)?;
        loop {
            let Some(slot) = node.count_up_to(key).checked_sub(1) else { return Ok(None) };
            if node.is_leaf() {
                return Ok(Some(TreeItem::Stored { leaf: node, slot }));
            }
            node = self.node(&node.below(slot))?;
        }
    }

    /// Returns the item with exactly this key.
    ///
    /// # Errors
    /// [`FileSystemError`] if a node on the way cannot be read.
    pub(super) fn find(&self, root: &TreeRoot, key: &TreeKey) -> Result<Option<TreeItem>, FileSystemError> {
        self.find_patched(root, self.patches.get(&root.logical), key)
    }

    /// Returns the item with exactly this key, in a tree with changes.
    ///
    /// # Errors
    /// [`FileSystemError`] if a node on the way cannot be read.
    pub(super) fn find_patched(
        &self,
        root: &TreeRoot,
        patch: Option<&TreePatch>,
        key: &TreeKey,
    ) -> Result<Option<TreeItem>, FileSystemError> {
        if let Some(changed) = patch.and_then(|patch| patch.get(key)) {
            return Ok(changed.map(|data| TreeItem::Patched { key: *key, data: Arc::clone(data) }));
        }
        Ok(self.last_stored_up_to(root, key)?.filter(|item| item.key() == *key))
    }

    /// Iterates over all items of a tree, as [`range`](Self::range).
    pub(super) fn items(&self, root: &TreeRoot) -> TreeRange<'_> {
        self.range(root, TreeKey::new(0, 0, 0), TreeKey::new(u64::MAX, u8::MAX, u64::MAX))
    }

    /// Iterates over the items from `first` to `last`. After an error, the items behind the
    /// unreadable node follow.
    pub(super) fn range(&self, root: &TreeRoot, first: TreeKey, last: TreeKey) -> TreeRange<'_> {
        self.patched_range(root, self.patches.get(&root.logical), first, last)
    }

    /// Iterates over the items from `first` to `last` of a tree with changes.
    pub(super) fn patched_range<'a>(
        &'a self,
        root: &TreeRoot,
        patch: Option<&'a TreePatch>,
        first: TreeKey,
        last: TreeKey,
    ) -> TreeRange<'a> {
        let stored = StoredRange { trees: self, start: Some(*root), path: Vec::new(), first, last };
        let added = patch.map(|patch| patch.range(first, last).peekable());
        TreeRange { stored, next: None, added }
    }
}

/// The items of a tree between two keys.
pub(super) struct TreeRange<'a> {
    stored: StoredRange<'a>,
    /// The next stored item, if it was read already.
    next: Option<Result<TreeItem, FileSystemError>>,
    added: Option<Peekable<PatchRange<'a>>>,
}

impl Iterator for TreeRange<'_> {
    type Item = Result<TreeItem, FileSystemError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(added) = &mut self.added else { return self.stored.next() };
        loop {
            let stored = self.next.take().or_else(|| self.stored.next());
            let Some((key, _)) = added.peek() else { return stored };
            match stored {
                Some(Ok(item)) if item.key() == **key => {}
                Some(Ok(item)) if item.key() > **key => self.next = Some(Ok(item)),
                Some(item) => return Some(item),
                None => {}
            }
            if let Some((key, Some(data))) = added.next() {
                return Some(Ok(TreeItem::Patched { key: *key, data: Arc::clone(data) }));
            }
        }
    }
}

/// The items that a tree has on the disk, between two keys.
struct StoredRange<'a> {
    trees: &'a Trees,
    /// The root, until the walk has begun.
    start: Option<TreeRoot>,
    /// Nodes from the root down, each with its next slot.
    path: Vec<(Arc<BtrfsNode>, usize)>,
    first: TreeKey,
    last: TreeKey,
}

impl StoredRange<'_> {
    fn enter(&mut self, node: Arc<BtrfsNode>) {
        let up_to = node.count_up_to(&self.first);
        let before = up_to.saturating_sub(1);
        // An inner node whose first key is smaller may have the first item below it.
        let is_passed = node.is_leaf() && up_to > 0 && node.key(before) < self.first;
        self.path.push((node, if is_passed { up_to } else { before }));
    }
}

impl Iterator for StoredRange<'_> {
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
                return Some(Ok(TreeItem::Stored { leaf: Arc::clone(node), slot: now }));
            }
            let pointer = node.below(now);
            match self.trees.node(&pointer) {
                Ok(node) => self.enter(node),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

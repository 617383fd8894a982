//! A position in a tree that only moves forward. All readers of trees use it.
//!
//! Invariant: the subtrees that a cursor passes, skipped or descended into, cover all bytes of the
//! file, each once, in order. It holds one pointer block a level.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockKind, BlockName, BlockStore, BlockType, GetError, has_kind};

use crate::entry::Entry;
use crate::pointers::{Children, Geometry, MalformedPointer, Subtree, SubtreeKind};
use crate::read_ahead::BlockReadAhead;

/// The reason why the bytes below a pointer block cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadPointerError {
    /// The store does not return the block.
    #[error("bytes {}..{}: a pointer block above them cannot be read", range.start, range.end)]
    Get {
        /// The bytes of the file below the block.
        range: Range<u64>,
        /// The store's error, with the name of the block.
        source: GetError,
    },
    /// The store returns a block, but it is not valid at this place of the tree.
    #[error("bytes {}..{}: the pointer block above them, {name}, is malformed", range.start, range.end)]
    Malformed {
        /// The bytes of the file below the block.
        range: Range<u64>,
        name: BlockName,
        source: MalformedPointer,
    },
}

has_kind!(ReadPointerError: Self::Malformed { .. } => Damage);

impl ReadPointerError {
    /// Returns the bytes of the file that cannot be read.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Get { range, .. } | Self::Malformed { range, .. } => range.clone(),
        }
    }

    /// Returns the faulty pointer block. Its level is the depth in its type.
    #[must_use]
    pub fn name(&self) -> BlockName {
        match self {
            Self::Get { source, .. } => name_of(source),
            Self::Malformed { name, .. } => *name,
        }
    }
}

/// Returns the name of the block that a store did not return.
pub(crate) fn name_of(error: &GetError) -> BlockName {
    match error {
        GetError::NotFound { name } | GetError::Damaged { name, .. } | GetError::Failed { name, .. } => *name,
    }
}

pub(crate) struct TreeCursor<'a> {
    store: &'a dyn BlockStore,
    leaf_kind: BlockKind,
    geometry: Geometry,
    above: Vec<Children>,
    current: Option<Subtree>,
    ahead: Option<BlockReadAhead>,
}

impl<'a> TreeCursor<'a> {
    /// Makes a cursor at the root. Reads nothing yet.
    pub(crate) fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        let geometry = Geometry::new(entry, store.empty_score());
        let root = geometry.subtree(0, entry.size(), entry.depth(), entry.root());
        let current = (entry.size() > 0).then_some(root);
        Self { store, leaf_kind: entry.leaf_kind(), geometry, above: Vec::new(), current, ahead: None }
    }

    /// Enables read-ahead, for callers that will descend into most of the tree.
    pub(crate) fn reading_ahead(self) -> Self {
        let ahead = BlockReadAhead::new(self.geometry.pointer_bytes());
        Self { ahead: Some(ahead), ..self }
    }

    /// Returns the current subtree; `None` at the end of the file.
    pub(crate) fn current(&self) -> Option<Subtree> {
        self.current
    }

    /// Returns the properties that all blocks of the tree share.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the name of a subtree's root block.
    pub(crate) fn name(&self, subtree: &Subtree) -> BlockName {
        let leaf = BlockType::leaf(self.leaf_kind);
        let block_type = match subtree.level {
            0 => leaf,
            level => BlockType::at_depth(self.geometry.pointer_kind(self.leaf_kind), level).unwrap_or(leaf),
        };
        BlockName { score: subtree.score, block_type }
    }

    /// Moves past the current subtree without reading it.
    pub(crate) fn skip(&mut self) {
        self.current = None;
        while let Some(children) = self.above.last_mut() {
            self.current = children.next();
            if self.current.is_some() {
                return;
            }
            self.above.pop();
        }
    }

    /// Moves to the first child of the current subtree by reading one pointer block. Stays in place
    /// on an error, or if there are no children.
    pub(crate) fn descend(&mut self) -> Result<(), ReadPointerError> {
        let Some(subtree) = self.current.filter(|subtree| subtree.root == SubtreeKind::Pointer) else {
            return Ok(());
        };
        let (name, range) = (self.name(&subtree), subtree.range());
        let bytes = match self.read(&subtree, name) {
            Ok(bytes) => bytes,
            Err(source) => return Err(ReadPointerError::Get { range, source }),
        };
        match Children::decode(self.geometry, &subtree, bytes) {
            Ok(children) => self.above.push(children),
            Err(source) => return Err(ReadPointerError::Malformed { range, name, source }),
        }
        self.skip();
        Ok(())
    }

    /// Reads a pointer block, with read-ahead at level 1 only: there are few pointer blocks above.
    fn read(&mut self, subtree: &Subtree, name: BlockName) -> Result<Bytes, GetError> {
        let Some(mut ahead) = self.ahead.take_if(|_| subtree.level == 1) else {
            return self.store.get(&name);
        };
        let beside = self.above.last().cloned().into_iter().flatten();
        let pointers = beside.filter(|next| next.root == SubtreeKind::Pointer).map(|next| self.name(&next));
        let read = ahead.get(self.store, name, pointers);
        self.ahead = Some(ahead);
        read
    }
}

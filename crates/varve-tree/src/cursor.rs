//! A place in a tree that moves forward: what every reader of trees is made of.
//!
//! Invariant: what a cursor passes on its way, skipped or descended into, stands for all bytes of the file, each once,
//! in order. It holds one pointer block a level.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockKind, BlockName, BlockStore, BlockType, GetError};

use crate::entry::Entry;
use crate::pointers::{Children, Geometry, MalformedPointer, Root, Subtree};
use crate::read_ahead::ReadAhead;

/// Why what lies below a pointer block is out of reach.
#[derive(Debug, thiserror::Error)]
pub enum ReadPointerError {
    /// The store does not give the block.
    #[error("bytes {}..{}: what leads to them cannot be read", range.start, range.end)]
    Get {
        /// The bytes of the file that lie below.
        range: Range<u64>,
        /// What the store says, and of which block.
        source: GetError,
    },
    /// The store gives a block, but no writer made it for this place.
    #[error("bytes {}..{}: {name} leads to them, and is malformed", range.start, range.end)]
    Malformed {
        /// The bytes of the file that lie below.
        range: Range<u64>,
        /// The block.
        name: BlockName,
        /// What is wrong with it.
        source: MalformedPointer,
    },
}

impl ReadPointerError {
    /// The bytes of the file that are out of reach.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Get { range, .. } | Self::Malformed { range, .. } => range.clone(),
        }
    }

    /// The pointer block at fault; the depth of its type is its level.
    #[must_use]
    pub fn name(&self) -> BlockName {
        match self {
            Self::Get { source, .. } => name_of(source),
            Self::Malformed { name, .. } => *name,
        }
    }
}

/// The block that a store did not give.
pub(crate) fn name_of(error: &GetError) -> BlockName {
    match error {
        GetError::NotFound { name } | GetError::Damaged { name, .. } | GetError::Failed { name, .. } => *name,
    }
}

pub(crate) struct Cursor<'a> {
    store: &'a dyn BlockStore,
    leaf_kind: BlockKind,
    geometry: Geometry,
    above: Vec<Children>,
    current: Option<Subtree>,
    ahead: Option<ReadAhead>,
}

impl<'a> Cursor<'a> {
    /// At the root; nothing is read yet.
    pub(crate) fn new(store: &'a dyn BlockStore, entry: &Entry) -> Self {
        let geometry = Geometry::new(entry, store.empty_score());
        let root = geometry.subtree(0, entry.size(), entry.depth(), entry.root());
        let current = (entry.size() > 0).then_some(root);
        Self { store, leaf_kind: entry.leaf_kind(), geometry, above: Vec::new(), current, ahead: None }
    }

    /// For who is going to descend into most of what there is.
    pub(crate) fn reading_ahead(self) -> Self {
        let ahead = ReadAhead::new(self.geometry.pointer_bytes());
        Self { ahead: Some(ahead), ..self }
    }

    /// The subtree at this place; `None` at the end of the file.
    pub(crate) fn current(&self) -> Option<Subtree> {
        self.current
    }

    /// What all blocks of the tree have in common.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The name of the block that is a subtree's root.
    pub(crate) fn name(&self, subtree: &Subtree) -> BlockName {
        let leaf = BlockType::leaf(self.leaf_kind);
        let block_type = match subtree.level {
            0 => leaf,
            level => BlockType::at_depth(self.geometry.pointer_kind(self.leaf_kind), level).unwrap_or(leaf),
        };
        BlockName { score: subtree.score, block_type }
    }

    /// Past the current subtree, without reading it.
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

    /// To the first child of the current subtree, by reading one pointer block. Stays where it is on an error, and
    /// where there are no children.
    pub(crate) fn descend(&mut self) -> Result<(), ReadPointerError> {
        let Some(subtree) = self.current.filter(|subtree| subtree.root == Root::Pointer) else {
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

    /// Reads a pointer block, and perhaps those beside it. Of those that lead to pointer blocks there are few.
    fn read(&mut self, subtree: &Subtree, name: BlockName) -> Result<Bytes, GetError> {
        let Some(mut ahead) = self.ahead.take_if(|_| subtree.level == 1) else {
            return self.store.get(&name);
        };
        let beside = self.above.last().cloned().into_iter().flatten();
        let pointers = beside.filter(|next| next.root == Root::Pointer).map(|next| self.name(&next));
        let read = ahead.get(self.store, name, pointers);
        self.ahead = Some(ahead);
        read
    }
}

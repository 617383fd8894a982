//! Visits every block of a tree. Verification is built on it.

use std::ops::Range;

use varve_block::{BlockName, BlockStore};

use crate::cursor::{ReadPointerError, TreeCursor};
use crate::entry::Entry;
use crate::pointers::SubtreeKind;

/// A block of a tree, as passed by [`walk`].
#[derive(Debug, Clone)]
pub struct WalkedBlock<'a> {
    /// The name of the block. It has not been read yet, and may be missing.
    pub name: BlockName,
    /// The bytes of the file below it.
    pub range: Range<u64>,
    /// Its level above the leaves: 0 for a leaf.
    pub level: u8,
    /// Set on the second visit of a pointer block that could not be read. Nothing below it is
    /// visited.
    pub damage: Option<&'a ReadPointerError>,
}

/// The answer of a visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// Read this pointer block and visit its children.
    Descend,
    /// Skip the blocks below: they were visited before, or are not needed.
    Skip,
}

/// Visits every block of a tree in the order of the file, each pointer block before its children.
/// Holes have no blocks.
///
/// A block is visited before it is read, so that [`Visit::Skip`] saves the read; leaves are never
/// read. Consecutive pointer blocks are read together when they are descended into. A pointer block
/// that turns out to be missing or malformed is visited a second time, with its
/// [`damage`](WalkedBlock::damage), and the walk continues after it.
///
/// Holds one pointer block a level, and a few MiB of read-ahead. A block that occurs at several
/// places is visited at each of them: a visitor that wants to see it once must remember it.
pub fn walk(store: &dyn BlockStore, entry: &Entry, visitor: &mut dyn FnMut(WalkedBlock<'_>) -> Visit) {
    let mut cursor = TreeCursor::new(store, entry).reading_ahead();
    while let Some(subtree) = cursor.current() {
        if subtree.root == SubtreeKind::Zeros {
            cursor.skip();
            continue;
        }
        let node = WalkedBlock {
            name: cursor.name(&subtree),
            range: subtree.range(),
            level: subtree.level,
            damage: None,
        };
        if visitor(node.clone()) == Visit::Skip || subtree.root == SubtreeKind::Leaf {
            cursor.skip();
        } else if let Err(damage) = cursor.descend() {
            visitor(WalkedBlock { damage: Some(&damage), ..node });
            cursor.skip();
        }
    }
}

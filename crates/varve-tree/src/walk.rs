//! Naming every block of a tree: what verification and reclaiming are made of.

use std::ops::Range;

use varve_block::{BlockName, BlockStore};

use crate::cursor::{Cursor, ReadPointerError};
use crate::entry::Entry;
use crate::pointers::Root;

/// A block of a tree, as [`walk`] finds it.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// The block. Not yet read, and perhaps not there.
    pub name: BlockName,
    /// The bytes of the file that it stands for.
    pub range: Range<u64>,
    /// How many levels above the leaves it stands: 0 for a leaf.
    pub level: u8,
    /// Set on the second visit of a pointer block that could not be read: nothing below it is visited.
    pub damage: Option<&'a ReadPointerError>,
}

/// What a visitor wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// Read this pointer block and visit what it leads to.
    Descend,
    /// Leave out what lies below: it was visited before, or is of no interest.
    Skip,
}

/// Visits every block of a tree, each pointer block before what it leads to, in the order of the file. Holes have no
/// blocks.
///
/// A block is visited before it is read, so that [`Visit::Skip`] saves the read; leaves are never read. Of several pointer blocks in a
/// row that are descended into the next ones are read together. A pointer block that turns out to be missing or malformed is visited a
/// second time, with its [`damage`](Node::damage), and the walk goes on behind it. Holds one pointer block a level, and a few MiB of
/// those that come next. A block that stands in several places is visited in each of them: to visit it once is for the visitor, who knows
/// what it has seen.
pub fn walk(store: &dyn BlockStore, entry: &Entry, visitor: &mut dyn FnMut(Node<'_>) -> Visit) {
    let mut cursor = Cursor::new(store, entry).reading_ahead();
    while let Some(subtree) = cursor.current() {
        if subtree.root == Root::Zeros {
            cursor.skip();
            continue;
        }
        let node =
            Node { name: cursor.name(&subtree), range: subtree.range(), level: subtree.level, damage: None };
        if visitor(node.clone()) == Visit::Skip || subtree.root == Root::Leaf {
            cursor.skip();
        } else if let Err(damage) = cursor.descend() {
            visitor(Node { damage: Some(&damage), ..node });
            cursor.skip();
        }
    }
}

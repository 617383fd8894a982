//! Remembers positions in folders, so that a reader that continues a listing need not pass the
//! earlier children again.

use parking_lot::Mutex;

use crate::file_systems::file_system::OnChild;

/// At most this many readers of large folders are served well.
const BOOKMARKS_MAX: usize = 64;

/// A position in a folder: a block, and the number of children before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bookmark {
    /// The number of the folder's inode.
    pub(super) folder: u64,
    pub(super) block: u64,
    pub(super) children_before: u64,
    /// The first block before it that could not be read.
    pub(super) lost_block: Option<u64>,
}

/// Counts children, and passes on those from `first`.
pub(super) struct ChildCounter<'a> {
    pub(super) next: u64,
    pub(super) first: u64,
    pub(super) visit: &'a mut OnChild<'a>,
}

/// The newest come first.
#[derive(Default)]
pub(super) struct Bookmarks(Mutex<Vec<Bookmark>>);

impl Bookmarks {
    /// Returns the nearest bookmark at or before a child.
    pub(super) fn find(&self, folder: u64, child: u64) -> Option<Bookmark> {
        let marks = self.0.lock();
        let before = |mark: &&Bookmark| mark.folder == folder && mark.children_before <= child;
        marks.iter().filter(before).max_by_key(|mark| mark.children_before).copied()
    }

    pub(super) fn keep(&self, mark: Bookmark) {
        let mut marks = self.0.lock();
        if marks.first() != Some(&mark) {
            marks.retain(|known| *known != mark);
            marks.insert(0, mark);
            marks.truncate(BOOKMARKS_MAX);
        }
    }
}

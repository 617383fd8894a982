//! Remembers positions in folders, so that a reader that continues a listing need not pass the
//! earlier children again.

use parking_lot::Mutex;

use crate::file_systems::file_system::FileId;

/// At most this many readers of large folders are served well.
const MARKS_MAX: usize = 64;

/// A position in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListingMark {
    pub(super) folder: FileId,
    pub(super) children_before: u64,
    /// The place in the folder's own order.
    pub(super) index: u64,
    /// The first part before it that could not be read, and its problem.
    pub(super) lost: Option<(String, String)>,
}

/// The newest come first.
#[derive(Default)]
pub(super) struct ListingMarks(Mutex<Vec<ListingMark>>);

impl ListingMarks {
    /// Returns the nearest mark at or before a child.
    pub(super) fn find(&self, folder: FileId, child: u64) -> Option<ListingMark> {
        let marks = self.0.lock();
        let before = |mark: &&ListingMark| mark.folder == folder && mark.children_before <= child;
        marks.iter().filter(before).max_by_key(|mark| mark.children_before).cloned()
    }

    pub(super) fn keep(&self, mark: ListingMark) {
        let mut marks = self.0.lock();
        marks.retain(|known| *known != mark);
        marks.insert(0, mark);
        marks.truncate(MARKS_MAX);
    }
}

//! The contents that are in the archive already, by the id that the other program has for them.

use std::collections::BTreeMap;

use varve_tree::Entry;

/// Identifies the content of a file among all snapshots of one foreign archive: equal ids mean
/// equal contents.
pub type ContentId = [u8; 32];

/// Upper bound on the contents: about half a GiB of memory. A file beyond it is read again in each
/// snapshot, and stored once all the same.
const CONTENT_COUNT_MAX: usize = 4 << 20;

/// The contents that were seen.
#[derive(Debug, Default)]
pub(crate) struct SeenContents {
    contents: BTreeMap<ContentId, Option<Entry>>,
}

impl SeenContents {
    /// The content with this id, if it was seen.
    pub(crate) fn find(&self, id: &ContentId) -> Option<Option<Entry>> {
        self.contents.get(id).copied()
    }

    /// Adds a content that is in the store as a whole.
    pub(crate) fn add(&mut self, id: ContentId, content: Option<Entry>) {
        if self.contents.len() < CONTENT_COUNT_MAX {
            self.contents.insert(id, content);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.contents.len()
    }
}

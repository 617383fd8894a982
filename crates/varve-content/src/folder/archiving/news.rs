//! Classifies each entry of a folder that is not a folder itself as new, changed or unchanged since
//! the previous snapshot.

use std::path::Path;

use crate::records::node::{Node, NodeProblem};

/// The state of an entry relative to the previous snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileNews {
    /// The previous snapshot has no entry at its path.
    New,
    /// Its content or attributes differ.
    Changed,
    /// The entry was read, but its earlier state is unknown: the previous snapshot is not readable
    /// with this key.
    NewOrChanged,
    Unchanged,
}

/// The state of an entry in the previous snapshot.
#[derive(Debug, Clone)]
pub(crate) enum EarlierEntry {
    Known(Box<Node>),
    Absent,
    /// The previous snapshot is not readable with this key.
    Unknown,
}

impl EarlierEntry {
    pub(crate) fn known(&self) -> Option<&Node> {
        match self {
            Self::Known(node) => Some(node),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// The number of entries in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewsCounts {
    /// Entries at new paths.
    pub new_count: u64,
    /// Entries with other content or attributes.
    pub changed_count: u64,
    /// Entries that were read while the previous snapshot is not readable.
    pub new_or_changed_count: u64,
    /// Entries without changes.
    pub unchanged_count: u64,
}

impl NewsCounts {
    /// Counts an entry that was archived, and passes its state to `note`. Unreadable entries are
    /// not counted.
    pub(crate) fn add(&mut self, node: &Node, earlier: &EarlierEntry, note: impl FnOnce(FileNews)) {
        if matches!(node.problem, Some(NodeProblem::Unreadable | NodeProblem::Vanished))
            && node.content.is_none()
        {
            return;
        }
        let news = match earlier {
            EarlierEntry::Absent => FileNews::New,
            EarlierEntry::Unknown => FileNews::NewOrChanged,
            EarlierEntry::Known(earlier) if is_same(earlier, node) => FileNews::Unchanged,
            EarlierEntry::Known(_) => FileNews::Changed,
        };
        match news {
            FileNews::New => self.new_count += 1,
            FileNews::Changed => self.changed_count += 1,
            FileNews::NewOrChanged => self.new_or_changed_count += 1,
            FileNews::Unchanged => self.unchanged_count += 1,
        }
        note(news);
    }

    pub(crate) fn merge(&mut self, others: Self) {
        self.new_count += others.new_count;
        self.changed_count += others.changed_count;
        self.new_or_changed_count += others.new_or_changed_count;
        self.unchanged_count += others.unchanged_count;
    }
}

/// Returns whether everything that a restore would bring back is equal.
fn is_same(earlier: &Node, node: &Node) -> bool {
    let owner = |node: &Node| (node.kind, node.mode, node.uid, node.gid, node.mtime, node.size, node.device);
    owner(earlier) == owner(node)
        && earlier.content == node.content
        && earlier.target == node.target
        && earlier.xattrs == node.xattrs
        && earlier.inode_flags == node.inode_flags
}

/// Receives the state of each entry once it is known, with its path from the root of the source.
/// Called from many threads.
pub type NoteNews = fn(FileNews, &Path);

//! What is new in a folder since the snapshot before: for each entry that is no folder.

use std::path::Path;

use crate::records::node::{Node, NodeProblem};

/// How an entry stands to the snapshot before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileNews {
    /// There was none at its path.
    New,
    /// There was one, with other content or attributes.
    Changed,
    /// It was read, and nobody knows what it was: the snapshot before cannot be read with this key.
    NewOrChanged,
    /// It is as it was.
    Unchanged,
}

/// What an entry was in the snapshot before.
#[derive(Debug, Clone)]
pub(super) enum Earlier {
    Known(Box<Node>),
    Absent,
    /// That snapshot cannot be read with this key.
    Unknown,
}

impl Earlier {
    pub(super) fn known(&self) -> Option<&Node> {
        match self {
            Self::Known(node) => Some(node),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// How many there are of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewsCounts {
    /// Entries at paths that had none.
    pub new_count: u64,
    /// Entries with other content or attributes.
    pub changed_count: u64,
    /// Entries that were read, where the snapshot before cannot be read.
    pub new_or_changed_count: u64,
    /// Entries that are as they were.
    pub unchanged_count: u64,
}

impl NewsCounts {
    /// Counts an entry that was archived, and passes it on. One that could not be read is not counted.
    pub(super) fn add(&mut self, node: &Node, earlier: &Earlier, note: impl FnOnce(FileNews)) {
        if matches!(node.problem, Some(NodeProblem::Unreadable | NodeProblem::Vanished))
            && node.content.is_none()
        {
            return;
        }
        let news = match earlier {
            Earlier::Absent => FileNews::New,
            Earlier::Unknown => FileNews::NewOrChanged,
            Earlier::Known(earlier) if is_same(earlier, node) => FileNews::Unchanged,
            Earlier::Known(_) => FileNews::Changed,
        };
        match news {
            FileNews::New => self.new_count += 1,
            FileNews::Changed => self.changed_count += 1,
            FileNews::NewOrChanged => self.new_or_changed_count += 1,
            FileNews::Unchanged => self.unchanged_count += 1,
        }
        note(news);
    }

    pub(super) fn merge(&mut self, others: Self) {
        self.new_count += others.new_count;
        self.changed_count += others.changed_count;
        self.new_or_changed_count += others.new_or_changed_count;
        self.unchanged_count += others.unchanged_count;
    }
}

/// Whether nothing that a restore would bring back differs.
fn is_same(earlier: &Node, node: &Node) -> bool {
    let owner = |node: &Node| (node.kind, node.mode, node.uid, node.gid, node.mtime, node.size, node.device);
    owner(earlier) == owner(node)
        && earlier.content == node.content
        && earlier.target == node.target
        && earlier.xattrs == node.xattrs
        && earlier.inode_flags == node.inode_flags
}

/// Takes each entry as it becomes known, with its path from the root of the source on. Called from many threads.
pub type NoteNews = fn(FileNews, &Path);

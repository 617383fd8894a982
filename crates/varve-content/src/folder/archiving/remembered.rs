//! The files of the last snapshot, as a process remembers them that cannot read snapshots.

use crate::records::node::Node;

/// The origin of a file's content in a new snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentOrigin {
    /// It was read, and put into the store.
    Read,
    /// It was taken from an earlier snapshot.
    Earlier,
}

/// Remembers the files of one snapshot for the next one. Paths begin at the root of the snapshot.
pub trait RememberedFiles: Send + Sync {
    /// Returns the node with its remembered content, if the file is unchanged.
    fn recall(&self, path: &[u8], node: &Node) -> Option<Node>;

    /// Remembers a file of this snapshot.
    fn remember(&self, path: &[u8], node: &Node, origin: ContentOrigin);
}

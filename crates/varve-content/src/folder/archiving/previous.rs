//! Reads the same folder in the previous snapshot in step with the walk.

use varve_block::BlockStore;

use crate::records::node::Node;
use crate::records::node_list::NodeList;

/// The nodes of a folder, taken by ascending names. An unreadable list ends early.
pub(super) struct PreviousFolder<'a> {
    nodes: Option<NodeList<'a>>,
    next: Option<Node>,
}

impl<'a> PreviousFolder<'a> {
    /// The nodes of `folder`.
    pub(crate) fn new(blocks: &'a dyn BlockStore, folder: Option<&Node>) -> Self {
        let mut previous = Self { nodes: folder.map(|folder| NodeList::new(blocks, folder)), next: None };
        previous.read();
        previous
    }

    /// The node with this name. Names must be requested in ascending order. Nodes in between are
    /// skipped.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<Node> {
        while self.next.as_ref().is_some_and(|next| next.name.as_slice() < name) {
            self.read();
        }
        if self.next.as_ref().is_none_or(|next| next.name != name) {
            return None;
        }
        let found = self.next.take();
        self.read();
        found
    }

    fn read(&mut self) {
        self.next = self.nodes.as_mut().and_then(|nodes| nodes.next()?.ok());
        if self.next.is_none() {
            self.nodes = None;
        }
    }
}
